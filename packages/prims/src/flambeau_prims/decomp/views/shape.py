"""Decompositions of joining, repeating, padding and partial writes.

In: ATen's operations that move elements. Out: prims. Invariant: results are fresh copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import surely
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, canonical, p
from flambeau_prims.decomp.linalg.solve import difference
from flambeau_prims.decomp.views.view import checked_index, slice_bounds, sliced, unsqueezed
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition
from flambeau_prims.promotion import is_inexact, result_type, same_shape
from flambeau_prims.shape_rules import Size, Sizes, TensorMeta, product, suggests_channels_last

aten = torch.ops.aten


@decomposition(aten.clone.default, aten.contiguous.default)
def clone(x: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    return e.copy_in_format(x, memory_format)


@decomposition(aten.lift_fresh_copy.default)
def lift_fresh_copy(x: Tensor) -> Tensor:
    return e.copy_in_format(x, None)


@by_name(aten._to_copy.default)
def to_copy(a: Arguments) -> Any:
    if a.pin_memory or a.layout not in (None, torch.strided):
        return NotImplemented
    x = result = a.self
    if a.device is not None and torch.device(a.device) != x.device:
        result = p.device_put(result, device=a.device)
    result = result if a.dtype is None else e.cast(result, a.dtype)
    if result is x:
        return e.copy_in_format(x, a.memory_format)
    return e.in_format(result, a.memory_format)


@decomposition(aten.copy.default)
def copy(x: Tensor, src: Operand, non_blocking: bool = False) -> Tensor:
    if not isinstance(src, Tensor):  # converted as elements are: it wraps, and need not fit
        kind = result_type((src,))
        wide = torch.promote_types(kind, torch.float64) if is_inexact(kind) else kind
        number = e.cast(e.filled(x, [], src, wide), x.dtype)
        return e.laid_out_as(x, p.clone(e.expand(number, x.shape)))
    if src.device != x.device:
        src = p.device_put(src, device=x.device)
    placed = e.expand(e.cast(src, x.dtype), x.shape)
    return e.laid_out_as(x, p.clone(placed, order=e.layout_order(x)))


@decomposition(aten.cat.default)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    dtype = result_type(tensors)
    # A 1-d tensor without elements joins with anything: a habit from before 0-d tensors.
    real = [x for x in tensors if not (x.ndim == 1 and x.shape[0] == 0)]
    if not real:
        return p.clone(e.cast(tensors[0], dtype))
    joined = [e.cast(x, dtype) for x in real]
    return p.cat(joined, canonical(dim, joined[0].ndim))


@decomposition(aten.stack.default, aten._stack.default)
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    first, dtype = tensors[0], result_type(tensors)
    where, parts = canonical(dim, first.ndim + 1), [e.cast(x, dtype) for x in tensors]
    images = first.ndim in (4, 5) and where < first.ndim
    if images and any(
        suggests_channels_last(TensorMeta.of(x)) for x in parts
    ):  # joined in their format, then parted
        shape = [*first.shape[:where], len(parts), *first.shape[where:]]
        return p.reshape(p.cat(parts, where), shape)
    return p.cat([unsqueezed(x, where) for x in parts], where)


@decomposition(aten.repeat.default)
def repeat(x: Tensor, repeats: Sizes) -> Tensor:
    sizes = [1] * (len(repeats) - x.ndim) + list(x.shape)
    paired, dims = [], []
    for d, (times, size) in enumerate(zip(repeats, sizes, strict=True)):
        paired += [times, size]
        if d >= len(repeats) - x.ndim:
            dims.append(2 * d + 1)
    wide = p.broadcast_in_dim(x, paired, dims)
    shape = [times * size for times, size in zip(repeats, sizes, strict=True)]
    return p.reshape(p.clone(wide), shape)


@decomposition(aten.flip.default)
def flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    where = sorted({canonical(d, x.ndim) for d in dims})
    return p.flip(x, where) if x.ndim and where else e.copy_in_format(x, None)


@decomposition(aten.roll.default)
def roll(x: Tensor, shifts: Sizes, dims: Sequence[int] = ()) -> Tensor:
    """A GPU's kernel writes row by row; a CPU joins the parts."""
    if e.on_gpu(x):
        x = e.in_format(x, torch.contiguous_format)
    if x.numel() == 0:
        return e.copy_in_format(x, None)
    if not dims:
        flat = p.reshape(x, [x.numel()])
        return p.reshape(_rolled(flat, shifts[0], 0), list(x.shape))
    result = x
    for shift, dim in zip(shifts, dims, strict=True):
        result = _rolled(result, shift, canonical(dim, x.ndim))
    return result


