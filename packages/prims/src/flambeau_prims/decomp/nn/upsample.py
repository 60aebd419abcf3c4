"""Decompositions of image resampling: nearest, linear, cubic; forward and backward.

In: [N, C, ...] of one to three spatial dimensions, and an output size. Out: for each dimension in
turn, entries picked by computed positions and blended by computed weights; the backward adds
weighted gradients at the same positions. Where each entry is picked equally often, it is repeated
by its shape alone, and the backward is a sum.
Invariant: positions are computed by eager's formulas in eager's dtype (float32, but float64 where
interpolation of float64 weighs), so that the same entries are picked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import eq
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomposition_table import Arguments, by_name, overloads
from flambeau_prims.promotion import compute_dtype
from flambeau_prims.shape_rules import Size, Sizes

aten = torch.ops.aten

Taps = list[tuple[Tensor, Tensor | None]]
"""What an output entry is made of: positions along a dimension, each with its weights."""

CUBIC = -0.75
"""The free parameter of cubic convolution (Keys 1981)."""


def _iota(size: Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    return p.iota(size, 0, 1, dtype=dtype, device=device)


def _ratio(size: Size, output: Size, at: Tensor, scale: float | None = None) -> float | Tensor:
    """From one place to the next: a number, or a tensor of the kind of `at` for an open size."""
    if scale:
        return 1.0 / scale
    if isinstance(size, int) and isinstance(output, int):
        return size / output
    return e.div(e.filled(at, [], size), e.filled(at, [], output))


def _nearest(
    size: Size, output: Size, scale: float | None, exact: bool, device: torch.device
) -> Taps:
    at = _iota(output, torch.float32, device)
    picked = p.floor(e.mul(e.add(at, 0.5) if exact else at, _ratio(size, output, at, scale)))
    return [(_index(picked, size), None)]


@lru_cache(maxsize=256)
def _repeats(size: int, output: int, scale: float | None, exact: bool) -> int | None:
    """How often each entry is picked, where all are equally often, and one after the other; None
    elsewhere."""
    if not size or output % size:
        return None
    times, ratio = output // size, _float32(1.0 / scale if scale else size / output)
    places = (_float32(_float32(place + 0.5 * exact) * ratio) for place in range(output))
    return times if all(int(at) == k // times for k, at in enumerate(places)) else None


def _float32(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def _index(at: Tensor, size: Size) -> Tensor:
    """Positions in the image: what lies outside is at its border."""
    return p.cast(e.maximum(e.minimum(at, e.as_number(size - 1)), 0.0), dtype=torch.int64)


def _places(
    size: Size,
    output: Size,
    align_corners: bool,
    scale: float | None,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    at = _iota(output, dtype, device)
    if align_corners:
        return e.mul(at, _ratio(size - 1, output - 1, at) if output > 1 else 0.0)
    # contracted as eager's: a place of a rounded ratio is hardly an entry's own, and what weighs
    # nothing, and is infinite, makes no number
    return e.fused(e.add(at, 0.5), _ratio(size, output, at, scale), -0.5)


def _linear(at: Tensor, size: Size, align_corners: bool) -> Taps:
    if not align_corners:
        at = e.maximum(at, 0.0)
    floor, weight = _split(at, size)
    upper = _index(e.add(floor, 1.0), size)
    return [(_index(floor, size), e.sub(1.0, weight)), (upper, weight)]


def _split(at: Tensor, size: Size) -> tuple[Tensor, Tensor]:
    """(the entry at or before each place, how far the place is from it). Eager's floor is that of
    float32, whatever the place is computed in."""
    floor = e.cast(p.floor(e.cast(at, torch.float32)), at.dtype)
    floor = e.minimum(floor, e.as_number(size - 1))
    return floor, e.minimum(e.maximum(p.sub(at, floor), 0.0), 1.0)


def _near(x: Tensor) -> Tensor:
    """Keys' kernel for distances up to 1."""
    inner = e.sub(e.mul(x, CUBIC + 2.0), CUBIC + 3.0)
    return e.add(p.mul(p.mul(inner, x), x), 1.0)


def _far(x: Tensor) -> Tensor:
    """Keys' kernel for distances from 1 to 2."""
    inner = e.add(p.mul(e.sub(e.mul(x, CUBIC), 5.0 * CUBIC), x), 8.0 * CUBIC)
    return e.sub(p.mul(inner, x), 4.0 * CUBIC)


