"""Library primitives of matrix factorisations and functions.

In: matrices in the last two dimensions, any number of equal leading ones (a batch).
Out: factors, column by column in memory (strides 1, rows) but for some of a GPU's, vectors and
numbers contiguous.
Invariant: float32, float64 and their complex dtypes only; no broadcasting of batches; a failure
shows in `info` (int32, 0 is success) where there is one, and is an error in eager otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_prims._op import Cost, MetaResult, define, in_layout, require
from flambeau_prims.layout import Size, TensorMeta, contiguous_strides
from flambeau_prims.ops.complex import COMPLEX_OF, REAL_OF

LAPACK = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})
GOLUB = "Golub and Van Loan, Matrix Computations"
_MATRIX = "matrices in the last two dimensions, stored column by column"
NAN = {"nan": "spreads, or is an error where the library checks", "empty": "empty factors"}

aten = torch.ops.aten


def columns(a: TensorMeta, shape: Sequence[Size], dtype: torch.dtype | None = None) -> TensorMeta:
    """Metadata of matrices of `shape`, contiguous but for the order of the last two dimensions."""
    turned = contiguous_strides([*shape[:-2], shape[-1], shape[-2]])
    return a.like(tuple(shape), [*turned[:-2], turned[-1], turned[-2]], dtype)


def _rows_on_gpu(
    a: TensorMeta, shape: Sequence[Size], dtype: torch.dtype | None = None
) -> TensorMeta:
    """Metadata of matrices that eager has row by row on a GPU, column by column on a CPU."""
    return a.like(shape, dtype=dtype) if a.device.type == "cuda" else columns(a, shape, dtype)


def check_matrices(name: str, a: TensorMeta, square: bool = False) -> tuple[Size, Size]:
    """Rows and columns of the matrices in `a`; raises unless a library takes them."""
    require(a.dtype in LAPACK, f"{name}: not defined on {a.dtype}")
    require(a.ndim >= 2, f"{name}: a {a.ndim}-d tensor holds no matrices")
    rows, cols = a.shape[-2], a.shape[-1]
    require(not square or bool(rows == cols), f"{name}: matrices of {rows} by {cols}, not square")
    return rows, cols


def least(m: Size, n: Size) -> Size:
    """The smaller of two sizes."""
    return m if m < n else n


def _info(a: TensorMeta) -> TensorMeta:
    return a.like(a.shape[:-2], dtype=torch.int32)


def cubic(weight: float) -> Cost:
    """`weight` times rows times columns times the smaller of the two, for each matrix."""

    def cost(args: tuple[Any, ...], result: MetaResult) -> Size:
        del result
        a: TensorMeta = args[0]
        four = 4 if a.dtype.is_complex else 1
        total: Size = a.numel() * least(a.shape[-2], a.shape[-1]) * int(weight * 3) * four // 3
        return total

    return cost


def leaf(
    schema: str,
    rule: Callable[..., MetaResult],
    call: Callable[..., Any],
    **notes: Any,
) -> None:
    """Define a primitive of which the eager form is a library call, held to the rule's layout."""

    def eager(*args: Any, **kwargs: Any) -> Any:
        metas = [TensorMeta.of(x) if isinstance(x, torch.Tensor) else x for x in args]
        result = call(*args, **kwargs)
        expected = rule(*metas, **kwargs)
        return in_layout(result if isinstance(expected, TensorMeta) else tuple(result), expected)

    notes.setdefault("flops", cubic(2))
    notes.setdefault("edge_cases", NAN)
    notes.setdefault("dtypes", LAPACK)
    notes.setdefault("shape", _MATRIX)
    define(schema, rule=rule, eager=eager, tags=("linalg", "library"), **notes)


def _cholesky_rule(a: TensorMeta, upper: bool) -> tuple[TensorMeta, TensorMeta]:
    del upper
    check_matrices("cholesky", a, square=True)
    return columns(a, a.shape), _info(a)


