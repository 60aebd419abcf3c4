"""Decompositions of grid sampling, antialiased resizing and pixel shuffles.

In: ATen's overloads. Out: the sampling prims, or views and products.
Invariant: what ATen gives to the library of one kind of device is left to it, whose rounding and
answers to what is no number are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition, overloads
from flambeau_prims.promotion import compute_dtype
from flambeau_prims.shape_rules import Size, Sizes, product, view_strides

aten = torch.ops.aten


@decomposition(
    *overloads("grid_sampler_2d", "default"),
    *overloads("grid_sampler_3d", "default"),
    *overloads("_grid_sampler_2d_cpu_fallback", "default"),
)
def grid_sampler(
    x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    if product((*grid.shape, *x.shape)) == 0:
        sizes = [*x.shape[:2], *grid.shape[1:-1]]
        return e.filled(x, sizes)
    return p.grid_sample(x, grid, interpolation_mode, padding_mode, align_corners)


@by_name(
    *overloads("grid_sampler_2d_backward", "default"),
    *overloads("grid_sampler_3d_backward", "default"),
    *overloads("_grid_sampler_2d_cpu_fallback_backward", "default"),
)
def grid_sampler_backward(a: Arguments) -> Any:
    how = (a.interpolation_mode, a.padding_mode, a.align_corners)
    mask = [True, True] if a.output_mask is None else [bool(m) for m in a.output_mask]
    return tuple(p.grid_sample_backward(a.grad_output, a.input, a.grid, *how, mask))


def _scales(scales: Sequence[float | None]) -> list[float] | None:
    """Both scales, none, or None where just one is given."""
    given = [s for s in scales if s is not None]
    return given if len(given) in (0, 2) else None


def _register_antialias(name: str, kind: int) -> None:
    @by_name(*overloads(name, "default"))
    def forward(a: Arguments) -> Any:
        x, scales = a.self, _scales((a.scales_h, a.scales_w))
        if scales is None or not x.dtype.is_floating_point or product(x.shape) == 0:
            return NotImplemented
        return p.resize_antialias(x, list(a.output_size), a.align_corners, scales, kind)

    @by_name(*overloads(f"{name}_backward", "default"))
    def backward(a: Arguments) -> Any:
        grad, scales = a.grad_output, _scales((a.scales_h, a.scales_w))
        if scales is None or product(grad.shape) == 0:
            return NotImplemented
        sizes = list(a.input_size)
        return p.resize_antialias_backward(grad, sizes, a.align_corners, scales, kind)


for _kind, _name in enumerate(("bilinear", "bicubic", "lanczos")):
    _register_antialias(f"_upsample_{_name}2d_aa", _kind)


def _nothing_moved(x: Tensor) -> Tensor:
    """On a CPU, without elements, the argument: of its sizes, as it lies."""
    return e.with_strides(p.clone(x), x.stride())


@decomposition(aten.pixel_unshuffle.default)
def pixel_unshuffle(x: Tensor, downscale_factor: int) -> Tensor:
    """[..., C, H r, W r] to [..., C r r, H, W]."""
    r, (*lead, c, h, w) = downscale_factor, x.shape
    if h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle: {h} by {w} is not divisible by {r}")
    if e.no_elements(x.shape) and not e.on_gpu(x):
        return _nothing_moved(x)
    n = len(lead)
    split = p.reshape(x, [*lead, c, h // r, r, w // r, r])
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    made = p.clone(p.reshape(p.permute(split, order), [*lead, c * r * r, h // r, w // r]))
    return made if e.on_gpu(x) else e.in_image_format(x, made)


_NO_VIEW = (
    "view size is not compatible with input tensor's size and stride (at least one dimension spans"
    " across two contiguous subspaces). Use .reshape(...) instead."
)


@decomposition(aten.channel_shuffle.default)
def channel_shuffle(x: Tensor, groups: Size) -> Tensor:
    """Row-major on a GPU, of what has a view of groups of channels and one of all places."""
    n, c, *rest = x.shape
    if e.no_elements(x.shape) and not e.on_gpu(x):
        return _nothing_moved(x)
    grouped = [n, groups, c // groups]
    if e.on_gpu(x) and view_strides(tuple(x.shape), x.stride(), [*grouped, product(rest)]) is None:
        raise RuntimeError(_NO_VIEW)
    split = p.reshape(x, [*grouped, *rest])
    order = [0, 2, 1, *range(3, split.ndim)]
    shuffled = p.clone(p.reshape(p.permute(split, order), [n, c, *rest]))
    return shuffled if e.on_gpu(x) else e.in_image_format(x, shuffled)


def _centres(size: Size, align_corners: bool, like: Tensor) -> Tensor:
    """`size` places from -1 to 1: the outer ones at the ends, or half a step inside."""
    dtype = compute_dtype(like.dtype)
    if size <= 1:
        return e.filled(like, [size], 0, dtype)
    step = 2.0 / float(size - 1)
    at = e.sub(e.mul(p.iota(size, 0, 1, dtype=dtype, device=like.device), step), 1.0)
    return at if align_corners else e.mul(at, float(size - 1) / float(size))


def _base_grid(theta: Tensor, size: Sizes, align_corners: bool) -> Tensor:
    """[N, places, d + 1]: homogeneous coordinates x, y(, z), 1 of each place."""
    spatial = list(size[2:])
    d = len(spatial)
    dtype = compute_dtype(theta.dtype)
    columns = []
    for place in range(d):  # x runs along the last dimension
        dim = d - 1 - place
        row = _centres(spatial[dim], align_corners, theta)
        columns.append(p.reshape(p.broadcast_in_dim(row, spatial, [dim]), [product(spatial), 1]))
    ones = e.filled(theta, [product(spatial), 1], 1, dtype)
    base = p.cat([*columns, ones], 1)
    return p.broadcast_in_dim(base, [size[0], *base.shape], [1, 2])


@decomposition(*overloads("affine_grid_generator", "default"))
def affine_grid(theta: Tensor, size: Sizes, align_corners: bool) -> Tensor:
    base = _base_grid(theta, size, align_corners)
    wide = e.widen(theta)
    grid = p.bmm(base, p.permute(wide, [0, 2, 1]))
    return e.cast(p.reshape(grid, [size[0], *size[2:], len(size) - 2]), theta.dtype)


@decomposition(*overloads("cudnn_affine_grid_generator", "default"))
def cudnn_affine_grid(theta: Tensor, n: int, c: int, h: int, w: int) -> Tensor:
    return affine_grid(theta, (n, c, h, w), True)


@decomposition(*overloads("cudnn_affine_grid_generator_backward", "default"))
def cudnn_affine_grid_backward(grad: Tensor, n: int, c: int, h: int, w: int) -> Tensor:
    base = _base_grid(grad, (n, c, h, w), True)
    flat = p.reshape(e.widen(grad), [n, h * w, 2])
    return e.cast(p.bmm(p.permute(flat, [0, 2, 1]), base), grad.dtype)
