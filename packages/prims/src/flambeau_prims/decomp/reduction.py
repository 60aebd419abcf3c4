"""Reductions and scans.

In: ATen's reductions, with optional dims, keepdim and dtype. Out: the reduction prims.
Invariant: half precision is summed in float32; integers and bool sum to int64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, canonical, canonical_dims, keep_dims, p
from flambeau_prims.promotion import compute_dtype, is_inexact
from flambeau_prims.table import decomposition

aten = torch.ops.aten
Dims = int | Sequence[int] | None


def reduced(
    op: Callable[[Tensor, list[int]], Tensor], x: Tensor, dims: Dims, keepdim: bool
) -> Tensor:
    """`op` over `dims` (None: all), with size-1 dimensions left behind if `keepdim`."""
    where = canonical_dims(dims, x.ndim)
    return keep_dims(op(x, where), x.shape, where, keepdim)


def _summed_dtype(x: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (x.dtype if is_inexact(x.dtype) else torch.int64)


@decomposition(aten.sum.default, aten.sum.dim_IntList)
def sum_(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    result = _summed_dtype(x, dtype)
    return e.cast(reduced(p.sum, e.cast(x, compute_dtype(result)), dim, keepdim), result)


@decomposition(aten.mean.default, aten.mean.dim)
def mean(
    x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    result = dtype or x.dtype
    if not is_inexact(result):
        return NotImplemented
    wide = e.cast(x, compute_dtype(result))
    total = reduced(p.sum, wide, dim, keepdim)
    number = e.count(x.shape, canonical_dims(dim, x.ndim))
    return e.cast(e.div(total, float(number)), result)


@decomposition(aten.prod.default)
def prod(x: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    result = _summed_dtype(x, dtype)
    return e.cast(reduced(p.prod, e.cast(x, compute_dtype(result)), None, False), result)


@decomposition(aten.prod.dim_int)
def prod_dim(
    x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    result = _summed_dtype(x, dtype)
    return e.cast(reduced(p.prod, e.cast(x, compute_dtype(result)), dim, keepdim), result)


def _extreme(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: Dims = (), keepdim: bool = False) -> Any:
        if e.count(x.shape, canonical_dims(dim, x.ndim)) == 0:
            return NotImplemented  # eager has the message
        return e.cast(reduced(op, e.widen(x), dim, keepdim), x.dtype)

    return call


decomposition(aten.amax.default, aten.max.default)(_extreme(p.amax))
decomposition(aten.amin.default, aten.min.default)(_extreme(p.amin))


def _extreme_with_position(
    op: Callable[..., Tensor], position: Callable[..., Tensor]
) -> Callable[..., Any]:
    def call(x: Tensor, dim: int, keepdim: bool = False) -> Any:
        where = canonical_dims(dim, x.ndim)
        if x.ndim == 0 or x.shape[where[0]] == 0 or x.dtype == torch.bool:
            return NotImplemented
        wide = e.widen(x)
        values = e.cast(keep_dims(op(wide, where), x.shape, where, keepdim), x.dtype)
        return values, keep_dims(position(wide, where[0]), x.shape, where, keepdim)

    return call


decomposition(aten.max.dim)(_extreme_with_position(p.amax, p.argmax))
decomposition(aten.min.dim)(_extreme_with_position(p.amin, p.argmin))


def _position(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        where = canonical_dims(dim, x.ndim)
        if x.ndim == 0 or e.count(x.shape, where) == 0:
            return NotImplemented
        wide = e.widen(x)
        if dim is None:
            found = op(p.reshape(wide, [x.numel()]), 0)
            return p.reshape(found, [1] * x.ndim) if keepdim else found
        return keep_dims(op(wide, where[0]), x.shape, where, keepdim)

    return call


decomposition(aten.argmax.default)(_position(p.argmax))
decomposition(aten.argmin.default)(_position(p.argmin))


def _truth(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Any:
        if dim is not None and not isinstance(dim, int) and len(dim) == 0:
            return NotImplemented  # here an empty list means nothing, elsewhere everything
        result = torch.uint8 if x.dtype == torch.uint8 else torch.bool
        return e.cast(reduced(op, e.cast(x, torch.bool), dim, keepdim), result)

    return call


decomposition(aten.any.default, aten.any.dim, aten.any.dims)(_truth(p.any))
decomposition(aten.all.default, aten.all.dim, aten.all.dims)(_truth(p.all))


def moments(x: Tensor, dims: list[int], correction: float) -> tuple[Tensor, Tensor]:
    """Variance and mean over `dims` in the dtype of `x`, which is float32 or float64."""
    variance, average = p.var_mean(x, dims, correction=float(correction))
    return variance, average


def _spread_of(
    x: Tensor, dim: Dims, correction: Number | None, keepdim: bool
) -> tuple[Tensor, Tensor, list[int]]:
    where = canonical_dims(dim, x.ndim)
    wide = e.widen(x)
    variance, average = moments(wide, where, 1.0 if correction is None else float(correction))  # type: ignore[arg-type]
    return (
        keep_dims(variance, x.shape, where, keepdim),
        keep_dims(average, x.shape, where, keepdim),
        where,
    )


def _register_spread(op: Any, root: bool, with_mean: bool) -> None:
    def call(
        x: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
    ) -> Any:
        if not x.dtype.is_floating_point:
            return NotImplemented
        variance, average, _ = _spread_of(x, dim, correction, keepdim)
        first = e.cast(p.sqrt(variance) if root else variance, x.dtype)
        return (first, e.cast(average, x.dtype)) if with_mean else first

    decomposition(op)(call)


_register_spread(aten.var.correction, root=False, with_mean=False)
_register_spread(aten.std.correction, root=True, with_mean=False)
_register_spread(aten.var_mean.correction, root=False, with_mean=True)
_register_spread(aten.std_mean.correction, root=True, with_mean=True)


@decomposition(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    result = dtype or x.dtype
    if not result.is_floating_point or isinstance(ord, complex):
        return NotImplemented
    where = canonical_dims(dim, x.ndim)
    wide = e.cast(x, compute_dtype(result))
    infinite = ord in (float("inf"), float("-inf"))
    if infinite and e.count(x.shape, where) == 0:
        return NotImplemented
    if infinite:
        row = (p.amax if ord > 0 else p.amin)(p.abs(wide), where)
    elif ord == 0:
        row = p.sum(e.cast(e.ne(wide, 0.0), wide.dtype), where)
    elif ord == 1:
        row = p.sum(p.abs(wide), where)
    elif ord == 2:
        row = p.sqrt(p.sum(p.mul(wide, wide), where))
    else:
        powers = p.pow(*e.meet(p.abs(wide), float(ord)))
        total = p.sum(powers, where)
        row = p.pow(*e.meet(total, 1.0 / float(ord)))
    return e.cast(keep_dims(row, x.shape, where, keepdim), result)


def _norm(x: Tensor, p: Number | None, dim: Dims, keepdim: bool, dtype: torch.dtype | None) -> Any:
    return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype=dtype)


@decomposition(aten.norm.Scalar)
def norm_all(x: Tensor, p: Number = 2) -> Any:
    return _norm(x, p, None, False, None)


@decomposition(aten.norm.ScalarOpt_dim)
def norm_dim(x: Tensor, p: Number | None, dim: Sequence[int], keepdim: bool = False) -> Any:
    return _norm(x, p, dim, keepdim, None)


@decomposition(aten.norm.ScalarOpt_dim_dtype)
def norm_dim_dtype(
    x: Tensor, p: Number | None, dim: Sequence[int], keepdim: bool, *, dtype: torch.dtype
) -> Any:
    return _norm(x, p, dim, keepdim, dtype)


def _running(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        result = _summed_dtype(x, dtype)
        if x.ndim == 0:
            return p.clone(e.cast(x, result))
        wide = e.cast(x, compute_dtype(result))
        return e.cast(op(wide, canonical(dim, x.ndim)), result)

    return call


decomposition(aten.cumsum.default)(_running(p.cumsum))
decomposition(aten.cumprod.default)(_running(p.cumprod))


@decomposition(aten.sort.default)
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return sort_stable(x, stable=False, dim=dim, descending=descending)


@decomposition(aten.sort.stable)
def sort_stable(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    if x.ndim == 0:
        return NotImplemented
    return tuple(p.sort(x, canonical(dim, x.ndim), descending, bool(stable)))


@decomposition(aten.topk.default)
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if x.ndim == 0:
        return NotImplemented
    return tuple(p.topk(x, k, canonical(dim, x.ndim), largest, sorted))