leaf(
    "cholesky(Tensor a, bool upper) -> (Tensor, Tensor)",
    _cholesky_rule,
    lambda a, upper: aten.linalg_cholesky_ex.default(a, upper=upper),
    doc="L with a = L L^H (`upper`: U with a = U^H U), and info: k > 0 if the leading minor of"
    " order k is not positive definite.",
    edge_cases={**NAN, "domain": "info > 0; the factor is undefined then", "note": "reads a half"},
    source=f"{GOLUB}, 4.2",
    flops=cubic(1 / 3),
)


def _cholesky_inverse_rule(factor: TensorMeta, upper: bool) -> TensorMeta:
    del upper
    check_matrices("cholesky_inverse", factor, square=True)
    return columns(factor, factor.shape)


leaf(
    "cholesky_inverse(Tensor factor, bool upper) -> Tensor",
    _cholesky_inverse_rule,
    lambda factor, upper: aten.cholesky_inverse.default(factor, upper),
    doc="The inverse of L L^H (`upper`: U^H U), of which `factor` is L (U); the other half is not"
    " read.",
    edge_cases={**NAN, "complex": "what a diagonal that is not real gives is the library's choice"},
    source=f"{GOLUB}, 4.2",
    flops=cubic(2 / 3),
)


def _qr_rule(a: TensorMeta, complete: bool) -> tuple[TensorMeta, TensorMeta]:
    m, n = check_matrices("qr", a)
    k = m if complete else least(m, n)
    batch = a.shape[:-2]
    return columns(a, (*batch, m, k)), columns(a, (*batch, k, n))


leaf(
    "qr(Tensor a, bool complete) -> (Tensor, Tensor)",
    _qr_rule,
    lambda a, complete: aten.linalg_qr.default(a, "complete" if complete else "reduced"),
    doc="Q with orthonormal columns and upper triangular R, a = Q R; Q is square if `complete`.",
    edge_cases={**NAN, "note": "signs of R's diagonal are the library's choice"},
    source=f"{GOLUB}, 5.2",
)


def _svd_rule(a: TensorMeta, full: bool) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    m, n = check_matrices("svd", a)
    k = least(m, n)
    batch = a.shape[:-2]
    values = a.like((*batch, k), dtype=REAL_OF.get(a.dtype, a.dtype))
    left, right = (m, n) if full else (k, k)
    return columns(a, (*batch, m, left)), values, _rows_on_gpu(a, (*batch, right, n))


_SIGNS = {"note": "signs, and bases of equal values, are the library's choice"}

leaf(
    "svd(Tensor a, bool full) -> (Tensor, Tensor, Tensor)",
    _svd_rule,
    lambda a, full: aten._linalg_svd.default(a, full, True),
    doc="U, s, V^H with a = U diag(s) V^H, s descending; U and V are square if `full`.",
    edge_cases={**NAN, **_SIGNS},
    source=f"{GOLUB}, 2.4",
    flops=cubic(12),
)


def _svdvals_rule(a: TensorMeta) -> TensorMeta:
    return _svd_rule(a, False)[1]


leaf(
    "svdvals(Tensor a) -> Tensor",
    _svdvals_rule,
    lambda a: aten._linalg_svd.default(a, False, False)[1],
    doc="The singular values alone, descending.",
    shape="(..., min(m, n)), real",
    source=f"{GOLUB}, 8.6",
    flops=cubic(4),
)


def _eigh_rule(a: TensorMeta, upper: bool) -> tuple[TensorMeta, TensorMeta]:
    del upper
    check_matrices("eigh", a, square=True)
    values = a.like(a.shape[:-1], dtype=REAL_OF.get(a.dtype, a.dtype))
    return values, columns(a, a.shape)


leaf(
    "eigh(Tensor a, bool upper) -> (Tensor, Tensor)",
    _eigh_rule,
    lambda a, upper: aten._linalg_eigh.default(a, "U" if upper else "L", True),
    doc="Eigenvalues (real, ascending) and orthonormal eigenvectors of a symmetric or Hermitian"
    " matrix, of which the lower (or `upper`) half is read.",
    edge_cases={**NAN, **_SIGNS},
    source=f"{GOLUB}, 8.3",
    flops=cubic(9),
)

