"""Decompositions of im2col and col2im.

In: images, the geometry of a sliding window. Out: [N, C * window, places], or images in which
overlapping patches are added up.
Invariant: the second is the transpose of the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.nn.convolution import full
from flambeau_prims.layout import Size, product
from flambeau_prims.ops.library.pooling import pooled_size
from flambeau_prims.table import decomposition

aten = torch.ops.aten
Ints = Sequence[int]


def _places(
    size: Size, kernel: int, dilation: int, padding: int, stride: int, device: torch.device
) -> Tensor:
    """[kernel, places] positions in the padded image."""
    count = pooled_size(size, kernel, stride, padding, dilation, False)
    if count <= 0:
        raise RuntimeError(f"a window of {kernel} (dilation {dilation}) does not fit into {size}")
    inner = p.iota(kernel, 0, dilation, dtype=torch.int64, device=device)
    outer = p.iota(count, 0, stride, dtype=torch.int64, device=device)
    shape = [kernel, count]
    return p.add(p.broadcast_in_dim(inner, shape, [0]), p.broadcast_in_dim(outer, shape, [1]))


def _window(
    size: Sequence[Size], lists: Sequence[Ints], device: torch.device
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
    x: Tensor,
    output_size: Sequence[Size],
    kernel_size: Ints,
    dilation: Ints,
    padding: Ints,
    stride: Ints,
) -> Tensor:
    columns = x if x.ndim == 3 else p.reshape(x, [1, *x.shape])
    lists = (kernel_size, dilation, padding, stride)
    at, kernel, pad = _window(output_size, lists, x.device)
    n, channels = columns.shape[0], columns.shape[1] // product(kernel)
    grid = _grid(at)
    values = p.reshape(e.widen(columns), [n, channels, *grid[0].shape])
    sizes = [output_size[i] + 2 * pad[i] for i in range(2)]
    zeros = p.full([n, channels, *sizes], 0, dtype=values.dtype, device=x.device)
    image = p.index_put(zeros, [None, None, *grid], values, True)
    stop = [n, channels, *(output_size[i] + pad[i] for i in range(2))]
    image = p.clone(p.slice(image, [0, 0, *pad], stop, [1, 1, 1, 1]))
    image = e.cast(image, x.dtype)
    return image if x.ndim == 3 else p.reshape(image, list(image.shape[1:]))
