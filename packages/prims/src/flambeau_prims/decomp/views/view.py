"""Decompositions of views: reshape, permute, slice.

In: ATen's view operations. Out: the shape prims.
Invariant: dimensions are made non-negative and sizes explicit here, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, p
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.shape_rules import Size, Sizes, contiguous_strides, product, view_strides

aten = torch.ops.aten


def resolve(shape: Sizes, numel: Size) -> list[Size]:
    """`shape` with -1 replaced by the size that makes `numel` elements."""
    if not any(isinstance(size, int) and size == -1 for size in shape):
        return list(shape)
    known = product([size for size in shape if not (isinstance(size, int) and size == -1)])
    missing = numel // known if known != 0 else 0
    return [missing if isinstance(size, int) and size == -1 else size for size in shape]


@decomposition(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten._reshape_copy.default
)
def view(x: Tensor, shape: Sizes) -> Tensor:
    return p.reshape(x, resolve(shape, x.numel()))


@decomposition(aten._reshape_alias.default)
def reshape_alias(x: Tensor, size: Sizes, stride: Sizes) -> Tensor:
    return e.with_strides(p.reshape(x, list(size)), stride)


@decomposition(aten.alias.default, aten.detach.default, aten.lift_fresh.default, aten.lift.default)
def alias(x: Tensor) -> Tensor:
    return without(x, [])


@decomposition(aten.expand.default)
def expand(x: Tensor, size: Sizes, *, implicit: bool = False) -> Tensor:
    new = len(size) - x.ndim
    if new < 0:
        raise RuntimeError(f"expand: {len(size)} sizes for a {x.ndim}-d tensor")
    target = [
        x.shape[d - new] if d >= new and isinstance(n, int) and n == -1 else n
        for d, n in enumerate(size)
    ]
    made = e.expand(x, target)
    return made if x.ndim else e.with_strides(made, [0] * len(target))


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
def t(x: Tensor) -> Any:
    if x.ndim > 2:
        return NotImplemented  # eager has the message
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
    return without(x, [d for d in chosen if x.ndim and x.shape[d] == 1])


def without(x: Tensor, dims: Sequence[int]) -> Tensor:
    """`x` without dimensions of size 1. The strides of others of that size, by which formats are
    distinguished, are kept where a view of the new shape would have other ones."""
    kept = [d for d in range(x.ndim) if d not in dims]
    shape, stride = [x.shape[d] for d in kept], [x.stride()[d] for d in kept]
    if any(e.is_symbolic(n) or n < 2 for n in shape):
        usual = view_strides(tuple(x.shape), x.stride(), shape) or contiguous_strides(shape)
        if e.differ_unstepped(usual, shape, stride):
            return p.reshape(x, shape, stride=stride)
    return p.reshape(x, shape)


def sliced(x: Tensor, dim: int, start: Size, stop: Size, step: int = 1) -> Tensor:
    """`x[..., start:stop:step, ...]` with bounds that are in range already."""
    starts: list[Size] = [0] * x.ndim
    stops, steps = list(x.shape), [1] * x.ndim
    starts[dim], stops[dim], steps[dim] = start, stop, step
    return p.slice(x, starts, stops, steps)


TO_THE_END = 2**63 - 1
"""What a slice without an end has for one."""


def slice_bounds(size: Size, start: Size | None, end: Size | None) -> tuple[Size, Size]:
    """Python's slice bounds within `size`: negative from the end, then clamped."""
    begin: Size = 0 if start is None else start
    stop: Size = size if end is None or (isinstance(end, int) and end == TO_THE_END) else end
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
    return without(part, [dim])


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
def split_with_sizes(x: Tensor, split_sizes: Sizes, dim: int = 0) -> list[Tensor]:
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
