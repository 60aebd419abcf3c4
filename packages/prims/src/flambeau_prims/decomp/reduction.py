"""Decompositions of reductions, and of assertions on their results.

In: ATen's reductions, with optional dims, keepdim and dtype; conditions. Out: the reduction prims,
`assert_true`.
Invariant: half precision is summed in float32; integers and bool sum to int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, canonical_dims, keep_dims, p
from flambeau_prims.decomp.linalg.solve import diagonal_of
from flambeau_prims.decomp.views.view import sliced
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.promotion import compute_dtype, is_inexact

aten = torch.ops.aten
Dims = int | Sequence[int] | None


def reduced(
    op: Callable[[Tensor, list[int]], Tensor], x: Tensor, dims: Dims, keepdim: bool
) -> Tensor:
    """`op` over `dims` (None: all), with size-1 dimensions kept if `keepdim`."""
    where = canonical_dims(dims, x.ndim)
    return keep_dims(op(x, where), x.shape, where, keepdim)


def summed_dtype(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """The dtype of a sum or product: the one given, else int64 for integers and bool."""
    return dtype or (x.dtype if is_inexact(x.dtype) else torch.int64)


@decomposition(aten.sum.default, aten.sum.dim_IntList)
def sum_(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    return _folded(p.sum, x, dim, keepdim, dtype)


def _folded(
    op: Callable[..., Tensor], x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None
) -> Tensor:
    result = summed_dtype(x, dtype)
    wide = compute_dtype(result)
    if dtype is not None:  # eager truncates, or rounds, before it adds
        x = e.cast(x, dtype)
    return e.cast(reduced(op, e.cast(x, wide), dim, keepdim), result)


@decomposition(aten.nansum.default)
def nansum(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    if x.dtype.is_floating_point:
        x = e.where(p.isnan(x), 0.0, x)
    return _folded(p.sum, x, dim, keepdim, dtype)


@decomposition(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def count_nonzero(x: Tensor, dim: Dims = None) -> Tensor:
    return reduced(p.sum, e.cast(e.ne(x, 0), torch.int64), dim, False)


@decomposition(aten.trace.default)
def trace(x: Tensor) -> Tensor:
    if x.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {x.ndim}")
    return _folded(p.sum, diagonal_of(x), None, False, None)


@decomposition(aten.mean.default, aten.mean.dim)
def mean(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    result = dtype or x.dtype
    if not is_inexact(result):
        return NotImplemented
    wide = e.cast(e.cast(x, result), compute_dtype(result))
    number = e.count(x.shape, canonical_dims(dim, x.ndim))
    if result.is_complex and x.device.type != "cpu":  # the CPU divides by a complex number
        # elsewhere the mean of nothing is a real NaN
        imaginary = reduced(p.sum, p.imag(wide), dim, keepdim)
        if number != 0:
            imaginary = e.div(imaginary, e.as_number(number))
        return e.cast(p.complex(mean(p.real(wide), dim, keepdim), imaginary), result)
    total = reduced(p.sum, wide, dim, keepdim)
    return e.cast(e.div(total, e.as_number(number)), result)


@decomposition(aten.prod.default)
def prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    return _product(x, None, False, dtype)


@decomposition(aten.prod.dim_int)
def prod_dim(
    x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    return _product(x, dim, keepdim, dtype)


def _product(x: Tensor, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Tensor:
    """Of complex numbers one product that begins with 1, whose imaginary zero makes NaN of
    infinity: also of a single one, and once, whatever the dimensions."""
    if summed_dtype(x, dtype).is_complex and (dim is None or not x.ndim):
        return _folded(p.prod, p.reshape(x, [x.numel()]), 0, False, dtype)
    return _folded(p.prod, x, dim, keepdim, dtype)


def _extreme(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
        if e.count(x.shape, canonical_dims(dim, x.ndim)) == 0:
            return NotImplemented  # eager has the message
        return reduced(op, x, dim, keepdim)

    return call


decomposition(aten.amax.default, aten.max.default)(_extreme(p.amax))
decomposition(aten.amin.default, aten.min.default)(_extreme(p.amin))


@decomposition(aten.aminmax.default, aten._aminmax.default)
def aminmax(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    if e.count(x.shape, canonical_dims(dim, x.ndim)) == 0:
        return NotImplemented
    return reduced(p.amin, x, dim, keepdim), reduced(p.amax, x, dim, keepdim)


@decomposition(aten._aminmax.dim)
def aminmax_dim(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    return aminmax(x, dim=dim, keepdim=keepdim)


def _countable(x: Tensor) -> Tensor:
    """Bool as integers, in which there is a first largest one."""
    return e.cast(x, torch.uint8) if x.dtype == torch.bool else x


def _extreme_with_position(
    op: Callable[..., Tensor], position: Callable[..., Tensor]
) -> Callable[..., Any]:
    def call(x: Tensor, dim: int, keepdim: bool = False) -> Any:
        where = canonical_dims(dim, x.ndim)
        if x.ndim == 0:
            return e.first_of_one(x)
        if x.shape[where[0]] == 0:
            return NotImplemented
        at = position(_countable(x), where[0])
        return tuple(keep_dims(part, x.shape, where, keepdim) for part in (op(x, where), at))

    return call


decomposition(aten.max.dim)(_extreme_with_position(p.amax, p.argmax))
decomposition(aten.min.dim)(_extreme_with_position(p.amin, p.argmin))


def _position(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        where = canonical_dims(dim, x.ndim)
        if e.count(x.shape, where) == 0:
            return NotImplemented
        if x.ndim == 0:
            return e.filled(x, [], 0, torch.int64)
        if dim is None:
            found = op(p.reshape(x, [x.numel()]), 0)
            return p.reshape(found, [1] * x.ndim) if keepdim else found
        return keep_dims(op(x, where[0]), x.shape, where, keepdim)

    return call


decomposition(aten.argmax.default)(_position(p.argmax))
decomposition(aten.argmin.default)(_position(p.argmin))


def _truth(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Any:
        result = torch.uint8 if x.dtype == torch.uint8 else torch.bool
        if dim is not None and not isinstance(dim, int) and len(dim) == 0:
            # here an empty list means nothing, elsewhere everything; the result is row-major
            return p.clone(e.cast(e.cast(x, torch.bool), result))
        return e.cast(reduced(op, e.cast(x, torch.bool), dim, keepdim), result)

    return call


decomposition(aten.any.default, aten.any.dim, aten.any.dims)(_truth(p.any))
decomposition(aten.all.default, aten.all.dim, aten.all.dims)(_truth(p.all))


@decomposition(aten._is_all_true.default)
def is_all_true(x: Tensor) -> Tensor:
    return reduced(p.all, x, None, False)


@decomposition(aten._is_any_true.default)
def is_any_true(x: Tensor) -> Tensor:
    return reduced(p.any, x, None, False)


def moments(x: Tensor, dims: list[int], correction: float) -> tuple[Tensor, Tensor]:
    """Variance and mean over `dims` in the dtype of `x`, which is float32 or float64."""
    variance, average = p.var_mean(x, dims, correction=float(correction))
    return variance, average


def _spread_of(
    x: Tensor, dim: Dims, correction: Number | None, keepdim: bool
) -> tuple[Tensor, Tensor]:
    where = canonical_dims(dim, x.ndim)
    wide = e.widen(x)
    variance, average = moments(wide, where, 1.0 if correction is None else float(correction))  # type: ignore[arg-type]
    if not e.is_one(e.count(x.shape, where)):
        # eager's mean goes on by differences, and there is none to an infinite mean
        average = e.where(p.isinf(average), _infinite_mean(wide, where), average)
    return (
        keep_dims(variance, x.shape, where, keepdim),
        keep_dims(average, x.shape, where, keepdim),
    )


def _infinite_mean(x: Tensor, dims: list[int]) -> Any:
    """What eager's mean of infinite elements is: no number, but for one that comes last on a CPU,
    which takes elements in their order."""
    sizes = [x.shape[d] for d in dims]
    if x.device.type != "cpu" or any(isinstance(n, int) and n == 0 for n in sizes):
        return math.nan
    last = x
    for d in dims:
        last = sliced(last, d, x.shape[d] - 1, x.shape[d])
    last = p.reshape(last, [n for d, n in enumerate(x.shape) if d not in dims])
    alone = e.eq(p.sum(e.cast(p.isinf(x), torch.int64), dims), 1)
    return e.where(p.logical_and(alone, p.isinf(last)), last, math.nan)


def _by_its_mean(x: Tensor, result: Tensor) -> bool:
    """Whether eager computes the spread of all elements by their mean: one float on a CPU."""
    wide = x.dtype == compute_dtype(x.dtype)
    return x.device.type == "cpu" and wide and e.is_one(e.count(result.shape, range(result.ndim)))


def _around(x: Tensor, middle: Tensor, variance: Tensor, correction: Number | None) -> Tensor:
    """The variance of all elements by the squares of their distances from a mean, in whose rounding
    equal numbers differ from it; by the `variance` where a size is left open."""
    size = e.count(x.shape, range(x.ndim))
    if isinstance(size, int) and size == 0:
        return variance  # whatever the correction, it is no number
    if not isinstance(size, int):
        kept = p.logical_or(p.isfinite(middle), p.isnan(variance))
        return p.where(kept, variance, p.mul(middle, middle))
    away = p.sub(x, e.expand(p.reshape(middle, []), x.shape))
    squares = p.reshape(p.sum(p.mul(away, away), list(range(x.ndim))), list(variance.shape))
    divisor = max(float(size) - (1.0 if correction is None else float(correction)), 0.0)  # type: ignore[arg-type]
    return e.div(squares, divisor)


def _register_spread(op: Any, root: bool, with_mean: bool) -> None:
    def call(
        x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
    ) -> Any:
        if not is_inexact(x.dtype):
            return NotImplemented  # eager has the message
        if x.dtype.is_complex:  # the variances of both parts together
            parts = [_spread_of(y, dim, correction, keepdim) for y in (p.real(x), p.imag(x))]
            variance, average = (op(*pair) for op, pair in zip((p.add, p.complex), zip(*parts)))
        else:
            # eager's kernels for a CPU go on in float64, the root too: squares do not overflow
            inner = e.cast(x, torch.float64) if x.device.type == "cpu" else x
            variance, average = _spread_of(inner, dim, correction, keepdim)
            average = e.cast(average, x.dtype)
            if not with_mean and _by_its_mean(x, average):
                # eager's mean for it is of the tensor's dtype, and the rest in float64
                middle = e.cast(mean(x, dim, keepdim), variance.dtype)
                variance = _around(inner, middle, variance, correction)
        first = p.sqrt(variance) if root else variance
        first = first if x.dtype.is_complex else e.cast(first, x.dtype)
        return (first, average) if with_mean else first

    decomposition(op)(call)


_register_spread(aten.var.correction, root=False, with_mean=False)
_register_spread(aten.std.correction, root=True, with_mean=False)
_register_spread(aten.var_mean.correction, root=False, with_mean=True)
_register_spread(aten.std_mean.correction, root=True, with_mean=True)


@decomposition(aten._assert_async.default, aten._assert_async.msg)
def assert_async(x: Tensor, assert_msg: str = "Expected Tensor with single nonzero value") -> None:
    p.assert_true(p.reshape(e.cast(x, torch.bool), []), assert_msg)


@decomposition(aten._functional_assert_async.msg)
def functional_assert_async(x: Tensor, assert_msg: str, dep_token: Tensor) -> Any:
    assert_async(x, assert_msg)
    return p.clone(dep_token)
