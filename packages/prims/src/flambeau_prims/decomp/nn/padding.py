"""Decompositions of padding by reflection or replication, im2col and col2im.

In: an image without batch or with, amounts for the last dimensions, innermost first, or a window's
geometry. Out: entries picked by computed positions, for each dimension; patches.
Invariant: a backward adds each gradient at the position its entry was picked from; col2im is the
transpose of im2col.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.nn.convolution import full
from flambeau_prims.decomp.nn.upsample import Taps, pick, put_back
from flambeau_prims.decomposition_table import decomposition, overloads
from flambeau_prims.ops.library.pooling import pooled_size
from flambeau_prims.shape_rules import Size, Sizes, product

Positions = Callable[[Tensor, Size], Tensor]


def _reflected(at: Tensor, size: Size) -> Tensor:
    """Positions mirrored at the first and last entry, which are not repeated."""
    last = size - 1
    return e.sub(last, p.abs(e.sub(last, p.abs(at))))


def _clamped(at: Tensor, size: Size) -> Tensor:
    return e.minimum(e.maximum(at, 0), size - 1)


def _taps(
    size: Size, before: Size, after: Size, positions: Positions, device: torch.device
) -> Taps:
    at = e.counted(size + before + after, device, -before)
    return [(positions(at, size), None)]


def _check(x: Tensor, padding: Sizes, positions: Positions) -> None:
    """Eager's refusals: a reflection must fit into the image, and something must be left."""
    for place in range(len(padding) // 2):
        size = x.shape[x.ndim - 1 - place]
        before, after = padding[2 * place], padding[2 * place + 1]
        if positions is _reflected and (before >= size or after >= size):
            raise RuntimeError(
                "Padding size should be less than the corresponding input dimension, but got "
                f"padding ({before}, {after}) at dimension {x.ndim - 1 - place} of size {size}"
            )
        if size + before + after < 1:
            raise RuntimeError(f"padding ({before}, {after}) leaves nothing of a size of {size}")


def _pad(x: Tensor, padding: Sizes, positions: Positions) -> Tensor:
    _check(x, padding, positions)
    y = x
    for place in range(len(padding) // 2):
        dim = x.ndim - 1 - place
        before, after = padding[2 * place], padding[2 * place + 1]
        y = pick(y, dim, _taps(x.shape[dim], before, after, positions, x.device))
    return _as_written(x, y)


def _as_written(x: Tensor, y: Tensor) -> Tensor:
    """In the format of `x`, but row by row as kernels for CUDA write."""
    return e.in_format(y, torch.contiguous_format) if e.on_gpu(x) else e.in_image_format(x, y)


def _pad_backward(grad: Tensor, x: Tensor, padding: Sizes, positions: Positions) -> Tensor:
    g = e.widen(grad)
    for place in range(len(padding) // 2):
        dim = x.ndim - 1 - place
        size = x.shape[dim]
        before, after = padding[2 * place], padding[2 * place + 1]
        g = put_back(g, dim, size, _taps(size, before, after, positions, x.device))
    return _as_written(x, e.cast(g, grad.dtype))


def _register(name: str, positions: Positions) -> None:
    @decomposition(*overloads(name, "default"))
    def forward(x: Tensor, padding: Sizes) -> Tensor:
        return _pad(x, padding, positions)

    @decomposition(*overloads(f"{name}_backward", "default"))
    def backward(grad: Tensor, x: Tensor, padding: Sizes) -> Tensor:
        return _pad_backward(grad, x, padding, positions)


for _dims in (1, 2, 3):
    _register(f"reflection_pad{_dims}d", _reflected)
    _register(f"replication_pad{_dims}d", _clamped)


aten = torch.ops.aten
Ints = Sequence[int]


def _places(
    size: Size, kernel: int, dilation: int, padding: int, stride: int, device: torch.device
) -> Tensor:
    """[kernel, places] positions in the padded image."""
    count = pooled_size(size, kernel, stride, padding, dilation, False)
    if count <= 0:
        raise RuntimeError(f"a window of {kernel} (dilation {dilation}) does not fit into {size}")
    inner = e.counted(kernel, device, 0, dilation)
    outer = e.counted(count, device, 0, stride)
    shape = [kernel, count]
    return p.add(p.broadcast_in_dim(inner, shape, [0]), p.broadcast_in_dim(outer, shape, [1]))


def _window(
    size: Sizes, lists: Sequence[Ints], device: torch.device
) -> tuple[list[Tensor], list[int], list[int]]:
    """(positions along each dimension, kernel, padding)."""
    kernel, dilation, padding, stride = (full(x, 2) for x in lists)
    at = [_places(size[i], kernel[i], dilation[i], padding[i], stride[i], device) for i in range(2)]
    return at, kernel, padding


def _grid(at: Sequence[Tensor]) -> list[Tensor]:
    """Row and column positions over [kernel h, kernel w, places h, places w]."""
    (kh, lh), (kw, lw) = at[0].shape, at[1].shape
    shape = [kh, kw, lh, lw]
    rows = p.broadcast_in_dim(at[0], shape, [0, 2])
    return [rows, p.broadcast_in_dim(at[1], shape, [1, 3])]


@decomposition(aten.im2col.default)
def im2col(x: Tensor, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Tensor:
    image = x if x.ndim == 4 else p.reshape(x, [1, *x.shape])
    lists = (kernel_size, dilation, padding, stride)
    at, kernel, pad = _window(image.shape[2:], lists, x.device)
    padded = p.pad(image, [0, 0, *pad], [0, 0, *pad], 0)
    picked = p.index(padded, [None, None, *_grid(at)])
    columns = image.shape[1] * product(kernel)
    out = p.reshape(picked, [image.shape[0], columns, product(picked.shape[4:])])
    return out if x.ndim == 4 else p.reshape(out, list(out.shape[1:]))


@decomposition(aten.col2im.default)
def col2im(
    x: Tensor, output_size: Sizes, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> Tensor:
    columns = x if x.ndim == 3 else p.reshape(x, [1, *x.shape])
    lists = (kernel_size, dilation, padding, stride)
    at, kernel, pad = _window(output_size, lists, x.device)
    n, channels = columns.shape[0], columns.shape[1] // product(kernel)
    grid = _grid(at)
    values = p.reshape(e.widen(columns), [n, channels, *grid[0].shape])
    sizes = [output_size[i] + 2 * pad[i] for i in range(2)]
    zeros = e.filled(x, [n, channels, *sizes], 0, values.dtype)
    image = p.index_put(zeros, [None, None, *grid], values, True)
    stop = [n, channels, *(output_size[i] + pad[i] for i in range(2))]
    image = p.clone(p.slice(image, [0, 0, *pad], stop, [1, 1, 1, 1]))
    image = e.cast(image, x.dtype)
    return image if x.ndim == 3 else p.reshape(image, list(image.shape[1:]))
