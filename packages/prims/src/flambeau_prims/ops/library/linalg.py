"""Leaves of matrix factorisations, functions and linear systems.

In: matrices in the last two dimensions, any number of equal leading ones (a batch). Out: factors
and solutions, column by column in memory (strides 1, rows) but for some of a GPU's, vectors and
numbers contiguous.
Invariant: float32, float64 and their complex dtypes only; no broadcasting of batches; a failure
shows in `info` (int32, 0 is success) where there is one, and is an error in eager otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import Cost, MetaResult, define, require
from flambeau_prims.layout import Size, TensorMeta, contiguous_strides
from flambeau_prims.ops.complex import COMPLEX_OF, REAL_OF
from flambeau_prims.ops.library.leaf import leaf

LAPACK = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})
GOLUB = "Golub and Van Loan, Matrix Computations"
_MATRIX = "matrices in the last two dimensions, stored column by column"
NAN = {"nan": "spreads, or is an error where the library checks", "empty": "empty factors"}

aten = torch.ops.aten


def columns(a: TensorMeta, shape: Sequence[Size], dtype: torch.dtype | None = None) -> TensorMeta:
    """Metadata of matrices of `shape`, contiguous but for the order of the last two dimensions."""
    *batch, rows, step = contiguous_strides([*shape[:-2], shape[-1], shape[-2]])
    return a.like(tuple(shape), [*batch, step, rows], dtype)


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


_REASON = "an algorithm of a library: LAPACK, MAGMA or cuSOLVER"
_leaf = partial(
    leaf,
    family="linalg",
    tags=("linalg", "library"),
    reason=_REASON,
    dtypes=LAPACK,
    shape=_MATRIX,
    edge_cases=NAN,
    flops=cubic(2),
)


def _cholesky_rule(a: TensorMeta, upper: bool) -> tuple[TensorMeta, TensorMeta]:
    del upper
    check_matrices("cholesky", a, square=True)
    return columns(a, a.shape), _info(a)


_leaf(
    "cholesky(Tensor a, bool upper) -> (Tensor, Tensor)",
    _cholesky_rule,
    aten.linalg_cholesky_ex,
    "L with a = L L^H (`upper`: U with a = U^H U), and info: k > 0 if the leading minor of"
    " order k is not positive definite.",
    edge_cases={**NAN, "domain": "info > 0; the factor is undefined then", "note": "reads a half"},
    source=f"{GOLUB}, 4.2",
    flops=cubic(1 / 3),
)


def _cholesky_inverse_rule(factor: TensorMeta, upper: bool) -> TensorMeta:
    del upper
    check_matrices("cholesky_inverse", factor, square=True)
    return columns(factor, factor.shape)


_leaf(
    "cholesky_inverse(Tensor factor, bool upper) -> Tensor",
    _cholesky_inverse_rule,
    aten.cholesky_inverse,
    "The inverse of L L^H (`upper`: U^H U), of which `factor` is L (U); the other half is not"
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


_leaf(
    "qr(Tensor a, bool complete) -> (Tensor, Tensor)",
    _qr_rule,
    lambda a, complete: aten.linalg_qr.default(a, "complete" if complete else "reduced"),
    "Q with orthonormal columns and upper triangular R, a = Q R; Q is square if `complete`.",
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

_leaf(
    "svd(Tensor a, bool full) -> (Tensor, Tensor, Tensor)",
    _svd_rule,
    lambda a, full: aten._linalg_svd.default(a, full, True),
    "U, s, V^H with a = U diag(s) V^H, s descending; U and V are square if `full`.",
    edge_cases={**NAN, **_SIGNS},
    source=f"{GOLUB}, 2.4",
    flops=cubic(12),
)


def _svdvals_rule(a: TensorMeta) -> TensorMeta:
    return _svd_rule(a, False)[1]


_leaf(
    "svdvals(Tensor a) -> Tensor",
    _svdvals_rule,
    lambda a: aten._linalg_svd.default(a, False, False)[1],
    "The singular values alone, descending.",
    shape="(..., min(m, n)), real",
    source=f"{GOLUB}, 8.6",
    flops=cubic(4),
)


def _eigh_rule(a: TensorMeta, upper: bool) -> tuple[TensorMeta, TensorMeta]:
    del upper
    check_matrices("eigh", a, square=True)
    values = a.like(a.shape[:-1], dtype=REAL_OF.get(a.dtype, a.dtype))
    return values, columns(a, a.shape)


_leaf(
    "eigh(Tensor a, bool upper) -> (Tensor, Tensor)",
    _eigh_rule,
    lambda a, upper: aten._linalg_eigh.default(a, "U" if upper else "L", True),
    "Eigenvalues (real, ascending) and orthonormal eigenvectors of a symmetric or Hermitian"
    " matrix, of which the lower (or `upper`) half is read.",
    edge_cases={**NAN, **_SIGNS},
    source=f"{GOLUB}, 8.3",
    flops=cubic(9),
)

_leaf(
    "eigvalsh(Tensor a, bool upper) -> Tensor",
    lambda a, upper: _eigh_rule(a, upper)[0],
    lambda a, upper: aten._linalg_eigh.default(a, "U" if upper else "L", False)[0],
    "The eigenvalues of a symmetric or Hermitian matrix alone, ascending.",
    shape="(..., n), real",
    source=f"{GOLUB}, 8.3",
    flops=cubic(4),
)


def _eig_rule(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    check_matrices("eig", a, square=True)
    dtype = COMPLEX_OF.get(a.dtype, a.dtype)
    return a.like(a.shape[:-1], dtype=dtype), _rows_on_gpu(a, a.shape, dtype)


_leaf(
    "eig(Tensor a) -> (Tensor, Tensor)",
    _eig_rule,
    aten.linalg_eig,
    "Eigenvalues and eigenvectors (of norm 1, as columns) of a square matrix, complex.",
    edge_cases={**NAN, "note": "order and phases are the library's choice"},
    source=f"{GOLUB}, 7.5",
    flops=cubic(25),
)

_leaf(
    "eigvals(Tensor a) -> Tensor",
    lambda a: _eig_rule(a)[0],
    aten._linalg_eigvals,
    "The eigenvalues of a square matrix alone, complex.",
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


_leaf(
    "lu_factor(Tensor a, bool pivot) -> (Tensor, Tensor, Tensor)",
    _lu_factor_rule,
    aten.linalg_lu_factor_ex,
    "L (unit lower) and U (upper) in one matrix, P a = L U; pivots: row i was exchanged with"
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
    reason=_REASON,
    dtypes=frozenset({torch.int32}),
)


def _matrix_exp_rule(a: TensorMeta) -> TensorMeta:
    check_matrices("matrix_exp", a, square=True)
    return a.like(a.shape)


_leaf(
    "matrix_exp(Tensor a) -> Tensor",
    _matrix_exp_rule,
    aten.linalg_matrix_exp,
    "The sum of a^k / k! over all k >= 0.",
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


_leaf(
    "householder_product(Tensor a, Tensor tau) -> Tensor",
    _householder_rule,
    aten.linalg_householder_product,
    "The first columns of H1 H2 ... Hk, Hi = I - tau[i] v v^H, v being column i of `a` below"
    " the diagonal, with a 1 on it.",
    source=f"{GOLUB}, 5.1",
)


def _geqrf_rule(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    m, n = check_matrices("geqrf", a)
    return columns(a, a.shape), a.like((*a.shape[:-2], least(m, n)))


_leaf(
    "geqrf(Tensor a) -> (Tensor, Tensor)",
    _geqrf_rule,
    aten.geqrf,
    "R above the diagonal and the Householder vectors below it, and their factors tau.",
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


_leaf(
    "ormqr(Tensor a, Tensor tau, Tensor c, bool left, bool adjoint) -> Tensor",
    _ormqr_rule,
    aten.ormqr,
    "Q c (`left`) or c Q, or with Q^H (`adjoint`), Q given by its Householder vectors.",
    source=f"{GOLUB}, 5.1",
)


def _ldl_rule(a: TensorMeta, hermitian: bool) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    del hermitian
    check_matrices("ldl_factor", a, square=True)
    return columns(a, a.shape), a.like(a.shape[:-1], dtype=torch.int32), _info(a)


_leaf(
    "ldl_factor(Tensor a, bool hermitian) -> (Tensor, Tensor, Tensor)",
    _ldl_rule,
    aten.linalg_ldl_factor_ex,
    "L and block diagonal D in one matrix with a = L D L^T (`hermitian`: L^H), of which the"
    " lower half is read; pivots; info: k > 0 if D[k-1, k-1] is 0.",
    edge_cases={**NAN, "domain": "a singular matrix has info > 0", "note": "pivots as in LAPACK"},
    source="Bunch and Kaufman, Some Stable Methods for Calculating Inertia, 1977",
    flops=cubic(1 / 3),
)


def _per_right_side(args: tuple[Any, ...], result: MetaResult) -> Size:
    del result
    a, b = args[0], args[-1] if isinstance(args[-1], TensorMeta) else args[1]
    total: Size = 2 * a.shape[-1] * b.numel()
    return total


def check_system(name: str, a: TensorMeta, b: TensorMeta, left: bool) -> None:
    """Raise unless `a x = b` (or `x a = b`) is a system with one batch shape and dtype."""
    n, _ = check_matrices(name, a, square=True)
    require(a.dtype == b.dtype, f"{name}: dtypes {a.dtype} and {b.dtype} differ; cast first")
    good = b.ndim == a.ndim and a.shape[:-2] == b.shape[:-2]
    good = good and bool(b.shape[-2 if left else -1] == n)
    require(good, f"{name}: a right side {b.shape} for matrices {a.shape}, left={left}")


def _lu_solve_rule(
    lu: TensorMeta, pivots: TensorMeta, b: TensorMeta, left: bool, adjoint: bool
) -> TensorMeta:
    del adjoint
    check_system("lu_solve", lu, b, left)
    good = pivots.dtype == torch.int32 and pivots.shape == lu.shape[:-1]
    require(good, f"lu_solve: pivots {pivots.dtype}{list(pivots.shape)} for {lu.shape}")
    return columns(b, b.shape)


_SINGULAR = {**NAN, "domain": "a zero on the diagonal gives infinities or NaN"}

_leaf(
    "lu_solve(Tensor lu, Tensor pivots, Tensor b, bool left, bool adjoint) -> Tensor",
    _lu_solve_rule,
    aten.linalg_lu_solve,
    "x with a x = b (`left`) or x a = b, or with a^H for a (`adjoint`), from `lu_factor(a)`.",
    edge_cases=_SINGULAR,
    source=f"{GOLUB}, 3.4",
    flops=lambda args, result: 2 * args[0].shape[-1] * args[2].numel(),
)


def _triangular_rule(
    a: TensorMeta, b: TensorMeta, upper: bool, left: bool, unitriangular: bool
) -> TensorMeta:
    del upper, unitriangular
    check_system("solve_triangular", a, b, left)
    return columns(b, b.shape)


_leaf(
    "solve_triangular(Tensor a, Tensor b, bool upper, bool left, bool unitriangular) -> Tensor",
    _triangular_rule,
    aten.linalg_solve_triangular,
    "x with a x = b (`left`) or x a = b; only one half of `a` is read, and its diagonal is"
    " taken to be 1 if `unitriangular`.",
    edge_cases=_SINGULAR,
    source=f"{GOLUB}, 3.1",
    flops=_per_right_side,
)


def _lstsq_rule(
    a: TensorMeta, b: TensorMeta, rcond: float, driver: str
) -> tuple[TensorMeta, TensorMeta, TensorMeta, TensorMeta]:
    del rcond
    m, n = check_matrices("lstsq", a)
    require(a.dtype == b.dtype, f"lstsq: dtypes {a.dtype} and {b.dtype} differ; cast first")
    good = b.ndim == a.ndim and b.shape[:-1] == a.shape[:-1]
    require(good, f"lstsq: a right side {b.shape} for matrices {a.shape}")
    require(driver in ("gels", "gelsy", "gelsd", "gelss"), f"lstsq: driver {driver!r}")
    batch, dtype = a.shape[:-2], REAL_OF.get(a.dtype, a.dtype)
    solution = columns(a, (*batch, n, b.shape[-1]))
    residuals = a.like((*batch, b.shape[-1]), dtype=dtype)
    rank = a.like(batch, dtype=torch.int64)
    return solution, residuals, rank, a.like((*batch, least(m, n)), dtype=dtype)


def _lstsq(a: torch.Tensor, b: torch.Tensor, rcond: float, driver: str) -> Any:
    x, left_over, rank, values = aten.linalg_lstsq.default(a, b, rcond, driver=driver)
    batch, k = tuple(a.shape[:-2]), min(a.shape[-2], a.shape[-1])
    real = REAL_OF.get(a.dtype, a.dtype)
    # The library may have no use for it; and it conjugates lazily, which is lost below a mode.
    if tuple(left_over.shape) != (*batch, b.shape[-1]) or a.is_complex():
        left_over = (a @ x - b).abs().square().sum(-2)
    if driver == "gels":
        rank = torch.full(batch, k, dtype=torch.int64, device=a.device)
    if tuple(values.shape) != (*batch, k):
        values = torch.zeros((*batch, k), dtype=real, device=a.device)
    return x, left_over, rank, values


_leaf(
    "lstsq(Tensor a, Tensor b, float rcond, str driver) -> (Tensor, Tensor, Tensor, Tensor)",
    _lstsq_rule,
    _lstsq,
    "x of least norm among those with the least |a x - b| (`gels` takes full rank for"
    " granted), |a x - b|^2, the rank, and the singular values (zeros from `gels`, `gelsy`).",
    edge_cases={**NAN, "domain": "values below rcond times the largest count as 0"},
    source=f"{GOLUB}, 5.3 and 5.5",
    flops=cubic(4),
)


def _ldl_solve_rule(
    ld: TensorMeta, pivots: TensorMeta, b: TensorMeta, hermitian: bool
) -> TensorMeta:
    del hermitian
    check_system("ldl_solve", ld, b, True)
    good = pivots.dtype == torch.int32 and pivots.shape == ld.shape[:-1]
    require(good, f"ldl_solve: pivots {pivots.dtype}{list(pivots.shape)} for {ld.shape}")
    return columns(b, b.shape)


_leaf(
    "ldl_solve(Tensor ld, Tensor pivots, Tensor b, bool hermitian) -> Tensor",
    _ldl_solve_rule,
    aten.linalg_ldl_solve,
    "x with a x = b, from `ldl_factor(a)`.",
    edge_cases=_SINGULAR,
    source="Bunch and Kaufman, Some Stable Methods for Calculating Inertia, 1977",
    flops=lambda args, result: 2 * args[0].shape[-1] * args[2].numel(),
)
