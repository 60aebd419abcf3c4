"""Leaves of grid sampling and antialiased resizing.

In: images [N, C, ...], a grid of places or an output size. Out: images of the grid's shape.
Invariant: what is sampled at a grid is row-major, what is resized as `in_format_of` says; modes are
numbers, whose meaning each primitive states.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import flops_per_output, require
from flambeau_prims.layout import Size, TensorMeta
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.library.pooling import in_format_of
from flambeau_prims.ops.pointwise import FLOATS

aten = torch.ops.aten

_MODES = "`mode` 0 linear, 1 nearest, 2 cubic (2-d only); `padding` 0 zeros, 1 border, 2 reflection"
_FILTERS = tuple(
    op
    for op in ("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_lanczos2d_aa")
    if hasattr(aten, op)  # the last is new in torch 2.13
)


def _check_grid(name: str, a: TensorMeta, grid: TensorMeta, mode: int, padding: int) -> None:
    require(a.ndim in (4, 5) and grid.ndim == a.ndim, f"{name}: shapes {a.shape}, {grid.shape}")
    good = a.shape[0] == grid.shape[0] and grid.shape[-1] == a.ndim - 2
    require(bool(good), f"{name}: a grid of shape {grid.shape} for images {a.shape}")
    require(a.dtype == grid.dtype, f"{name}: dtypes {a.dtype} and {grid.dtype} differ")
    require(a.dtype in FLOATS, f"{name}: not defined on {a.dtype}")
    require(all(n > 0 for n in a.shape[2:]), f"{name}: an image of shape {a.shape}")
    require(mode in (0, 1, 2) and padding in (0, 1, 2), f"{name}: mode {mode}, padding {padding}")
    require(mode != 2 or a.ndim == 4, f"{name}: cubic sampling is for 2-d images")


def _grid_rule(
    a: TensorMeta, grid: TensorMeta, mode: int, padding: int, align_corners: bool
) -> TensorMeta:
    del align_corners
    _check_grid("grid_sample", a, grid, mode, padding)
    return a.like((*a.shape[:2], *grid.shape[1:-1]))


def _of_images(name: str) -> Any:
    """ATen's operator for images or volumes, by the dimensions of the first argument."""
    return lambda a, *rest: getattr(aten, name.format(a.ndim - 2)).default(a, *rest)


_leaf = partial(
    leaf,
    family="sampling",
    reason="reads at positions that are interpolated from elements, with eager's own rounding",
)

_leaf(
    "grid_sample(Tensor a, Tensor grid, int mode, int padding, bool align_corners) -> Tensor",
    _grid_rule,
    _of_images("grid_sampler_{}d"),
    "Images at the places of `grid`, whose last dimension is x, y(, z) from -1 to 1; " + _MODES,
    flops=flops_per_output(24),
    shape="[N, C] of the images, then the grid's dimensions but the first and the last, row-major",
    edge_cases={
        "nan": "a place that is NaN counts as -1",
        "out of range": "as `padding` says",
        "note": "-1 and 1 are centres of the outer pixels if `align_corners`, else their edges",
    },
    source="Jaderberg et al.: Spatial transformer networks, 2015",
    differentiable="by grid_sample_backward",
)