def _rolled(x: Tensor, shift: Size, dim: int) -> Tensor:
    size = x.shape[dim]
    cut = (size - shift) % size
    return p.cat([sliced(x, dim, cut, size), sliced(x, dim, 0, cut)], dim)


@decomposition(aten.constant_pad_nd.default)
def constant_pad_nd(x: Tensor, pad: Sizes, value: Number = 0) -> Tensor:
    low: list[Size] = [0] * x.ndim
    high: list[Size] = [0] * x.ndim
    start: list[Size] = [0] * x.ndim
    stop: list[Size] = list(x.shape)
    for i in range(len(pad) // 2):
        dim = x.ndim - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        start[dim], low[dim] = (-before, 0) if _cuts(before) else (0, before)
        stop[dim], high[dim] = (stop[dim] + after, 0) if _cuts(after) else (stop[dim], after)
        if stop[dim] < start[dim]:
            raise RuntimeError(f"The input size {x.shape[dim]} is cut to nothing by padding {pad}")
    if any(start) or stop != list(x.shape):
        x = p.slice(x, start, stop, [1] * x.ndim)
    if all(surely(n == 0) for n in (*low, *high)):
        return e.copy_in_format(x, None)  # nothing is added: a copy, in the layout of what is left
    return p.pad(x, low, high, value)


def _cuts(padding: Size) -> bool:
    """Whether so much padding adds nothing: data may decide whether it cuts, or is none."""
    return surely(padding <= 0) or bool(padding < 0)


def _along(dim: int, value: Size, others: Sizes) -> list[Size]:
    """`others` with another number at `dim`."""
    return [value if d == dim else n for d, n in enumerate(others)]


def placed_in_zeros(
    grad: Tensor, shape: Sizes, dim: int, start: Size, stop: Size, step: int
) -> Tensor:
    """Zeros of `shape` with `grad` in `[..., start:stop:step, ...]`."""
    zeros, ones = [0] * len(shape), [1] * len(shape)
    starts = _along(dim, start, zeros)
    if step == 1:
        return p.pad(grad, starts, _along(dim, shape[dim] - stop, zeros), 0)
    base = e.filled(grad, shape)
    stops, steps = _along(dim, stop, shape), _along(dim, step, ones)
    return p.slice_scatter(base, grad, starts, stops, steps)


@decomposition(aten.slice_backward.default)
def slice_backward(
    grad: Tensor, input_sizes: Sizes, dim: int, start: Size, end: Size, step: int
) -> Tensor:
    where = canonical(dim, len(input_sizes))
    begin, stop = slice_bounds(input_sizes[where], start, end)
    return placed_in_zeros(grad, input_sizes, where, begin, stop, step)


@decomposition(aten.select_backward.default)
def select_backward(grad: Tensor, input_sizes: Sizes, dim: int, index: Size) -> Tensor:
    where = canonical(dim, len(input_sizes))
    index = index + input_sizes[where] if index < 0 else index
    return placed_in_zeros(unsqueezed(grad, where), input_sizes, where, index, index + 1, 1)


@decomposition(aten.slice_scatter.default)
def slice_scatter(
    x: Tensor,
    src: Tensor,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> Any:
    where = canonical(dim, x.ndim)
    begin, stop = slice_bounds(x.shape[where], start, end)
    if not same_shape(src.shape, _along(where, (stop - begin + step - 1) // step, x.shape)):
        return NotImplemented
    part = e.cast(src, x.dtype)
    starts, steps = _along(where, begin, [0] * x.ndim), _along(where, step, [1] * x.ndim)
    made = p.slice_scatter(x, part, starts, _along(where, stop, x.shape), steps)
    return e.laid_out_as(x, made)


@decomposition(aten.select_scatter.default)
def select_scatter(x: Tensor, src: Tensor, dim: int, index: Size) -> Any:
    where = canonical(dim, x.ndim)
    at = checked_index(x, where, index)
    if not same_shape(src.shape, _without(x.shape, where)):
        return NotImplemented
    part = unsqueezed(e.cast(src, x.dtype), where)
    return slice_scatter(x, part, where, at, at + 1)


def _without(shape: Sizes, dim: int) -> list[Size]:
    return [n for d, n in enumerate(shape) if d != dim]


def _band(x: Tensor, diagonal: int, upper: bool) -> Tensor:
    place = difference(x.shape[-2], x.shape[-1], x.device)
    inside = e.ge(place, diagonal) if upper else e.le(place, diagonal)
    # eager gives a row-major result whatever the layout of `x`
    kept = p.where(e.expand(inside, x.shape), x, e.const(0, x))
    return e.in_format(kept, torch.contiguous_format)


@decomposition(aten.triu.default)
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    return _band(x, diagonal, upper=True)


@decomposition(aten.tril.default)
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    return _band(x, diagonal, upper=False)


@decomposition(aten.pixel_shuffle.default)
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """[..., C r r, H, W] to [..., C, H r, W r]."""
    r = upscale_factor
    if r == 1:
        return p.clone(x) if e.on_gpu(x) else e.in_image_format(x, p.clone(x))
    *batch, channels, height, width = x.shape
    split = p.reshape(x, [*batch, channels // (r * r), r, r, height, width])
    n = len(batch)
    moved = p.permute(split, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    made = p.reshape(p.clone(moved), [*batch, channels // (r * r), height * r, width * r])
    return made if e.on_gpu(x) else e.in_image_format(x, made)


@decomposition(aten.rot90.default)
def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Any:
    if x.ndim < 2 or len(dims) != 2 or dims[0] % x.ndim == dims[1] % x.ndim:
        return NotImplemented  # eager has the message
    a, b = (canonical(d, x.ndim) for d in dims)
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    turns = k % 4
    if turns == 1:
        return p.permute(p.flip(x, [b]), order)
    if turns == 2:
        return p.flip(x, sorted((a, b)))
    if turns == 3:
        return p.permute(p.flip(x, [a]), order)
    return e.copy_in_format(x, torch.contiguous_format)


@decomposition(aten.block_diag.default)
def block_diag(tensors: Sequence[Tensor]) -> Tensor:
    dtype = result_type(tensors)
    blocks = [
        p.reshape(e.cast(x, dtype), [1, *x.shape] if x.ndim == 1 else [1, 1] if not x.ndim else
                  list(x.shape))
        for x in tensors
    ]  # fmt: skip
    width = sum(x.shape[1] for x in blocks)
    start: Size = 0
    rows = []
    for x in blocks:
        rows.append(p.pad(x, [0, start], [0, width - start - x.shape[1]], 0))
        start = start + x.shape[1]
    return p.cat(rows, 0)


@decomposition(aten._chunk_cat.default)
def chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int) -> Tensor:
    where = canonical(dim, tensors[0].ndim)
    parts = []
    for x in tensors:
        size = x.shape[where]
        whole = -(-size // num_chunks) * num_chunks
        padded = p.pad(x, [0] * x.ndim, _along(where, whole - size, [0] * x.ndim), 0)
        flat = product(padded.shape[where:]) // num_chunks
        parts.append(p.reshape(padded, [*x.shape[:where], num_chunks, flat]))
    return p.cat(parts, where + 1)
