"""Decompositions of reflection and replication padding, forward and backward.

In: an image without batch or with, and amounts for the last dimensions, innermost first.
Out: for each padded dimension, entries picked by computed positions.
Invariant: the backward adds each gradient at the position its entry was picked from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.nn.upsample import Taps, pick, put_back
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.layout import Size
from flambeau_prims.table import decomposition

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
    at = p.iota(size + before + after, -before, 1, dtype=torch.int64, device=device)
    return [(positions(at, size), None)]


def _check(x: Tensor, padding: Sequence[Size], positions: Positions) -> None:
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


def _pad(x: Tensor, padding: Sequence[Size], positions: Positions) -> Tensor:
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


def _pad_backward(grad: Tensor, x: Tensor, padding: Sequence[Size], positions: Positions) -> Tensor:
    g = e.widen(grad)
    for place in range(len(padding) // 2):
        dim = x.ndim - 1 - place
        size = x.shape[dim]
        before, after = padding[2 * place], padding[2 * place + 1]
        g = put_back(g, dim, size, _taps(size, before, after, positions, x.device))
    return _as_written(x, e.cast(g, grad.dtype))


def _register(name: str, positions: Positions) -> None:
    @decomposition(*overloads(name, "default"))
    def forward(x: Tensor, padding: Sequence[Size]) -> Tensor:
        return _pad(x, padding, positions)

    @decomposition(*overloads(f"{name}_backward", "default"))
    def backward(grad: Tensor, x: Tensor, padding: Sequence[Size]) -> Tensor:
        return _pad_backward(grad, x, padding, positions)


for _dims in (1, 2, 3):
    _register(f"reflection_pad{_dims}d", _reflected)
    _register(f"replication_pad{_dims}d", _clamped)