def _grid_back_rule(
    grad: TensorMeta,
    a: TensorMeta,
    grid: TensorMeta,
    mode: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[TensorMeta | None, ...]:
    name = "grid_sample_backward"
    _check_grid(name, a, grid, mode, padding)
    del align_corners
    require(len(output_mask) == 2, f"{name}: a mask of {len(output_mask)} entries, not 2")
    require(
        grad.shape == (*a.shape[:2], *grid.shape[1:-1]) and grad.dtype == a.dtype,
        f"{name}: gradient of shape {grad.shape}",
    )
    return a.like(a.shape) if output_mask[0] else None, grid.like(grid.shape)


_leaf(
    "grid_sample_backward(Tensor grad, Tensor a, Tensor grid, int mode, int padding,"
    " bool align_corners, bool[2] output_mask) -> (Tensor, Tensor)",
    _grid_back_rule,
    _of_images("grid_sampler_{}d_backward"),
    "Gradients of images and grid; None for images if `output_mask` does not ask.",
    flops=flops_per_output(48),
    shape="those of `a` and `grid`, row-major",
    edge_cases={"ties": "at the edge of the image the derivative of the inside", "note": _MODES},
    source="Jaderberg et al.: Spatial transformer networks, 2015",
)


def _check_filter(name: str, kind: int, scales: Sequence[float]) -> None:
    require(0 <= kind < len(_FILTERS), f"{name}: filter {kind} of {len(_FILTERS)}")
    require(len(scales) in (0, 2), f"{name}: {len(scales)} scales, not 2 or none")


def _resize_rule(
    a: TensorMeta, output: Sequence[Size], align_corners: bool, scales: Sequence[float], kind: int
) -> TensorMeta:
    name = "resize_antialias"
    del align_corners
    _check_filter(name, kind, scales)
    require(a.ndim == 4 and len(output) == 2, f"{name}: {a.shape} to {list(output)}")
    require(a.dtype in FLOATS, f"{name}: not defined on {a.dtype}")
    good = all(n > 0 for n in (*output, *a.shape[1:]))
    require(good, f"{name}: {a.shape} to {list(output)}")
    return in_format_of(a, (*a.shape[:2], *output))


def _scales(scales: Sequence[float]) -> tuple[float | None, float | None]:
    return (scales[0], scales[1]) if len(scales) else (None, None)


def _resize(
    a: torch.Tensor, output: Any, align_corners: bool, scales: Sequence[float], kind: int
) -> Any:
    op = getattr(aten, _FILTERS[kind]).default
    return op(a, output, align_corners, *_scales(scales))


_leaf(
    "resize_antialias(Tensor a, SymInt[] output, bool align_corners, float[] scales, int kind)"
    " -> Tensor",
    _resize_rule,
    _resize,
    "Images resized with a filter that is stretched by the factor of reduction, so that every"
    " pixel counts; `kind` 0: a triangle, 1: Keys' cubic of parameter -1/2, 2: Lanczos, 3 lobes.",
    flops=flops_per_output(32),
    shape="[N, C] of the images, then `output`; channels-last if the operand is",
    edge_cases="the filter's weights inside the image are scaled to sum to 1",
    source="Keys: Cubic convolution interpolation, 1981; the filters of the Pillow manual",
    differentiable="by resize_antialias_backward",
)


def _resize_back_rule(
    grad: TensorMeta,
    input_size: Sequence[Size],
    align_corners: bool,
    scales: Sequence[float],
    kind: int,
) -> TensorMeta:
    name = "resize_antialias_backward"
    del align_corners
    _check_filter(name, kind, scales)
    good = grad.ndim == 4 and len(input_size) == 4 and tuple(input_size[:2]) == grad.shape[:2]
    good = good and all(n > 0 for n in (*input_size, *grad.shape))
    require(bool(good), f"{name}: gradient {grad.shape} for {list(input_size)}")
    require(grad.dtype in FLOATS, f"{name}: not defined on {grad.dtype}")
    return in_format_of(grad, tuple(input_size))


def _resize_back(
    grad: torch.Tensor, input_size: Any, align_corners: bool, scales: Any, kind: int
) -> Any:
    op = getattr(aten, f"{_FILTERS[kind]}_backward").default
    return op(grad, list(grad.shape[2:]), input_size, align_corners, *_scales(scales))


_leaf(
    "resize_antialias_backward(Tensor grad, SymInt[] input_size, bool align_corners,"
    " float[] scales, int kind) -> Tensor",
    _resize_back_rule,
    _resize_back,
    "The transpose of resize_antialias: gradients spread by the same weights.",
    flops=flops_per_output(32),
    shape="`input_size`; channels-last if the gradient is",
    edge_cases="as resize_antialias",
    source="Keys: Cubic convolution interpolation, 1981",
)
