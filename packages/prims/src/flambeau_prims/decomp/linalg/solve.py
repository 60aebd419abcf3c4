"""Decompositions of linear systems, inverses and determinants.

In: matrices in the last two dimensions, right sides, factorizations. Out: the dialect's
factorizations and triangular solves.
Invariant: the factors are results that backward formulas read, so where eager factorizes the
transposed matrix (determinants do, to save a copy) so does this.

Decompositions of matrix factorisations. In: matrices in the last two dimensions, batched. Out: the
linear algebra prims. Invariant: a failure that eager raises about is raised here too, through
`check_factorization`. Building blocks on batched matrices. In: tensors with matrices in the last
two dimensions. Out: prims on them. Invariant: nothing is registered here; a batch is broadcast only
by `batched`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, p
from flambeau_prims.decomp.views.view import sliced, unsqueezed
from flambeau_prims.decomposition_table import decomposition, same
from flambeau_prims.ops.complex import REAL_OF
from flambeau_prims.ops.pointwise import WIDE_FLOATS
from flambeau_prims.promotion import broadcast_shapes, same_shape
from flambeau_prims.shape_rules import Size, product

aten = torch.ops.aten


def transposed(x: Tensor) -> Tensor:
    """A view with the last two dimensions exchanged."""
    n = x.ndim
    return p.permute(x, [*range(n - 2), n - 1, n - 2])


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose; of real matrices a view."""
    turned = transposed(x)
    return p.conj(turned) if x.dtype.is_complex else turned


def diagonal_of(x: Tensor) -> Tensor:
    """The main diagonals, as a view."""
    return p.diagonal(x, 0, x.ndim - 2, x.ndim - 1)


def difference(rows: Size, columns: Size, device: torch.device) -> Tensor:
    """An int64 matrix of column minus row."""
    row = p.broadcast_in_dim(e.counted(rows, device), [rows, columns], [0])
    column = p.broadcast_in_dim(e.counted(columns, device), [rows, columns], [1])
    return p.sub(column, row)


def identity(like: Tensor) -> Tensor:
    """Identity matrices of the shape of `like`, which holds square ones."""
    n = like.shape[-1]
    one = e.cast(e.eq(difference(n, n, like.device), 0), like.dtype)
    return e.expand(one, like.shape)


def lower(x: Tensor, unit: bool = False) -> Tensor:
    """The lower triangle, zeros above; with `unit` ones on the diagonal."""
    place = difference(x.shape[-2], x.shape[-1], x.device)
    kept = e.where(e.expand(e.lt(place, 0) if unit else e.le(place, 0), x.shape), x, 0)
    if unit:
        kept = e.where(e.expand(e.eq(place, 0), x.shape), 1, kept)
    return e.in_format(kept, torch.contiguous_format)


def upper(x: Tensor) -> Tensor:
    """The upper triangle, zeros below."""
    place = difference(x.shape[-2], x.shape[-1], x.device)
    return e.in_format(e.where(e.expand(e.ge(place, 0), x.shape), x, 0), torch.contiguous_format)


