"""Decompositions of strided views, writes through them, and copying views.

In: ATen's view operations, their `_scatter`, backward and `_copy` forms. Out: the prims of
`ops/views`, and `clone`.
Invariant: dimensions are made non-negative here, once; a copy is registered by naming its view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import flambeau_prims.decomp.views.strided  # noqa: F401 - the views that are looked up below
from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, p
from flambeau_prims.decomp.views.view import sliced
from flambeau_prims.decomposition_table import TABLE, decomposition
from flambeau_prims.shape_rules import Size, Sizes

aten = torch.ops.aten


@decomposition(aten.as_strided.default)
def as_strided(x: Tensor, size: Sizes, stride: Sizes, storage_offset: Size | None = None) -> Any:
    if storage_offset is not None:
        return p.as_strided(x, list(size), list(stride), storage_offset)
    # counted from where `x` starts in its storage
    return p.restride(x, list(size), list(stride))


@decomposition(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: Tensor, src: Tensor, size: Sizes, stride: Sizes, storage_offset: Size | None = None
) -> Any:
    part = e.expand(e.cast(src, x.dtype), size)
    if (order := _filling(x, size, stride, storage_offset)) is not None:
        return p.clone(p.reshape(p.permute(part, order), list(x.shape)))
    if storage_offset is not None:
        if any(isinstance(n, int) and n == 0 for n in x.stride()):
            x = p.clone(x)  # what repeats its elements is copied without
        return p.as_strided_scatter(x, part, list(size), list(stride), storage_offset)
    if not e.contiguous(x):  # what lies between the elements of `x` is not known here
        return NotImplemented
    return p.as_strided_scatter(p.clone(x), part, list(size), list(stride), 0)


def _filling(
    x: Tensor, size: Sizes, stride: Sizes, storage_offset: Size | None
) -> list[int] | None:
    """The dimensions from the slowest to the fastest, if such a view has each element of `x` once,
    so that writing through it leaves nothing of `x`; None if not, and for sizes left open."""
    known = all(isinstance(n, int) for n in (*x.shape, *size, *stride))
    # a graph's values have no offset that is known
    elsewhere = storage_offset is not None and (
        not isinstance(x, Tensor) or storage_offset != x.storage_offset()
    )
    if not known or not e.contiguous(x) or elsewhere:
        return None
    order = sorted(range(len(size)), key=lambda d: (stride[d], size[d]), reverse=True)
    step = 1
    for d in reversed(order):
        if size[d] != 1 and stride[d] != step:
            return None
        step *= size[d]
    return order if step == x.numel() else None


def _two_dims(dim1: int, dim2: int, ndim: int) -> tuple[int, int]:
    a, b = canonical(dim1, ndim), canonical(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return a, b


@decomposition(aten.diagonal.default)
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return p.diagonal(x, offset, *_two_dims(dim1, dim2, x.ndim))


@decomposition(aten.diagonal_scatter.default)
def diagonal_scatter(
    x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    part = e.cast(src, x.dtype)
    return e.laid_out_as(x, p.diagonal_scatter(x, part, offset, *_two_dims(dim1, dim2, x.ndim)))


@decomposition(aten.diagonal_backward.default)
def diagonal_backward(
    grad: Tensor, input_sizes: Sizes, offset: int, dim1: int, dim2: int
) -> Tensor:
    zeros = e.filled(grad, input_sizes)
    return diagonal_scatter(zeros, grad, offset, dim1, dim2)


@decomposition(aten.diag_embed.default)
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    a, b = _two_dims(dim1, dim2, x.ndim + 1)
    side = x.shape[-1] + abs(offset)
    shape = list(x.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, side)
    zeros = e.filled(x, shape)
    return p.diagonal_scatter(zeros, x, offset, a, b)


@decomposition(aten.unfold.default)
def unfold(x: Tensor, dimension: int, size: Size, step: Size) -> Tensor:
    where = canonical(dimension, x.ndim)
    if x.ndim == 0:  # as if of one element
        return p.slice(p.reshape(x, [1]), [0], [size], [1])
    return p.unfold(x, where, size, step)


@decomposition(aten.unfold_backward.default)
def unfold_backward(grad: Tensor, input_sizes: Sizes, dim: int, size: int, step: int) -> Tensor:
    if not input_sizes:
        return p.reshape(grad, [])
    where = canonical(dim, len(input_sizes))
    count = grad.shape[where]
    # [..., count, ..., size] -> [..., count * size, ...]
    order = [*range(where + 1), grad.ndim - 1, *range(where + 1, grad.ndim - 1)]
    rest = list(input_sizes[where + 1 :])
    together = p.permute(grad, order)
    flat = p.reshape(together, [*input_sizes[:where], count * size, *rest])
    starts = p.broadcast_in_dim(e.counted(count, grad.device, 0, step), [count, size], [0])
    inner = p.broadcast_in_dim(e.counted(size, grad.device), [count, size], [1])
    places = p.reshape(p.add(starts, inner), [count * size])
    zeros = e.filled(grad, input_sizes)
    return p.index_put(zeros, [*[None] * where, places], flat, True)


@decomposition(aten.view.dtype)
def view_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    return p.bitcast(x, dtype=dtype)


# `<name>_copy` is a copy of what the overload of the same name of `<name>` shows.
_COPIED = (
    *("view", "_reshape_alias", "alias", "detach", "expand", "permute", "transpose", "t", "slice"),
    *("unsqueeze", "squeeze", "select", "split", "split_with_sizes", "unbind", "as_strided"),
    *("diagonal", "unfold"),
)

# Views without a mark: eager's parts lie where those of a view do.
_UNSAFE = {
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}


def _copying(view_op: OpOverload) -> Callable[..., Any]:
    function = TABLE[view_op]

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is NotImplemented:
            return result
        if isinstance(result, list):
            return [p.clone(part) for part in result]
        return p.clone(result)

    return call


for _name in _COPIED:
    _views = getattr(aten, _name)
    for _kind in _views.overloads():
        if getattr(_views, _kind) in TABLE:
            _op = getattr(getattr(aten, f"{_name}_copy"), _kind)
            decomposition(_op)(_copying(getattr(_views, _kind)))
for _copy, _view in _UNSAFE.items():
    decomposition(_copy)(TABLE[_view])


@decomposition(aten.narrow_copy.default)
def narrow_copy(x: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    where = canonical(dim, x.ndim)
    size = x.shape[where]
    begin = start + size if start < 0 else start
    if not (begin >= 0 and length >= 0 and begin + length <= size):
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return p.clone(sliced(x, where, begin, begin + length))