leaf(
    "eigvalsh(Tensor a, bool upper) -> Tensor",
    lambda a, upper: _eigh_rule(a, upper)[0],
    lambda a, upper: aten._linalg_eigh.default(a, "U" if upper else "L", False)[0],
    doc="The eigenvalues of a symmetric or Hermitian matrix alone, ascending.",
    shape="(..., n), real",
    source=f"{GOLUB}, 8.3",
    flops=cubic(4),
)


def _eig_rule(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    check_matrices("eig", a, square=True)
    dtype = COMPLEX_OF.get(a.dtype, a.dtype)
    return a.like(a.shape[:-1], dtype=dtype), _rows_on_gpu(a, a.shape, dtype)


leaf(
    "eig(Tensor a) -> (Tensor, Tensor)",
    _eig_rule,
    lambda a: aten.linalg_eig.default(a),
    doc="Eigenvalues and eigenvectors (of norm 1, as columns) of a square matrix, complex.",
    edge_cases={**NAN, "note": "order and phases are the library's choice"},
    source=f"{GOLUB}, 7.5",
    flops=cubic(25),
)

leaf(
    "eigvals(Tensor a) -> Tensor",
    lambda a: _eig_rule(a)[0],
    lambda a: aten._linalg_eigvals.default(a),
    doc="The eigenvalues of a square matrix alone, complex.",
    shape="(..., n), complex",
    edge_cases={**NAN, "note": "order is the library's choice"},
    source=f"{GOLUB}, 7.5",
    flops=cubic(10),
)


def _lu_factor_rule(a: TensorMeta, pivot: bool) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    del pivot
    m, n = check_matrices("lu_factor", a)
    pivots = a.like((*a.shape[:-2], least(m, n)), dtype=torch.int32)
    return columns(a, a.shape), pivots, _info(a)


leaf(
    "lu_factor(Tensor a, bool pivot) -> (Tensor, Tensor, Tensor)",
    _lu_factor_rule,
    lambda a, pivot: aten.linalg_lu_factor_ex.default(a, pivot=pivot),
    doc="L (unit lower) and U (upper) in one matrix, P a = L U; pivots: row i was exchanged with"
    " row pivots[i] - 1, in ascending i; info: k > 0 if U[k-1, k-1] is 0.",
    edge_cases={**NAN, "domain": "a singular matrix has info > 0", "note": "CPU always pivots"},
    source=f"{GOLUB}, 3.4",
    flops=cubic(2 / 3),
)


def _permutation_rule(pivots: TensorMeta, n: Size) -> TensorMeta:
    good = pivots.dtype == torch.int32 and pivots.ndim >= 1 and bool(pivots.shape[-1] <= n)
    require(
        good, f"pivots_to_permutation: {pivots.dtype}{list(pivots.shape)} for permutations of {n}"
    )
    return pivots.like((*pivots.shape[:-1], n), dtype=torch.int64)


def _permutation(pivots: torch.Tensor, n: Size) -> torch.Tensor:
    rows = torch.arange(n, device=pivots.device).expand(*pivots.shape[:-1], n).clone()
    for i in range(pivots.shape[-1]):
        other = pivots[..., i : i + 1].long() - 1
        moved = rows.gather(-1, other)
        rows.scatter_(-1, other, rows[..., i : i + 1].clone())
        rows[..., i : i + 1] = moved
    return rows


define(
    "pivots_to_permutation(Tensor pivots, SymInt n) -> Tensor",
    rule=_permutation_rule,
    eager=_permutation,
    tags=("linalg", "index"),
    doc="The order in which the row exchanges of `lu_factor` leave rows 0 .. n-1: a[perm] = L U.",
    shape="(..., n), int64",
    edge_cases={"out of range": "a pivot beyond n is an error in eager"},
    source=f"{GOLUB}, 3.4",
    differentiable=False,
    dtypes=frozenset({torch.int32}),
)


def _same_square(name: str) -> Callable[..., TensorMeta]:
    def rule(a: TensorMeta) -> TensorMeta:
        check_matrices(name, a, square=True)
        return a.like(a.shape)

    return rule


leaf(
    "matrix_exp(Tensor a) -> Tensor",
    _same_square("matrix_exp"),
    lambda a: aten.linalg_matrix_exp.default(a),
    doc="The sum of a^k / k! over all k >= 0.",
    shape="that of the operand, contiguous",
    source="Bader, Blanes and Casas, Computing the Matrix Exponential with an Optimized Taylor"
    " Polynomial Approximation, 2019",
    flops=cubic(30),
)


def _check_reflectors(name: str, a: TensorMeta, tau: TensorMeta) -> None:
    _, n = check_matrices(name, a)
    good = tau.dtype == a.dtype and tau.shape[:-1] == a.shape[:-2] and tau.ndim == a.ndim - 1
    require(good, f"{name}: tau {tau.dtype}{list(tau.shape)} for {a.dtype}{list(a.shape)}")
    require(bool(tau.shape[-1] <= n), f"{name}: {tau.shape[-1]} reflectors in {n} columns")


def _householder_rule(a: TensorMeta, tau: TensorMeta) -> TensorMeta:
    _check_reflectors("householder_product", a, tau)
    require(bool(a.shape[-2] >= a.shape[-1]), f"householder_product: more columns in {a.shape}")
    return columns(a, a.shape)


leaf(
    "householder_product(Tensor a, Tensor tau) -> Tensor",
    _householder_rule,
    lambda a, tau: aten.linalg_householder_product.default(a, tau),
    doc="The first columns of H1 H2 ... Hk, Hi = I - tau[i] v v^H, v being column i of `a` below"
    " the diagonal, with a 1 on it.",
    source=f"{GOLUB}, 5.1",
)


def _geqrf_rule(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    m, n = check_matrices("geqrf", a)
    return columns(a, a.shape), a.like((*a.shape[:-2], least(m, n)))


leaf(
    "geqrf(Tensor a) -> (Tensor, Tensor)",
    _geqrf_rule,
    lambda a: aten.geqrf.default(a),
    doc="R above the diagonal and the Householder vectors below it, and their factors tau.",
    edge_cases={**NAN, "note": "signs of R's diagonal are the library's choice"},
    source=f"{GOLUB}, 5.2",
)


def _ormqr_rule(
    a: TensorMeta, tau: TensorMeta, c: TensorMeta, left: bool, adjoint: bool
) -> TensorMeta:
    del adjoint
    _check_reflectors("ormqr", a, tau)
    good = c.dtype == a.dtype and c.ndim == a.ndim and c.shape[:-2] == a.shape[:-2]
    good = good and bool(c.shape[-2 if left else -1] == a.shape[-2])
    require(good, f"ormqr: c {c.dtype}{list(c.shape)} for reflectors {a.shape}, left={left}")
    return columns(c, c.shape)


leaf(
    "ormqr(Tensor a, Tensor tau, Tensor c, bool left, bool adjoint) -> Tensor",
    _ormqr_rule,
    lambda a, tau, c, left, adjoint: aten.ormqr.default(a, tau, c, left, adjoint),
    doc="Q c (`left`) or c Q, or with Q^H (`adjoint`), Q given by its Householder vectors.",
    source=f"{GOLUB}, 5.1",
)


def _ldl_rule(a: TensorMeta, hermitian: bool) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    del hermitian
    check_matrices("ldl_factor", a, square=True)
    return columns(a, a.shape), a.like(a.shape[:-1], dtype=torch.int32), _info(a)


leaf(
    "ldl_factor(Tensor a, bool hermitian) -> (Tensor, Tensor, Tensor)",
    _ldl_rule,
    lambda a, hermitian: aten.linalg_ldl_factor_ex.default(a, hermitian=hermitian),
    doc="L and block diagonal D in one matrix with a = L D L^T (`hermitian`: L^H), of which the"
    " lower half is read; pivots; info: k > 0 if D[k-1, k-1] is 0.",
    edge_cases={**NAN, "domain": "a singular matrix has info > 0", "note": "pivots as in LAPACK"},
    source="Bunch and Kaufman, Some Stable Methods for Calculating Inertia, 1977",
    flops=cubic(1 / 3),
)