def batched(*xs: Tensor) -> tuple[Tensor, ...]:
    """The matrices with their leading dimensions broadcast to common ones."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in xs))
    return tuple(e.expand(x, [*batch, *x.shape[-2:]]) for x in xs)


def product_of(a: Tensor, b: Tensor) -> Tensor:
    """Products of matrices in equal batches."""
    if a.ndim == 2:
        return p.mm(a, b)
    batch = list(a.shape[:-2])
    count = product(batch)
    flat = [p.reshape(x, [count, *x.shape[-2:]]) for x in (a, b)]
    return p.reshape(p.bmm(*flat), [*batch, a.shape[-2], b.shape[-1]])


def as_columns(x: Tensor) -> Tensor:
    """A copy in matrices that are stored column by column; without elements as if rows were one."""
    n = x.ndim
    if e.no_elements(x.shape):
        return transposed(p.clone(transposed(x)))
    return p.clone(x, order=[*range(n - 2), n - 1, n - 2])


same(aten.linalg_eig.default, "eig")
same(aten._linalg_eigvals.default, "eigvals")
same(aten.linalg_householder_product.default, "householder_product")
same(aten.geqrf.default, "geqrf")
same(aten.ormqr.default, "ormqr")


@decomposition(aten._linalg_check_errors.default)
def check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    p.check_factorization(info, api_name, is_matrix)


@decomposition(aten.linalg_cholesky_ex.default)
def cholesky_ex(x: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor, info = p.cholesky(x, upper)
    if check_errors:
        p.check_factorization(info, "linalg.cholesky_ex", x.ndim == 2)
    return factor, info


@decomposition(aten.cholesky.default)
def cholesky(x: Tensor, upper: bool = False) -> Any:
    factor, info = p.cholesky(x, upper)
    p.check_factorization(info, "cholesky", x.ndim == 2)
    return e.in_format(factor, torch.contiguous_format) if e.no_elements(x.shape) else factor


@decomposition(aten.linalg_qr.default)
def qr(x: Tensor, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode {mode!r}")
    q, r = p.qr(x, mode == "complete")
    return (e.filled(x, [0]) if mode == "r" else q), r


@decomposition(aten._linalg_svd.default)
def svd(
    x: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Any:
    if driver is not None:
        return NotImplemented  # a choice among the libraries of one kind of device
    if not compute_uv:
        return e.filled(x, [0]), p.svdvals(x), e.filled(x, [0])
    return tuple(p.svd(x, full_matrices))


@decomposition(aten._linalg_eigh.default)
def eigh(x: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:
    upper = UPLO.upper() == "U"
    if compute_v:
        return tuple(p.eigh(x, upper))
    return p.eigvalsh(x, upper), e.filled(x, [0])


@decomposition(aten.linalg_lu_factor_ex.default)
def lu_factor_ex(x: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, info = p.lu_factor(x, pivot)
    if check_errors:
        p.check_factorization(info, "torch.linalg.lu_factor_ex", x.ndim == 2)
    return lu, pivots, info


@decomposition(aten.linalg_lu.default)
def lu(x: Tensor, *, pivot: bool = True) -> Any:
    factors, pivots, _ = p.lu_factor(x, pivot)
    order, low, high = unpack(factors, pivots, True, pivot)
    return order, low, high


@decomposition(aten.lu_unpack.default)
def unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    m, n = factors.shape[-2], factors.shape[-1]
    k = m if m < n else n
    if list(pivots.shape) != [*factors.shape[:-2], k]:
        return NotImplemented  # eager's kernel repeats, or drops, what is left
    order, low, high = e.filled(factors, [0]), e.filled(factors, [0]), e.filled(factors, [0])
    if unpack_data:
        low, high = lower(_corner(factors, m, k), unit=True), upper(_corner(factors, k, n))
    if unpack_pivots:
        # column j of P has its 1 in the row that came to stand at j
        source = p.pivots_to_permutation(pivots, m)
        shape = [*source.shape[:-1], m, m]
        rows = e.counted(m, source.device)
        rows = p.broadcast_in_dim(rows, shape, [len(shape) - 2])
        kept = [*range(source.ndim - 1), len(shape) - 1]
        order = e.cast(p.eq(p.broadcast_in_dim(source, shape, kept), rows), factors.dtype)
    return order, low, high


def _corner(x: Tensor, rows: Size, columns: Size) -> Tensor:
    stop = [*x.shape[:-2], rows, columns]
    return p.slice(x, [0] * x.ndim, stop, [1] * x.ndim)


@decomposition(aten.linalg_ldl_factor_ex.default)
def ldl_factor_ex(x: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    factors, pivots, info = p.ldl_factor(x, hermitian)
    if check_errors:
        p.check_factorization(info, "torch.linalg.ldl_factor_ex", x.ndim == 2)
    return factors, pivots, info


@decomposition(aten.linalg_matrix_exp.default)
def matrix_exp(x: Tensor) -> Tensor:
    return e.cast(p.matrix_exp(e.widen(x)), x.dtype)


_TAKEN = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def _by_cholesky(b: Tensor, factor: Tensor, upper: bool) -> Tensor:
    low = adjoint(factor) if upper else factor
    half = p.solve_triangular(low, b, False, True, False)
    return p.solve_triangular(adjoint(low), half, True, True, False)


@decomposition(aten.cholesky_solve.default)
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    b, factor = batched(b, factor)
    return _by_cholesky(b, factor, upper)


@decomposition(aten._cholesky_solve_helper.default)
def cholesky_solve_helper(b: Tensor, factor: Tensor, upper: bool) -> Tensor:
    return _by_cholesky(b, factor, upper)


@decomposition(aten.cholesky_inverse.default)
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Any:
    square = factor.ndim > 1 and same_shape(factor.shape[-1:], factor.shape[-2:-1])
    if not square or factor.dtype not in _TAKEN:
        return NotImplemented  # eager has the message
    if factor.is_complex():  # LAPACK reads the diagonal as real in a part of its steps
        return p.cholesky_inverse(factor, upper)
    return _by_cholesky(identity(factor), factor, upper)


@decomposition(aten.linalg_solve_triangular.default)
def solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    a, b = batched(a, b)
    return p.solve_triangular(a, b, upper, left, unitriangular)


@decomposition(aten.triangular_solve.default)
def triangular_solve(
    b: Tensor, a: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    b, a = batched(b, a)
    turned = transposed(a) if transpose else a
    x = p.solve_triangular(turned, b, upper != transpose, True, unitriangular)
    return x, as_columns(a)


def _solved(factors: Tensor, pivots: Tensor, b: Tensor, left: bool, adjoint: bool) -> Tensor:
    factors, b = batched(factors, b)
    rows = e.expand(pivots, factors.shape[:-1])
    x = p.lu_solve(factors, rows, b, left, adjoint)
    return x if left else p.clone(x)  # eager solves the transposed system: row by row in memory


@decomposition(aten.linalg_lu_solve.default)
def lu_solve(
    factors: Tensor, pivots: Tensor, b: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    return _solved(factors, pivots, b, left, adjoint)


@decomposition(aten._linalg_solve_ex.default)
def solve_ex(a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    factors, pivots, info = p.lu_factor(a, True)
    if check_errors:
        p.check_factorization(info, "torch.linalg.solve_ex", a.ndim == 2)
    is_vector = b.ndim == 1 or (a.ndim - 1 == b.ndim and a.shape[:-1] == b.shape)
    right = unsqueezed(b, b.ndim) if is_vector else b
    x = _solved(factors, pivots, right, left, False)
    if is_vector:
        x = p.reshape(x, list(x.shape[:-1]))
        x = as_columns(x) if x.ndim > 1 else x  # eager takes the batch of vectors for a matrix
    return x, factors, pivots, info


@decomposition(aten.linalg_inv_ex.default)
def inv_ex(a: Tensor, *, check_errors: bool = False) -> Any:
    factors, pivots, info = p.lu_factor(a, True)
    if check_errors:
        p.check_factorization(info, "linalg.inv_ex", a.ndim == 2)
    return p.lu_solve(factors, pivots, identity(a), True, False), info


def _parity(pivots: Tensor, dtype: torch.dtype) -> Tensor:
    """The determinant of the row exchanges: 1 or -1."""
    n = pivots.shape[-1]
    at_home = p.iota(n, 1, 1, dtype=pivots.dtype, device=pivots.device)
    moved = p.ne(pivots, e.expand(at_home, pivots.shape))
    exchanges = p.sum(e.cast(moved, torch.int64), [pivots.ndim - 1])
    odd = p.remainder(*e.meet(exchanges, 2))
    return e.sub(1.0, e.mul(e.cast(odd, dtype), 2.0))


def _factorized(a: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of `a`, or of its transpose where that is what eager does."""
    turn = e.contiguous(a) and not a.dtype.is_complex
    factors, pivots, _ = p.lu_factor(transposed(a) if turn else a, True)
    return factors, pivots


