"""Two-dimensional pooling and its backward, run by the library.

In: images of shape [N, C, H, W] or [C, H, W]. Out: pooled images; positions count within H * W.
Invariant: kernel, stride, padding and dilation are given in full (two numbers each).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flambeau_prims._op import (
    define,
    flops_per_input,
    flops_per_output,
    in_layout,
    require,
)
from flambeau_prims.layout import (
    Size,
    TensorMeta,
    channels_last_strides,
    suggests_channels_last,
)


def pooled_size(
    size: Size, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> Size:
    """Number of windows along one dimension; with `ceil_mode` the last may hang over the end,
    but must start inside the image or its left padding."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + padding:
        out = out - 1
    return out


def _pooled(
    name: str,
    a: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> TensorMeta:
    lists = (kernel, stride, padding, dilation)
    require(a.ndim in (3, 4), f"{name}: a {a.ndim}-d tensor is not an image")
    require(all(len(x) == 2 for x in lists), f"{name}: geometry must have two numbers each")
    sizes = [
        pooled_size(
            a.shape[a.ndim - 2 + i], kernel[i], stride[i], padding[i], dilation[i], ceil_mode
        )
        for i in range(2)
    ]
    require(all(size > 0 for size in sizes), f"{name}: the window does not fit into {a.shape}")
    return _in_format_of(a, (*a.shape[:-2], *sizes))


def _in_format_of(a: TensorMeta, shape: Sequence[Size]) -> TensorMeta:
    if a.ndim == 4 and suggests_channels_last(a):
        return a.like(shape, channels_last_strides(shape))
    return a.like(shape)


def _max_rule(
    a: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[TensorMeta, TensorMeta]:
    values = _pooled("max_pool2d", a, kernel, stride, padding, dilation, ceil_mode)
    return values, values.like(dtype=torch.int64)


def _max(a: torch.Tensor, *geometry: Any) -> Any:
    result = torch.ops.aten.max_pool2d_with_indices.default(a, *geometry)
    return in_layout(result, _max_rule(TensorMeta.of(a), *geometry))


max_pool2d_with_indices = define(
    "max_pool2d_with_indices(Tensor a, int[] kernel, int[] stride, int[] padding, int[] dilation,"
    " bool ceil_mode) -> (Tensor, Tensor)",
    rule=_max_rule,
    eager=_max,
    tags=("library",),
    doc="The largest of each window and its position h * W + w; NaN wins.",
    flops=flops_per_output(9),
)


def _max_backward_rule(
    grad: TensorMeta,
    a: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: TensorMeta,
) -> TensorMeta:
    pooled = _pooled("max_pool2d_backward", a, kernel, stride, padding, dilation, ceil_mode)
    good = grad.shape == pooled.shape == indices.shape
    require(good, f"max_pool2d_backward: gradient {grad.shape}, windows {pooled.shape}")
    return _in_format_of(a, a.shape)


def _max_backward(grad: torch.Tensor, a: torch.Tensor, *rest: Any) -> Any:
    result = torch.ops.aten.max_pool2d_with_indices_backward.default(grad, a, *rest)
    return in_layout(result, _in_format_of(TensorMeta.of(a), tuple(a.shape)))


max_pool2d_with_indices_backward = define(
    "max_pool2d_with_indices_backward(Tensor grad, Tensor a, int[] kernel, int[] stride,"
    " int[] padding, int[] dilation, bool ceil_mode, Tensor indices) -> Tensor",
    rule=_max_backward_rule,
    eager=_max_backward,
    tags=("library",),
    doc="Each gradient added at the position its window's largest element came from.",
    flops=flops_per_input(1),
)


def _avg_rule(
    a: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> TensorMeta:
    del count_include_pad, divisor
    return _pooled("avg_pool2d", a, kernel, stride, padding, (1, 1), ceil_mode)


def _avg(a: torch.Tensor, *geometry: Any) -> Any:
    result = torch.ops.aten.avg_pool2d.default(a, *geometry)
    return in_layout(result, _avg_rule(TensorMeta.of(a), *geometry))


avg_pool2d = define(
    "avg_pool2d(Tensor a, int[] kernel, int[] stride, int[] padding, bool ceil_mode,"
    " bool count_include_pad, int? divisor) -> Tensor",
    rule=_avg_rule,
    eager=_avg,
    tags=("library",),
    doc="The mean of each window, or its sum over `divisor`.",
    flops=flops_per_output(9),
)


def _avg_backward_rule(
    grad: TensorMeta,
    a: TensorMeta,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> TensorMeta:
    pooled = _avg_rule(a, kernel, stride, padding, ceil_mode, count_include_pad, divisor)
    require(
        grad.shape == pooled.shape,
        f"avg_pool2d_backward: gradient {grad.shape}, windows {pooled.shape}",
    )
    return _in_format_of(a, a.shape)


def _avg_backward(grad: torch.Tensor, a: torch.Tensor, *rest: Any) -> Any:
    result = torch.ops.aten.avg_pool2d_backward.default(grad, a, *rest)
    return in_layout(result, _in_format_of(TensorMeta.of(a), tuple(a.shape)))


avg_pool2d_backward = define(
    "avg_pool2d_backward(Tensor grad, Tensor a, int[] kernel, int[] stride, int[] padding,"
    " bool ceil_mode, bool count_include_pad, int? divisor) -> Tensor",
    rule=_avg_backward_rule,
    eager=_avg_backward,
    tags=("library",),
    doc="Each gradient spread evenly over the window it came from.",
    flops=flops_per_input(9),
)
