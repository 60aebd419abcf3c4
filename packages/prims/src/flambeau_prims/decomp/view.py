"""Views: reshaping, permuting, slicing, and the copying variants of all of these.

In: ATen's view operations. Out: the shape prims.
Invariant: dimensions are made non-negative and sizes explicit here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, p
from flambeau_prims.layout import Size, product
from flambeau_prims.table import TABLE, decomposition

aten = torch.ops.aten


def resolve(shape: Sequence[Size], numel: Size) -> list[Size]:
    """`shape` with -1 replaced by the size that makes `numel` elements."""
    if not any(isinstance(size, int) and size == -1 for size in shape):
        return list(shape)
    known = product([size for size in shape if not (isinstance(size, int) and size == -1)])
    missing = numel // known if known != 0 else 0
    return [missing if isinstance(size, int) and size == -1 else size for size in shape]


@decomposition(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_copy.default
)
def view(x: Tensor, shape: Sequence[Size]) -> Tensor:
    return p.reshape(x, resolve(shape, x.numel()))


@decomposition(aten._reshape_alias.default)
def reshape_alias(x: Tensor, size: Sequence[Size], stride: Sequence[Size]) -> Tensor:
    del stride  # the one a view has anyway
    return p.reshape(x, list(size))


@decomposition(aten.alias.default, aten.detach.default, aten.lift_fresh.default, aten.lift.default)
def alias(x: Tensor) -> Tensor:
    return p.reshape(x, list(x.shape))


@decomposition(aten.expand.default)
def expand(x: Tensor, size: Sequence[Size], *, implicit: bool = False) -> Tensor:
    del implicit
    new = len(size) - x.ndim
    if new < 0:
        raise RuntimeError(f"expand: {len(size)} sizes for a {x.ndim}-d tensor")
    target = [
        x.shape[d - new] if d >= new and isinstance(n, int) and n == -1 else n
        for d, n in enumerate(size)
    ]
    return e.expand(x, target)


@decomposition(aten.permute.default)
def permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return p.permute(x, [canonical(d, x.ndim) for d in dims])


@decomposition(aten.transpose.int)
def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    dims = list(range(x.ndim))
    if dims:
        a, b = canonical(dim0, x.ndim), canonical(dim1, x.ndim)
        dims[a], dims[b] = dims[b], dims[a]
    return p.permute(x, dims)


@decomposition(aten.t.default)
def t(x: Tensor) -> Tensor:
    return p.permute(x, list(range(x.ndim))[::-1])


def unsqueezed(x: Tensor, dim: int) -> Tensor:
    """`x` with a dimension of size 1 put in at `dim` (non-negative)."""
    shape = [*x.shape[:dim], 1, *x.shape[dim:]]
    return p.broadcast_in_dim(x, shape, [d for d in range(x.ndim + 1) if d != dim])


@decomposition(aten.unsqueeze.default)
def unsqueeze(x: Tensor, dim: int) -> Tensor:
    return unsqueezed(x, canonical(dim, x.ndim + 1))


@decomposition(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    if dim is None:
        chosen = set(range(x.ndim))
    else:
        given = [dim] if isinstance(dim, int) else list(dim)
        chosen = {canonical(d, x.ndim) for d in given}
    return p.reshape(x, [n for d, n in enumerate(x.shape) if d not in chosen or n != 1])


def sliced(x: Tensor, dim: int, start: Size, stop: Size, step: int = 1) -> Tensor:
    """`x[..., start:stop:step, ...]` with bounds that are in range already."""
    starts: list[Size] = [0] * x.ndim
    stops, steps = list(x.shape), [1] * x.ndim
    starts[dim], stops[dim], steps[dim] = start, stop, step
    return p.slice(x, starts, stops, steps)


def slice_bounds(size: Size, start: Size | None, end: Size | None) -> tuple[Size, Size]:
    """Python's slice bounds within `size`: negative from the end, then clamped."""
    begin: Size = 0 if start is None else start
    stop: Size = size if end is None else end
    begin = begin + size if begin < 0 else begin
    stop = stop + size if stop < 0 else stop
    begin = 0 if begin < 0 else size if begin > size else begin
    stop = begin if stop < begin else size if stop > size else stop
    return begin, stop


@decomposition(aten.slice.Tensor)
def slice_(
    x: Tensor, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Tensor:
    where = canonical(dim, x.ndim)
    begin, stop = slice_bounds(x.shape[where], start, end)
    return sliced(x, where, begin, stop, step)


def selected(x: Tensor, dim: int, index: Size) -> Tensor:
    """`x[..., index, ...]`, the index in range and non-negative."""
    part = sliced(x, dim, index, index + 1)
    return p.reshape(part, [*x.shape[:dim], *x.shape[dim + 1 :]])


def checked_index(x: Tensor, dim: int, index: Size) -> Size:
    """`index` counted from the front, or IndexError as eager raises it."""
    size = x.shape[dim]
    if not (-size <= index and index < size):
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(x.shape)}"
            f" at dimension {dim}"
        )
    return index + size if index < 0 else index


@decomposition(aten.select.int)
def select(x: Tensor, dim: int, index: Size) -> Tensor:
    where = canonical(dim, x.ndim)
    return selected(x, where, checked_index(x, where, index))


@decomposition(aten.split_with_sizes.default)
def split_with_sizes(x: Tensor, split_sizes: Sequence[Size], dim: int = 0) -> list[Tensor]:
    where, start, parts = canonical(dim, x.ndim), 0, []
    for size in split_sizes:
        parts.append(sliced(x, where, start, start + size))
        start = start + size
    if start != x.shape[where]:
        raise RuntimeError(f"split_with_sizes: sizes {list(split_sizes)} for {x.shape[where]}")
    return parts