@decomposition(aten._linalg_det.default)
def det(a: Tensor) -> Any:
    factors, pivots = _factorized(a)
    diagonal = diagonal_of(factors)
    sign = _parity(pivots, a.dtype)
    return p.mul(p.prod(diagonal, [diagonal.ndim - 1]), sign), factors, pivots


@decomposition(aten._linalg_slogdet.default)
def slogdet(a: Tensor) -> Any:
    factors, pivots = _factorized(a)
    diagonal = diagonal_of(factors)
    last = [diagonal.ndim - 1]
    size = p.abs(diagonal)
    sign = p.mul(p.prod(p.sign(diagonal), last), _parity(pivots, a.dtype))
    return sign, p.sum(p.log(size), last), factors, pivots


@decomposition(aten.linalg_ldl_solve.default)
def ldl_solve(factors: Tensor, pivots: Tensor, b: Tensor, *, hermitian: bool = False) -> Tensor:
    factors, b = batched(factors, b)
    return p.ldl_solve(factors, e.expand(pivots, factors.shape[:-1]), b, hermitian)


@decomposition(aten.linalg_lstsq.default)
def lstsq(a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    m, n = a.shape[-2], a.shape[-1]
    name = driver or ("gelsy" if a.device.type == "cpu" else "gels")
    if a.numel() == 0 or b.numel() == 0 or b.ndim != a.ndim:
        return NotImplemented
    if name in ("gelsd", "gelss") and m > n:
        return NotImplemented  # eager leaves the residuals out if a rank is not full
    if rcond is None:
        rcond = torch.finfo(a.dtype).eps * float(max(m, n))
    a, b = batched(a, b)
    x, residuals, rank, values = p.lstsq(a, b, rcond, name)
    real = REAL_OF.get(a.dtype, a.dtype)
    if m <= n or name == "gelsy":
        residuals = e.filled(a, [0], 0, real)
    if name == "gels":
        rank = e.filled(a, [0], 0, torch.int64)
    if name in ("gels", "gelsy"):
        values = e.filled(a, [0], 0, real)
    if m > n:  # the first rows of those of the right side
        more = p.pad(x, [0] * x.ndim, [*[0] * (x.ndim - 2), m - n, 0], 0)
        x = sliced(as_columns(more), x.ndim - 2, 0, n)
    return x, residuals, rank, values


def _scaled(x: Tensor, row: Tensor, dim: int) -> Tensor:
    """The matrices with their rows (dim -2) or columns (dim -1) multiplied by numbers."""
    ndim = x.ndim
    dims = [d for d in range(ndim) if d != ndim + (-1 if dim == -2 else -2)]
    return p.mul(x, p.broadcast_in_dim(e.cast(row, x.dtype), list(x.shape), dims))


@decomposition(aten.linalg_pinv.atol_rtol_tensor)
def pinv(
    a: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Any:
    m, n = a.shape[-2], a.shape[-1]
    if a.numel() == 0:
        return e.filled(a, [*a.shape[:-2], n, m])
    batch = a.shape[:-2]
    given = [tolerance.shape for tolerance in (atol, rtol) if tolerance is not None]
    if tuple(broadcast_shapes(batch, *given)) != tuple(batch):
        return NotImplemented  # each matrix is inverted by several tolerances
    real = REAL_OF.get(a.dtype, a.dtype)
    if rtol is None:
        rtol = p.full([], torch.finfo(real).eps * float(max(m, n)), dtype=real, device=a.device)
        if atol is not None:
            rtol = e.where(e.gt(atol, 0.0), 0.0, rtol)
    if hermitian:
        signed, right = p.eigh(a, False)
        sizes, left = p.abs(signed), right
        largest = p.amax(sizes, [sizes.ndim - 1])
    else:
        left, sizes, right_h = p.svd(a, False)
        signed, right = sizes, adjoint(right_h)
        largest = p.amax(sizes, [sizes.ndim - 1])
    tolerance = e.mul(e.cast(rtol, real), largest)
    if atol is not None:
        tolerance = e.maximum(e.cast(atol, real), tolerance)
    kept = e.gt(sizes, unsqueezed(tolerance, tolerance.ndim))
    inverse = e.where(kept, p.reciprocal(signed), 0.0)
    return product_of(_scaled(right, inverse, -1), adjoint(left))


@decomposition(aten.linalg_cross.default)
def cross(a: Tensor, b: Tensor, *, dim: int = -1) -> Any:
    if a.ndim != b.ndim or any(x.shape[canonical(dim, x.ndim)] != 3 for x in (a, b)):
        return NotImplemented  # eager has the message
    shape = broadcast_shapes(a.shape, b.shape)
    where = canonical(dim, len(shape))
    x, y = (e.expand(t, shape) for t in (a, b))

    def rolled(t: Tensor, by: int) -> Tensor:
        return p.cat([sliced(t, where, by, 3), sliced(t, where, 0, by)], where)

    first, other = (p.mul(rolled(x, i), rolled(y, 3 - i)) for i in (1, 2))
    if x.dtype in WIDE_FLOATS:  # a difference of products: eager's kernels contract the first
        result = p.fma(rolled(x, 1), rolled(y, 2), p.neg(other))
    else:
        result = p.sub(first, other)
    return e.in_format(result, torch.contiguous_format)
