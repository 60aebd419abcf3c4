"""Leaves of grid sampling and antialiased resizing.

In: images [N, C, ...], a grid of places or an output size. Out: images of the grid's shape.
Invariant: what is sampled at a grid is row-major, what is resized as `in_format_of` says; modes are
numbers, whose meaning each primitive states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import flops_per_output, require
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.library.pooling import in_format_of
from flambeau_prims.ops.pointwise import FLOATS
from flambeau_prims.shape_rules import Sizes, TensorMeta

aten = torch.ops.aten

_MODES = "`mode` 0 linear, 1 nearest, 2 cubic (2-d only); `padding` 0 zeros, 1 border, 2 reflection"
_FILTERS = tuple(
    op
    for op in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")
    if hasattr(aten, op)  # the last is new in torch 2.13
)


def _check_grid(a: TensorMeta, grid: TensorMeta, mode: int, padding: int) -> None:
    require(a.ndim in (4, 5) and grid.ndim == a.ndim, f"shapes {a.shape}, {grid.shape}")
    good = a.shape[0] == grid.shape[0] and grid.shape[-1] == a.ndim - 2
    require(bool(good), f"a grid of shape {grid.shape} for images {a.shape}")
    require(a.dtype == grid.dtype, f"dtypes {a.dtype} and {grid.dtype} differ")
    require(a.dtype in FLOATS, f"not defined on {a.dtype}")
    require(all(n > 0 for n in a.shape[2:]), f"an image of shape {a.shape}")
    require(mode in (0, 1, 2) and padding in (0, 1, 2), f"mode {mode}, padding {padding}")
    require(mode != 2 or a.ndim == 4, "cubic sampling is for 2-d images")


def _of_images(name: str) -> Any:
    """ATen's operator for images or volumes, by the dimensions of the first argument."""
    return lambda a, *rest: getattr(aten, name.format(a.ndim - 2)).default(a, *rest)


_leaf = partial(
    leaf,
    family="sampling",
    reason="reads at positions that are interpolated from elements, with eager's own rounding",
)


@_leaf(
    "grid_sample(Tensor a, Tensor grid, int mode, int padding, bool align_corners) -> Tensor",
    _of_images("grid_sampler_{}d"),
    flops=flops_per_output(24),
    shape="[N, C] of the images, then the grid's dimensions but the first and the last, row-major",
    edge_cases={
        "nan": "a place that is NaN counts as -1",
        "out of range": "as `padding` says",
        "note": "-1 and 1 are centres of the outer pixels if `align_corners`, else their edges",
    },
    source="Jaderberg et al.: Spatial transformer networks, 2015",
    differentiable="by grid_sample_backward",
    doc="Images at the places of `grid`, whose last dimension is x, y(, z) from -1 to 1; " + _MODES,
)
def grid_sample(a: TensorMeta, grid: TensorMeta, mode: int, padding: int) -> TensorMeta:
    _check_grid(a, grid, mode, padding)
    return a.like((*a.shape[:2], *grid.shape[1:-1]))


@_leaf(
    "grid_sample_backward(Tensor grad, Tensor a, Tensor grid, int mode, int padding,"
    " bool align_corners, bool[2] output_mask) -> (Tensor, Tensor)",
    _of_images("grid_sampler_{}d_backward"),
    flops=flops_per_output(48),
    shape="those of `a` and `grid`, row-major",
    edge_cases={"ties": "at the edge of the image the derivative of the inside", "note": _MODES},
    source="Jaderberg et al.: Spatial transformer networks, 2015",
)
def grid_sample_backward(
    grad: TensorMeta, a: TensorMeta, grid: TensorMeta, *how: Any
) -> tuple[TensorMeta | None, ...]:
    """Gradients of images and grid; None for images if `output_mask` does not ask."""
    mode, padding, _, output_mask = how
    _check_grid(a, grid, mode, padding)
    require(len(output_mask) == 2, f"a mask of {len(output_mask)} entries, not 2")
    good = grad.shape == (*a.shape[:2], *grid.shape[1:-1]) and grad.dtype == a.dtype
    require(good, f"gradient of shape {grad.shape}")
    return a.like(a.shape) if output_mask[0] else None, grid.like(grid.shape)


def _check_filter(a: TensorMeta, kind: int, scales: Sequence[float]) -> None:
    require(0 <= kind < len(_FILTERS), f"filter {kind} of {len(_FILTERS)}")
    require(len(scales) in (0, 2), f"{len(scales)} scales, not 2 or none")
    require(a.dtype in FLOATS, f"not defined on {a.dtype}")


def _filtered(suffix: str = "") -> Callable[..., Any]:
    """ATen's operator of a filter, which takes both scales or None for each."""

    def call(x: Any, sizes: Any, align_corners: bool, scales: Sequence[float], kind: int) -> Any:
        op = getattr(aten, f"{_FILTERS[kind]}{suffix}").default
        known = [list(x.shape[2:])] if suffix else []
        return op(x, *known, sizes, align_corners, *(scales or (None, None)))

    return call


@_leaf(
    "resize_antialias(Tensor a, SymInt[] output, bool align_corners, float[] scales, int kind)"
    " -> Tensor",
    _filtered(),
    flops=flops_per_output(32),
    shape="[N, C] of the images, then `output`; channels-last if the operand is",
    edge_cases="the filter's weights inside the image are scaled to sum to 1",
    source="Keys: Cubic convolution interpolation, 1981; the filters of the Pillow manual",
    differentiable="by resize_antialias_backward",
)
def resize_antialias(
    a: TensorMeta, output: Sizes, scales: Sequence[float], kind: int
) -> TensorMeta:
    """Images resized with a filter that is stretched by the factor of reduction, so that every
    pixel counts; `kind` 0: a triangle, 1: Keys' cubic of parameter -1/2, 2: Lanczos, 3 lobes."""
    _check_filter(a, kind, scales)
    good = a.ndim == 4 and len(output) == 2 and all(n > 0 for n in (*output, *a.shape[1:]))
    require(good, f"{a.shape} to {list(output)}")
    return in_format_of(a, (*a.shape[:2], *output))


@_leaf(
    "resize_antialias_backward(Tensor grad, SymInt[] input_size, bool align_corners,"
    " float[] scales, int kind) -> Tensor",
    _filtered("_backward"),
    flops=flops_per_output(32),
    shape="`input_size`; channels-last if the gradient is",
    edge_cases="as resize_antialias",
    source="Keys: Cubic convolution interpolation, 1981",
)
def resize_antialias_backward(
    grad: TensorMeta, input_size: Sizes, scales: Sequence[float], kind: int
) -> TensorMeta:
    """The transpose of resize_antialias: gradients spread by the same weights."""
    _check_filter(grad, kind, scales)
    good = grad.ndim == 4 and len(input_size) == 4 and tuple(input_size[:2]) == grad.shape[:2]
    good = good and all(n > 0 for n in (*input_size, *grad.shape))
    require(bool(good), f"gradient {grad.shape} for {list(input_size)}")
    return in_format_of(grad, tuple(input_size))