def _cubic(at: Tensor, size: Size, align_corners: bool) -> Taps:
    del align_corners  # already in the places
    floor, t = _split(at, size)
    rest = e.sub(1.0, t)
    weights = [_far(e.add(t, 1.0)), _near(t), _near(rest), _far(e.add(rest, 1.0))]
    return [(_index(e.add(floor, k - 1.0), size), weight) for k, weight in enumerate(weights)]


def _along(weight: Tensor, x: Tensor, dim: int) -> Tensor:
    return p.broadcast_in_dim(e.cast(weight, x.dtype), list(x.shape), [dim])


def _weighed(x: Tensor, weight: Tensor | None, dim: int) -> Tensor:
    return x if weight is None else p.mul(x, _along(weight, x, dim))


def pick(x: Tensor, dim: int, taps: Taps) -> Tensor:
    """`x` resampled along one dimension: eager's kernels contract every product but the second."""
    parts = [p.index_select(x, dim, index) for index, _ in taps]
    weights = [_along(weight, parts[0], dim) for _, weight in taps if weight is not None]
    if not weights:
        return parts[0]
    total = p.fma(parts[0], weights[0], p.mul(parts[1], weights[1]))
    for part, weight in zip(parts[2:], weights[2:], strict=True):
        total = p.fma(part, weight, total)
    return total


def put_back(grad: Tensor, dim: int, size: Size, taps: Taps) -> Tensor:
    """The gradient of `pick`: each entry added where it was picked from."""
    shape = [size if d == dim else n for d, n in enumerate(grad.shape)]
    total = e.filled(grad, shape)
    for index, weight in taps:
        total = p.index_put(total, [None] * dim + [index], _weighed(grad, weight, dim), True)
    return total


def _repeat(x: Tensor, times: Sequence[int]) -> Tensor:
    """Each entry of the spatial dimensions so many times."""
    split = [*x.shape[:2]]
    kept = [0, 1]
    for size, count in zip(x.shape[2:], times, strict=True):
        kept.append(len(split))
        split += [size, count]
    whole = [size * count for size, count in zip(x.shape[2:], times, strict=True)]
    return p.reshape(p.broadcast_in_dim(x, split, kept), [*x.shape[:2], *whole])


