"""Leaves of matrix factorisations, functions and linear systems.

In: matrices in the last two dimensions, any number of equal leading ones (a batch). Out: factors
and solutions, column by column in memory (strides 1, rows) but for some of a GPU's, vectors and
numbers contiguous.
Invariant: float32, float64 and their complex dtypes only; no broadcasting of batches; a failure
shows in `info` (int32, 0 is success) where there is one, and is an error in eager otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from flambeau_prims._op import Cost, MetaResult, primitive, require
from flambeau_prims.ops.complex import COMPLEX_OF, REAL_OF
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.shape_rules import Size, Sizes, TensorMeta, contiguous_strides

LAPACK = frozenset({torch.float32, torch.float64, torch.complex64, torch.complex128})
GOLUB = "Golub and Van Loan, Matrix Computations"
_MATRIX = "matrices in the last two dimensions, stored column by column"
NAN = {"nan": "spreads, or is an error where the library checks", "empty": "empty factors"}

aten = torch.ops.aten


def columns(a: TensorMeta, shape: Sizes, dtype: torch.dtype | None = None) -> TensorMeta:
    """Metadata of matrices of `shape`, contiguous but for the order of the last two dimensions."""
    *batch, rows, step = contiguous_strides([*shape[:-2], shape[-1], shape[-2]])
    return a.like(tuple(shape), [*batch, step, rows], dtype)


def _rows_on_gpu(a: TensorMeta, shape: Sizes, dtype: torch.dtype | None = None) -> TensorMeta:
    """Metadata of matrices that eager has row by row on a GPU, column by column on a CPU."""
    return a.like(shape, dtype=dtype) if a.device.type == "cuda" else columns(a, shape, dtype)


def check_matrices(a: TensorMeta, square: bool = False) -> tuple[Size, Size]:
    """Rows and columns of the matrices in `a`; raises unless a library takes them."""
    require(a.ndim >= 2, f"a {a.ndim}-d tensor holds no matrices")
    rows, cols = a.shape[-2], a.shape[-1]
    require(not square or bool(rows == cols), f"matrices of {rows} by {cols}, not square")
    return rows, cols


def least(m: Size, n: Size) -> Size:
    """The smaller of two sizes."""
    return m if m < n else n


def _info(a: TensorMeta) -> TensorMeta:
    return a.like(a.shape[:-2], dtype=torch.int32)


def cubic(weight: float) -> Cost:
    """`weight` times rows times columns times the smaller of the two, for each matrix."""

    def cost(args: tuple[Any, ...], result: MetaResult) -> Size:
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


@_leaf(
    "cholesky(Tensor a, bool upper) -> (Tensor, Tensor)",
    aten.linalg_cholesky_ex,
    edge_cases={**NAN, "domain": "info > 0; the factor is undefined then", "note": "reads a half"},
    source=f"{GOLUB}, 4.2",
    flops=cubic(1 / 3),
)
def cholesky(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    """L with a = L L^H (`upper`: U with a = U^H U), and info: k > 0 if the leading minor of order k
    is not positive definite."""
    check_matrices(a, square=True)
    return columns(a, a.shape), _info(a)


@_leaf(
    "cholesky_inverse(Tensor factor, bool upper) -> Tensor",
    aten.cholesky_inverse,
    edge_cases={**NAN, "complex": "what a diagonal that is not real gives is the library's choice"},
    source=f"{GOLUB}, 4.2",
    flops=cubic(2 / 3),
)
def cholesky_inverse(factor: TensorMeta) -> TensorMeta:
    """The inverse of L L^H (`upper`: U^H U), of which `factor` is L (U); the other half is not
    read."""
    check_matrices(factor, square=True)
    return columns(factor, factor.shape)


@_leaf(
    "qr(Tensor a, bool complete) -> (Tensor, Tensor)",
    lambda a, complete: aten.linalg_qr.default(a, "complete" if complete else "reduced"),
    edge_cases={**NAN, "note": "signs of R's diagonal are the library's choice"},
    source=f"{GOLUB}, 5.2",
)
def qr(a: TensorMeta, complete: bool) -> tuple[TensorMeta, TensorMeta]:
    """Q with orthonormal columns and upper triangular R, a = Q R; Q is square if `complete`."""
    m, n = check_matrices(a)
    k = m if complete else least(m, n)
    batch = a.shape[:-2]
    return columns(a, (*batch, m, k)), columns(a, (*batch, k, n))


_SIGNS = {"note": "signs, and bases of equal values, are the library's choice"}


@_leaf(
    "svd(Tensor a, bool full) -> (Tensor, Tensor, Tensor)",
    lambda a, full: aten._linalg_svd.default(a, full, True),
    edge_cases={**NAN, **_SIGNS},
    source=f"{GOLUB}, 2.4",
    flops=cubic(12),
)
def svd(a: TensorMeta, full: bool) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    """U, s, V^H with a = U diag(s) V^H, s descending; U and V are square if `full`."""
    m, n = check_matrices(a)
    k = least(m, n)
    batch = a.shape[:-2]
    values = a.like((*batch, k), dtype=REAL_OF.get(a.dtype, a.dtype))
    left, right = (m, n) if full else (k, k)
    return columns(a, (*batch, m, left)), values, _rows_on_gpu(a, (*batch, right, n))


@_leaf(
    "svdvals(Tensor a) -> Tensor",
    lambda a: aten._linalg_svd.default(a, False, False)[1],
    shape="(..., min(m, n)), real",
    source=f"{GOLUB}, 8.6",
    flops=cubic(4),
)
def svdvals(a: TensorMeta) -> TensorMeta:
    """The singular values alone, descending."""
    return svd(a, False)[1]  # type: ignore[no-any-return]


@_leaf(
    "eigh(Tensor a, bool upper) -> (Tensor, Tensor)",
    lambda a, upper: aten._linalg_eigh.default(a, "U" if upper else "L", True),
    edge_cases={**NAN, **_SIGNS},
    source=f"{GOLUB}, 8.3",
    flops=cubic(9),
)
def eigh(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    """Eigenvalues (real, ascending) and orthonormal eigenvectors of a symmetric or Hermitian
    matrix, of which the lower (or `upper`) half is read."""
    check_matrices(a, square=True)
    values = a.like(a.shape[:-1], dtype=REAL_OF.get(a.dtype, a.dtype))
    return values, columns(a, a.shape)


@_leaf(
    "eigvalsh(Tensor a, bool upper) -> Tensor",
    lambda a, upper: aten._linalg_eigh.default(a, "U" if upper else "L", False)[0],
    shape="(..., n), real",
    source=f"{GOLUB}, 8.3",
    flops=cubic(4),
)
def eigvalsh(a: TensorMeta, upper: bool) -> TensorMeta:
    """The eigenvalues of a symmetric or Hermitian matrix alone, ascending."""
    return eigh(a, upper)[0]  # type: ignore[no-any-return]


@_leaf(
    "eig(Tensor a) -> (Tensor, Tensor)",
    aten.linalg_eig,
    edge_cases={**NAN, "note": "order and phases are the library's choice"},
    source=f"{GOLUB}, 7.5",
    flops=cubic(25),
)
def eig(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    """Eigenvalues and eigenvectors (of norm 1, as columns) of a square matrix, complex."""
    check_matrices(a, square=True)
    dtype = COMPLEX_OF.get(a.dtype, a.dtype)
    return a.like(a.shape[:-1], dtype=dtype), _rows_on_gpu(a, a.shape, dtype)


@_leaf(
    "eigvals(Tensor a) -> Tensor",
    aten._linalg_eigvals,
    shape="(..., n), complex",
    edge_cases={**NAN, "note": "order is the library's choice"},
    source=f"{GOLUB}, 7.5",
    flops=cubic(10),
)
def eigvals(a: TensorMeta) -> TensorMeta:
    """The eigenvalues of a square matrix alone, complex."""
    return eig(a)[0]  # type: ignore[no-any-return]


@_leaf(
    "lu_factor(Tensor a, bool pivot) -> (Tensor, Tensor, Tensor)",
    aten.linalg_lu_factor_ex,
    edge_cases={**NAN, "domain": "a singular matrix has info > 0", "note": "CPU always pivots"},
    source=f"{GOLUB}, 3.4",
    flops=cubic(2 / 3),
)
def lu_factor(a: TensorMeta) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    """L (unit lower) and U (upper) in one matrix, P a = L U; pivots: row i was exchanged with row
    pivots[i] - 1, in ascending i; info: k > 0 if U[k-1, k-1] is 0."""
    m, n = check_matrices(a)
    pivots = a.like((*a.shape[:-2], least(m, n)), dtype=torch.int32)
    return columns(a, a.shape), pivots, _info(a)


def _permutation(pivots: torch.Tensor, n: Size) -> torch.Tensor:
    every = torch.arange(n, device=pivots.device).expand(*pivots.shape[:-1], n)
    rows = every.clone(memory_format=torch.contiguous_format)
    for i in range(pivots.shape[-1]):
        other = pivots[..., i : i + 1].long() - 1
        moved = rows.gather(-1, other)
        rows.scatter_(-1, other, rows[..., i : i + 1].clone())
        rows[..., i : i + 1] = moved
    return rows


@primitive(
    "pivots_to_permutation(Tensor pivots, SymInt n) -> Tensor",
    _permutation,
    tags=("linalg", "index"),
    shape="(..., n), int64",
    edge_cases={"out of range": "a pivot beyond n is an error in eager"},
    source=f"{GOLUB}, 3.4",
    differentiable=False,
    reason=_REASON,
    dtypes=frozenset({torch.int32}),
)
def pivots_to_permutation(pivots: TensorMeta, n: Size) -> TensorMeta:
    """The order in which the row exchanges of `lu_factor` leave rows 0 .. n-1: a[perm] = L U."""
    good = pivots.dtype == torch.int32 and pivots.ndim >= 1 and bool(pivots.shape[-1] <= n)
    require(good, f"{pivots.dtype}{list(pivots.shape)} for permutations of {n}")
    return pivots.like((*pivots.shape[:-1], n), dtype=torch.int64)


@_leaf(
    "matrix_exp(Tensor a) -> Tensor",
    aten.linalg_matrix_exp,
    shape="that of the operand, contiguous",
    source="Bader, Blanes and Casas, Computing the Matrix Exponential with an Optimized Taylor"
    " Polynomial Approximation, 2019",
    flops=cubic(30),
)
def matrix_exp(a: TensorMeta) -> TensorMeta:
    """The sum of a^k / k! over all k >= 0."""
    check_matrices(a, square=True)
    return a.like(a.shape)


def _check_reflectors(a: TensorMeta, tau: TensorMeta) -> None:
    _, n = check_matrices(a)
    good = tau.dtype == a.dtype and tau.shape[:-1] == a.shape[:-2] and tau.ndim == a.ndim - 1
    require(good, f"tau {tau.dtype}{list(tau.shape)} for {a.dtype}{list(a.shape)}")
    require(bool(tau.shape[-1] <= n), f"{tau.shape[-1]} reflectors in {n} columns")


@_leaf(
    "householder_product(Tensor a, Tensor tau) -> Tensor",
    aten.linalg_householder_product,
    source=f"{GOLUB}, 5.1",
)
def householder_product(a: TensorMeta, tau: TensorMeta) -> TensorMeta:
    """The first columns of H1 H2 ... Hk, Hi = I - tau[i] v v^H, v being column i of `a` below the
    diagonal, with a 1 on it."""
    _check_reflectors(a, tau)
    require(bool(a.shape[-2] >= a.shape[-1]), f"more columns in {a.shape}")
    return columns(a, a.shape)


@_leaf(
    "geqrf(Tensor a) -> (Tensor, Tensor)",
    aten.geqrf,
    edge_cases={**NAN, "note": "signs of R's diagonal are the library's choice"},
    source=f"{GOLUB}, 5.2",
)
def geqrf(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    """R above the diagonal and the Householder vectors below it, and their factors tau."""
    m, n = check_matrices(a)
    return columns(a, a.shape), a.like((*a.shape[:-2], least(m, n)))


@_leaf(
    "ormqr(Tensor a, Tensor tau, Tensor c, bool left, bool adjoint) -> Tensor",
    aten.ormqr,
    source=f"{GOLUB}, 5.1",
)
def ormqr(a: TensorMeta, tau: TensorMeta, c: TensorMeta, left: bool) -> TensorMeta:
    """Q c (`left`) or c Q, or with Q^H (`adjoint`), Q given by its Householder vectors."""
    _check_reflectors(a, tau)
    good = c.dtype == a.dtype and c.ndim == a.ndim and c.shape[:-2] == a.shape[:-2]
    good = good and bool(c.shape[-2 if left else -1] == a.shape[-2])
    require(good, f"c {c.dtype}{list(c.shape)} for reflectors {a.shape}, left={left}")
    return columns(c, c.shape)


@_leaf(
    "ldl_factor(Tensor a, bool hermitian) -> (Tensor, Tensor, Tensor)",
    aten.linalg_ldl_factor_ex,
    edge_cases={**NAN, "domain": "a singular matrix has info > 0", "note": "pivots as in LAPACK"},
    source="Bunch and Kaufman, Some Stable Methods for Calculating Inertia, 1977",
    flops=cubic(1 / 3),
)
def ldl_factor(a: TensorMeta) -> tuple[TensorMeta, TensorMeta, TensorMeta]:
    """L and block diagonal D in one matrix with a = L D L^T (`hermitian`: L^H), of which the lower
    half is read; pivots; info: k > 0 if D[k-1, k-1] is 0."""
    check_matrices(a, square=True)
    return columns(a, a.shape), a.like(a.shape[:-1], dtype=torch.int32), _info(a)


def _per_right_side(args: tuple[Any, ...], result: MetaResult) -> Size:
    a, b = args[0], args[-1] if isinstance(args[-1], TensorMeta) else args[1]
    total: Size = 2 * a.shape[-1] * b.numel()
    return total


def check_system(a: TensorMeta, b: TensorMeta, left: bool) -> None:
    """Raise unless `a x = b` (or `x a = b`) is a system with one batch shape and dtype."""
    n, _ = check_matrices(a, square=True)
    require(a.dtype == b.dtype, f"dtypes {a.dtype} and {b.dtype} differ; cast first")
    good = b.ndim == a.ndim and a.shape[:-2] == b.shape[:-2]
    good = good and bool(b.shape[-2 if left else -1] == n)
    require(good, f"a right side {b.shape} for matrices {a.shape}, left={left}")


def _check_pivots(factors: TensorMeta, pivots: TensorMeta) -> None:
    good = pivots.dtype == torch.int32 and pivots.shape == factors.shape[:-1]
    require(good, f"pivots {pivots.dtype}{list(pivots.shape)} for {factors.shape}")


_SINGULAR = {**NAN, "domain": "a zero on the diagonal gives infinities or NaN"}


@_leaf(
    "lu_solve(Tensor lu, Tensor pivots, Tensor b, bool left, bool adjoint) -> Tensor",
    aten.linalg_lu_solve,
    edge_cases=_SINGULAR,
    source=f"{GOLUB}, 3.4",
    flops=lambda args, result: 2 * args[0].shape[-1] * args[2].numel(),
)
def lu_solve(lu: TensorMeta, pivots: TensorMeta, b: TensorMeta, left: bool) -> TensorMeta:
    """x with a x = b (`left`) or x a = b, or with a^H for a (`adjoint`), from `lu_factor(a)`."""
    check_system(lu, b, left)
    _check_pivots(lu, pivots)
    return columns(b, b.shape)


@_leaf(
    "solve_triangular(Tensor a, Tensor b, bool upper, bool left, bool unitriangular) -> Tensor",
    aten.linalg_solve_triangular,
    edge_cases=_SINGULAR,
    source=f"{GOLUB}, 3.1",
    flops=_per_right_side,
)
def solve_triangular(a: TensorMeta, b: TensorMeta, left: bool) -> TensorMeta:
    """x with a x = b (`left`) or x a = b; only one half of `a` is read, and its diagonal is taken
    to be 1 if `unitriangular`."""
    check_system(a, b, left)
    return columns(b, b.shape)


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


@_leaf(
    "lstsq(Tensor a, Tensor b, float rcond, str driver) -> (Tensor, Tensor, Tensor, Tensor)",
    _lstsq,
    edge_cases={**NAN, "domain": "values below rcond times the largest count as 0"},
    source=f"{GOLUB}, 5.3 and 5.5",
    flops=cubic(4),
)
def lstsq(
    a: TensorMeta, b: TensorMeta, driver: str
) -> tuple[TensorMeta, TensorMeta, TensorMeta, TensorMeta]:
    """x of least norm among those with the least |a x - b| (`gels` takes full rank for granted), |a
    x - b|^2, the rank, and the singular values (zeros from `gels`, `gelsy`)."""
    m, n = check_matrices(a)
    require(a.dtype == b.dtype, f"dtypes {a.dtype} and {b.dtype} differ; cast first")
    good = b.ndim == a.ndim and b.shape[:-1] == a.shape[:-1]
    require(good, f"a right side {b.shape} for matrices {a.shape}")
    require(driver in ("gels", "gelsy", "gelsd", "gelss"), f"driver {driver!r}")
    batch, dtype = a.shape[:-2], REAL_OF.get(a.dtype, a.dtype)
    solution = columns(a, (*batch, n, b.shape[-1]))
    residuals = a.like((*batch, b.shape[-1]), dtype=dtype)
    rank = a.like(batch, dtype=torch.int64)
    return solution, residuals, rank, a.like((*batch, least(m, n)), dtype=dtype)


@_leaf(
    "ldl_solve(Tensor ld, Tensor pivots, Tensor b, bool hermitian) -> Tensor",
    aten.linalg_ldl_solve,
    edge_cases=_SINGULAR,
    source="Bunch and Kaufman, Some Stable Methods for Calculating Inertia, 1977",
    flops=lambda args, result: 2 * args[0].shape[-1] * args[2].numel(),
)
def ldl_solve(ld: TensorMeta, pivots: TensorMeta, b: TensorMeta) -> TensorMeta:
    """x with a x = b, from `ldl_factor(a)`."""
    check_system(ld, b, True)
    _check_pivots(ld, pivots)
    return columns(b, b.shape)
