"""Decompositions of gather, scatter and scatter reductions.

In: ATen's overloads, 0-d tensors among them. Out: `gather` and the scatters.
Invariant: half precision is combined in float32; what is not to be included starts from the
neutral element of its reduction.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, canonical, p
from flambeau_prims.decomp.indexing.indexing import (
    IN_SELF,
    lifted,
    positions,
    require_slices,
    within,
)
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.promotion import compute_dtype

aten = torch.ops.aten

_MULTIPLY_OR_ADD = {"add": "sum", "multiply": "prod"}


def _same_dtype(name: str, x: Tensor, src: Tensor) -> None:
    if src.dtype != x.dtype:
        raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")


@decomposition(aten.gather.default)
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    if index.numel() == 0:
        return e.filled(x, index.shape)
    a, places = lifted(x, positions("gather", index))
    found = p.gather(a, canonical(dim, x.ndim), places)
    return p.reshape(found, list(index.shape)) if index.ndim == 0 else found


def _scattered(op: Any, x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    if index.numel() == 0:
        return p.clone(x)
    a, places, values = lifted(x, positions("scatter", index), src)
    result = op(a, canonical(dim, x.ndim), places, values)
    return p.reshape(result, list(x.shape)) if x.ndim == 0 else result


@decomposition(aten.scatter.src)
def scatter_src(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    _same_dtype("scatter", x, src)
    return _scattered(p.scatter, x, dim, index, src)


@decomposition(aten.scatter.value)
def scatter_value(x: Tensor, dim: int, index: Tensor, value: Number) -> Any:
    return _scattered(p.scatter, x, dim, index, e.filled(x, index.shape, value))


@decomposition(aten.scatter.reduce)
def scatter_combining(x: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Any:
    _same_dtype("scatter", x, src)
    return reduced(x, dim, index, src, _MULTIPLY_OR_ADD[reduce], True)


@decomposition(aten.scatter.value_reduce)
def scatter_combining_value(
    x: Tensor, dim: int, index: Tensor, value: Number, *, reduce: str
) -> Any:
    return reduced(x, dim, index, e.filled(x, index.shape, value), _MULTIPLY_OR_ADD[reduce], True)


@decomposition(aten.scatter_add.default)
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    _same_dtype("scatter", x, src)
    return reduced(x, dim, index, src, "sum", True)


@decomposition(aten.scatter_reduce.two)
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    _same_dtype("scatter", x, src)
    return reduced(x, dim, index, src, reduce, include_self)


@decomposition(aten.index_reduce.default)
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    where = canonical(dim, x.ndim)
    found = positions("index_reduce_", index)
    require_slices("index_reduce_", x, where, index, source)
    if source.numel() == 0:
        return p.clone(x)
    found = within(found, x.shape[where] if x.ndim else 1, "IndexError", IN_SELF)
    a, places, values = lifted(x, found, source)
    spread = p.broadcast_in_dim(places, list(values.shape), [where])
    result = reduced(a, where, spread, values, reduce, include_self)
    return p.reshape(result, list(x.shape)) if x.ndim == 0 else result


def _neutral(reduce: str, dtype: torch.dtype) -> Number:
    """The number that changes no other in a reduction."""
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod":
        return 1
    if dtype == torch.bool:
        return reduce == "amin"
    if dtype.is_floating_point:
        return float("-inf") if reduce == "amax" else float("inf")
    ends = torch.iinfo(dtype)
    return ends.min if reduce == "amax" else ends.max


_OPS = {
    "sum": p.scatter_add,
    "mean": p.scatter_add,
    "prod": p.scatter_prod,
    "amax": p.scatter_amax,
    "amin": p.scatter_amin,
}


def reduced(
    x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, include_self: bool
) -> Tensor:
    """`src` combined into `x` at `index`; a mean of integers is rounded down, as in eager."""
    if reduce not in _OPS:
        raise RuntimeError(f"reduce argument must be one of {', '.join(_OPS)}, not {reduce!r}")
    if index.numel() == 0:
        return p.clone(x)
    where, places = canonical(dim, x.ndim), positions("scatter", index)
    a, places, values = lifted(x, places, src)
    wide = compute_dtype(x.dtype)
    a, values = e.cast(a, wide), e.cast(values, wide)
    base = a
    if not include_self:
        neutral = e.filled(x, places.shape, _neutral(reduce, wide), wide)
        base = p.scatter(a, where, places, neutral)
    result = _OPS[reduce](base, where, places, values)
    if reduce == "mean":
        result = _divided(result, where, places, include_self)
    result = e.cast(result, x.dtype)
    return p.reshape(result, list(x.shape)) if x.ndim == 0 else result


def _divided(total: Tensor, dim: int, places: Tensor, include_self: bool) -> Tensor:
    start = e.filled(total, total.shape, int(include_self))
    ones = e.filled(total, places.shape, 1)
    count = p.scatter_add(start, dim, places, ones)
    if not include_self:  # where nothing came, the element itself is all there is
        count = e.where(e.eq(count, 0), 1, count)
    if total.dtype.is_floating_point or total.dtype.is_complex:
        return p.div(total, count)
    return p.floor_div(total, count)