def _sum_repeated(grad: Tensor, times: Sequence[int]) -> Tensor:
    """The gradient of `_repeat`."""
    split, summed = [*grad.shape[:2]], []
    for size, count in zip(grad.shape[2:], times, strict=True):
        split += [size // count, count]
        summed.append(len(split) - 1)
    return p.sum(p.reshape(grad, split), summed)


MakeTaps = Callable[[Size, Size, int], Taps]
"""(size, output size, number of the spatial dimension) -> what the outputs are made of."""


def _forward(x: Tensor, output: Sizes, taps: MakeTaps, wide: bool) -> Tensor:
    y = e.cast(x, compute_dtype(x.dtype)) if wide else x
    for place in reversed(range(len(output))):
        dim = 2 + place
        y = pick(y, dim, taps(x.shape[dim], output[place], place))
    return e.in_image_format(x, e.cast(y, x.dtype))


def _backward(grad: Tensor, input_size: Sizes, taps: MakeTaps, rows: bool = False) -> Tensor:
    """The gradient by the image: in the format of `grad`, or row-major if `rows`."""
    g = e.widen(grad)
    for place in range(grad.ndim - 2):
        dim = 2 + place
        made = taps(input_size[dim], grad.shape[dim], place)
        g = put_back(g, dim, input_size[dim], made)
    return _formatted(grad, e.cast(g, grad.dtype), rows)


def _formatted(grad: Tensor, found: Tensor, rows: bool) -> Tensor:
    return e.in_format(found, torch.contiguous_format) if rows else e.in_image_format(grad, found)


def _scale(scales: Sequence[float | None], place: int) -> float | None:
    return scales[place] if place < len(scales) else None


def _nearest_taps(exact: bool, device: torch.device, scales: Sequence[float | None]) -> MakeTaps:
    return lambda size, output, place: _nearest(size, output, _scale(scales, place), exact, device)


def _weighing_taps(
    kind: Callable[..., Taps], align_corners: bool, like: Tensor, scales: Sequence[float | None]
) -> MakeTaps:
    dtype = compute_dtype(like.dtype)

    def taps(size: Size, output: Size, place: int) -> Taps:
        scale = _scale(scales, place)
        if kind is _linear and size == output and like.device.type == "cpu":
            # A dimension that keeps its size is not resampled, whatever its scale is: each entry
            # is weighed with itself, so that what is infinite becomes no number.
            index = _iota(size, torch.int64, like.device)
            weight = e.filled(like, [size], 1, dtype)
            return [(index, weight), (index, e.sub(1.0, weight))]
        at = _places(size, output, align_corners, scale, dtype, like.device)
        return kind(at, size, align_corners)

    return taps


def _times(
    sizes: Sizes, output: Sizes, scales: Sequence[float | None], exact: bool
) -> list[int] | None:
    """`_repeats` of each spatial dimension, or None where one has none or a size is left open."""
    if not all(isinstance(size, int) for size in (*sizes, *output)):
        return None
    found = [
        _repeats(int(size), int(target), _scale(scales, place), exact)
        for place, (size, target) in enumerate(zip(sizes, output, strict=True))
    ]
    return [n for n in found if n is not None] if None not in found else None


def _scales(a: Arguments) -> list[float | None]:
    """Those of the spatial dimensions: one by itself, two or three by their letters."""
    return [scale for name, scale in vars(a).items() if name.startswith("scales")]


SMALL = 128
"""Up to this sum of height and width eager's CPU kernels take images entry by entry."""


def _entry_by_entry(x: Tensor, output: Sizes) -> bool:
    """Whether eager picks the nearest entries by the kernel for channels that lie innermost."""
    if x.ndim == 3 or x.device.type != "cpu":
        return False
    last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
    innermost = x.shape[1] > 3 and x.is_contiguous(memory_format=last)
    return innermost or (x.ndim == 4 and output[0] + output[1] <= SMALL)


def _counting(scales: Sequence[float | None], sizes: Sizes, output: Sizes) -> list[float | None]:
    """The scales that count where eager goes entry by entry, and for its gradient on a CPU: not
    those of dimensions that keep or double their size. (Open sizes are compared where a scale
    could say otherwise than they do.)"""
    return [
        None if scale not in (None, 1.0, 2.0) and n in (size, 2 * size) else scale
        for scale, size, n in zip(scales, sizes, output, strict=True)
    ]


def _register_nearest(name: str, exact: bool) -> None:
    rows = name.endswith("3d")  # of the gradient

    @by_name(*overloads(name, "default"))
    def forward(a: Arguments) -> Tensor:
        x, scales = a.self, _scales(a)
        counting = scales if exact else _counting(scales, x.shape[2:], a.output_size)
        if counting != scales and _entry_by_entry(x, a.output_size):
            scales = counting
        if (times := _times(x.shape[2:], a.output_size, scales, exact)) is not None:
            return e.in_image_format(x, _repeat(x, times))
        return _forward(x, a.output_size, _nearest_taps(exact, x.device, scales), False)

    @by_name(*overloads(f"{name}_backward", "default"))
    def backward(a: Arguments) -> Tensor:
        grad, scales = a.grad_output, _scales(a)
        if not exact and grad.device.type == "cpu":
            scales = _counting(scales, a.input_size[2:], a.output_size)
        times = _times(a.input_size[2:], a.output_size, scales, exact)
        if times is None:
            return _backward(grad, a.input_size, _nearest_taps(exact, grad.device, scales), rows)
        found = e.cast(_sum_repeated(e.widen(grad), times), grad.dtype)
        return _formatted(grad, found, rows)


def _register_weighing(name: str, kind: Callable[..., Taps]) -> None:
    @by_name(*overloads(name, "default"))
    def forward(a: Arguments) -> Any:
        if not a.self.dtype.is_floating_point:
            return NotImplemented  # bytes are blended in fixed point
        taps = _weighing_taps(kind, a.align_corners, a.self, _scales(a))
        return _forward(a.self, a.output_size, taps, True)

    @by_name(*overloads(f"{name}_backward", "default"))
    def backward(a: Arguments) -> Tensor:
        if kind is _cubic and all(map(eq, a.input_size[2:], a.output_size)):
            return p.clone(a.grad_output)  # of an image that keeps its size, whatever its scale
        taps = _weighing_taps(kind, a.align_corners, a.grad_output, _scales(a))
        return _backward(a.grad_output, a.input_size, taps, rows=kind is _cubic)


for _dims in (1, 2, 3):
    _register_nearest(f"upsample_nearest{_dims}d", False)
    _register_nearest(f"_upsample_nearest_exact{_dims}d", True)
for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    _register_weighing(_name, _linear)
_register_weighing("upsample_bicubic2d", _cubic)
