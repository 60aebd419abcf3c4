"""Resampling of images by nearest neighbour and bilinear interpolation.

In: [N, C, H, W] and an output size. Out: rows and columns picked by computed positions, blended.
Invariant: positions are computed in float32 by eager's formulas, so the same pixels are picked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.layout import Size
from flambeau_prims.promotion import compute_dtype
from flambeau_prims.table import decomposition

aten = torch.ops.aten


def _positions(size: Size, device: torch.device) -> Tensor:
    return p.iota(size, 0, 1, dtype=torch.float32, device=device)


def _nearest(size: Size, output: Size, scale: float | None, device: torch.device) -> Tensor:
    ratio = float(size) / float(output) if not scale else 1.0 / scale
    picked = p.floor(e.mul(_positions(output, device), ratio))
    return p.cast(e.minimum(picked, float(size - 1)), dtype=torch.int64)


@decomposition(aten.upsample_nearest2d.default)
def upsample_nearest2d(
    x: Tensor,
    output_size: Sequence[Size],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor:
    rows = _nearest(x.shape[2], output_size[0], scales_h, x.device)
    columns = _nearest(x.shape[3], output_size[1], scales_w, x.device)
    return e.in_image_format(x, p.index_select(p.index_select(x, 2, rows), 3, columns))


def _linear(
    size: Size, output: Size, align_corners: bool, scale: float | None, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """(lower position, upper position, weight of the upper) of each output position."""
    at = _positions(output, device)
    if align_corners:
        at = e.mul(at, float(size - 1) / float(output - 1) if output > 1 else 0.0)
    else:
        ratio = float(size) / float(output) if not scale else 1.0 / scale
        at = e.maximum(e.sub(e.mul(e.add(at, 0.5), ratio), 0.5), 0.0)
    floor = e.minimum(p.floor(at), float(size - 1))
    weight = e.minimum(p.sub(at, floor), 1.0)
    upper = e.minimum(e.add(floor, 1.0), float(size - 1))
    return p.cast(floor, dtype=torch.int64), p.cast(upper, dtype=torch.int64), weight


def _blend(x: Tensor, dim: int, lower: Tensor, upper: Tensor, weight: Tensor) -> Tensor:
    a, b = p.index_select(x, dim, lower), p.index_select(x, dim, upper)
    w = p.broadcast_in_dim(e.cast(weight, x.dtype), list(a.shape), [dim])
    return p.add(p.mul(a, e.sub(1.0, w)), p.mul(b, w))


@decomposition(aten.upsample_bilinear2d.default)
def upsample_bilinear2d(
    x: Tensor,
    output_size: Sequence[Size],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Any:
    if not x.dtype.is_floating_point or x.dtype == torch.float64:
        return NotImplemented  # positions would have to be computed in float64
    wide = e.cast(x, compute_dtype(x.dtype))
    rows = _linear(x.shape[2], output_size[0], align_corners, scales_h, x.device)
    columns = _linear(x.shape[3], output_size[1], align_corners, scales_w, x.device)
    blended = _blend(_blend(wide, 3, *columns), 2, *rows)
    return e.in_image_format(x, e.cast(blended, x.dtype))