@decomposition(aten.split.Tensor)
def split(x: Tensor, split_size: Size, dim: int = 0) -> list[Tensor]:
    where = canonical(dim, x.ndim)
    size = x.shape[where]
    if size == 0 or split_size == 0:
        return [sliced(x, where, 0, size)]
    starts = range(0, int(size), int(split_size))
    return [sliced(x, where, s, min(s + split_size, size)) for s in starts]


@decomposition(aten.unbind.int)
def unbind(x: Tensor, dim: int = 0) -> list[Tensor]:
    where = canonical(dim, x.ndim)
    return [selected(x, where, i) for i in range(int(x.shape[where]))]


@decomposition(aten.as_strided.default)
def as_strided(
    x: Tensor,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> Any:
    if storage_offset is not None:
        return p.as_strided(x, list(size), list(stride), storage_offset)
    # counted from where `x` starts in its storage
    return p.restride(x, list(size), list(stride))


@decomposition(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: Tensor,
    src: Tensor,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> Any:
    part = e.expand(e.cast(src, x.dtype), size)
    if storage_offset is not None:
        return p.as_strided_scatter(x, part, list(size), list(stride), storage_offset)
    if not e.contiguous(x):  # what lies between the elements of `x` is not known here
        return NotImplemented
    return p.as_strided_scatter(p.clone(x), part, list(size), list(stride), 0)


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
    return p.diagonal_scatter(x, e.cast(src, x.dtype), offset, *_two_dims(dim1, dim2, x.ndim))


@decomposition(aten.diagonal_backward.default)
def diagonal_backward(
    grad: Tensor, input_sizes: Sequence[Size], offset: int, dim1: int, dim2: int
) -> Tensor:
    zeros = p.full(list(input_sizes), 0, dtype=grad.dtype, device=grad.device)
    return diagonal_scatter(zeros, grad, offset, dim1, dim2)


@decomposition(aten.diag_embed.default)
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    a, b = _two_dims(dim1, dim2, x.ndim + 1)
    side = x.shape[-1] + abs(offset)
    shape = list(x.shape[:-1])
    for d in sorted((a, b)):
        shape.insert(d, side)
    zeros = p.full(shape, 0, dtype=x.dtype, device=x.device)
    return p.diagonal_scatter(zeros, x, offset, a, b)


@decomposition(aten.unfold.default)
def unfold(x: Tensor, dimension: int, size: Size, step: Size) -> Tensor:
    where = canonical(dimension, x.ndim)
    if x.ndim == 0:  # as if of one element
        return p.slice(p.reshape(x, [1]), [0], [size], [1])
    return p.unfold(x, where, size, step)


@decomposition(aten.unfold_backward.default)
def unfold_backward(
    grad: Tensor, input_sizes: Sequence[Size], dim: int, size: int, step: int
) -> Tensor:
    if not input_sizes:
        return p.reshape(grad, [])
    where = canonical(dim, len(input_sizes))
    count = grad.shape[where]
    # [..., count, ..., size] -> [..., count * size, ...]
    order = [*range(where + 1), grad.ndim - 1, *range(where + 1, grad.ndim - 1)]
    rest = list(input_sizes[where + 1 :])
    together = p.permute(grad, order)
    flat = p.reshape(together, [*input_sizes[:where], count * size, *rest])
    i64 = {"dtype": torch.int64, "device": grad.device}
    starts = p.broadcast_in_dim(p.iota(count, 0, step, **i64), [count, size], [0])
    inner = p.broadcast_in_dim(p.iota(size, 0, 1, **i64), [count, size], [1])
    places = p.reshape(p.add(starts, inner), [count * size])
    zeros = p.full(list(input_sizes), 0, dtype=grad.dtype, device=grad.device)
    return p.index_put(zeros, [*[None] * where, places], flat, True)


@decomposition(aten.view.dtype)
def view_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    return p.bitcast(x, dtype=dtype)


@decomposition(aten.narrow_copy.default)
def narrow_copy(x: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    where = canonical(dim, x.ndim)
    size = x.shape[where]
    begin = start + size if start < 0 else start
    if not (begin >= 0 and length >= 0 and begin + length <= size):
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return p.clone(sliced(x, where, begin, begin + length))


# The copying variants: the view, then a row-major copy.
_COPIES: dict[OpOverload, OpOverload] = {
    aten.view_copy.default: aten.view.default,
    aten.alias_copy.default: aten.alias.default,
    aten.detach_copy.default: aten.detach.default,
    aten.expand_copy.default: aten.expand.default,
    aten.permute_copy.default: aten.permute.default,
    aten.transpose_copy.int: aten.transpose.int,
    aten.t_copy.default: aten.t.default,
    aten.unsqueeze_copy.default: aten.unsqueeze.default,
    aten.squeeze_copy.default: aten.squeeze.default,
    aten.squeeze_copy.dim: aten.squeeze.dim,
    aten.squeeze_copy.dims: aten.squeeze.dims,
    aten.slice_copy.Tensor: aten.slice.Tensor,
    aten.select_copy.int: aten.select.int,
    aten.split_copy.Tensor: aten.split.Tensor,
    aten.split_with_sizes_copy.default: aten.split_with_sizes.default,
    aten.unbind_copy.int: aten.unbind.int,
    aten._reshape_alias_copy.default: aten._reshape_alias.default,
    aten.as_strided_copy.default: aten.as_strided.default,
    aten.diagonal_copy.default: aten.diagonal.default,
    aten.unfold_copy.default: aten.unfold.default,
    aten.view_copy.dtype: aten.view.dtype,
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


for _copy, _view in _COPIES.items():
    decomposition(_copy)(_copying(_view))
