"""Decompositions of convolution, under its libraries' names as well.

In: ATen's overloads, whose geometry lists may be short or empty. Out: the convolution prims.
Invariant: geometry is written out in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.layout import Size, Sizes

aten = torch.ops.aten


def full(values: Sizes | int, count: int) -> list[Size]:
    """A geometry list written out: one number stands for all dimensions."""
    given = [values] if isinstance(values, int) else list(values)
    return given * count if len(given) == 1 else given


@decomposition(aten.convolution.default, aten.convolution_overrideable.default)
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: Size,
) -> Any:
    n = weight.ndim - 2
    if x.ndim != weight.ndim or x.dtype != weight.dtype:
        return NotImplemented
    geometry = [full(v, n) for v in (stride, padding, dilation)]
    return p.convolution(x, weight, bias, *geometry, transposed, full(output_padding, n), groups)


@decomposition(aten.convolution_backward.default)
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: Size,
    output_mask: Sequence[bool],
) -> Any:
    n = weight.ndim - 2
    wants_bias = output_mask[2]
    geometry = [full(v, n) for v in (stride, padding, dilation)]
    mask = [output_mask[0], output_mask[1], False]
    first: Any = (None, None, None)
    if any(mask):
        first = p.convolution_backward(
            grad, x, weight, bias_sizes, *geometry, transposed, full(output_padding, n), groups,
            mask,
        )  # fmt: skip
    bias = None
    if wants_bias:  # a plain sum, which fuses with what made the gradient
        dims = [d for d in range(grad.ndim) if d != 1]
        bias = e.cast(p.sum(e.widen(grad), dims), grad.dtype)
    return (first[0] if mask[0] else None, first[1] if mask[1] else None, bias)


def _plain(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes = (1,),
    groups: Size = 1,
    output_padding: Sizes | None = None,
) -> Any:
    """A convolution, transposed if `output_padding` is given; also of one image without batch."""
    alone = x.ndim == weight.ndim - 1
    image = p.reshape(x, [1, *x.shape]) if alone else x
    out = convolution(
        image, weight, bias, stride, padding, dilation, output_padding is not None,
        (0,) if output_padding is None else output_padding, groups,
    )  # fmt: skip
    if out is NotImplemented or not alone:
        return out
    return p.reshape(out, list(out.shape[1:]))


@decomposition(aten._convolution.default)
def any_library(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Any:
    return convolution(x, weight, bias, *geometry[:6])


@decomposition(
    aten._slow_conv2d_forward.default,
    aten.slow_conv3d_forward.default,
    aten.slow_conv_dilated2d.default,
    aten.slow_conv_dilated3d.default,
)
def slow(
    x: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
) -> Any:
    del kernel_size  # as the weights have it
    if weight.ndim == 2:  # unfolded weights of the kernel's internals
        return NotImplemented
    return _plain(x, weight, bias, stride, padding, dilation)


@decomposition(aten.slow_conv_transpose2d.default, aten.slow_conv_transpose3d.default)
def slow_transposed(
    x: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    output_padding: Sizes = (0,),
    dilation: Sizes = (1,),
) -> Any:
    del kernel_size
    return _plain(x, weight, bias, stride, padding, dilation, 1, output_padding)


@decomposition(aten._conv_depthwise2d.default, aten.conv_depthwise3d.default)
def depthwise(
    x: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
) -> Any:
    del kernel_size
    return _plain(x, weight, bias, stride, padding, dilation, x.shape[x.ndim - weight.ndim + 1])


@decomposition(aten.conv_tbc.default)
def time_first(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Any:
    """[T, B, C] by [K, C, O] to [T', B, O]."""
    image = p.permute(x, [1, 2, 0])
    out = _plain(image, p.permute(weight, [2, 1, 0]), bias, (1,), (pad,))
    return out if out is NotImplemented else p.permute(out, [2, 0, 1])


@decomposition(aten.convolution_backward_overrideable.default)
def convolution_backward_overrideable(
    grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, **named: Any
) -> Any:
    mask = named.pop("output_mask", None)
    geometry = list(rest) + ([mask] if mask is not None else [])
    return convolution_backward(grad, x, weight, None, *geometry)


@decomposition(aten._slow_conv2d_backward.output_mask)
def slow_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    output_mask: Sequence[bool],
) -> Any:
    del kernel_size
    if x.ndim != 4 or weight.ndim != 4:
        return NotImplemented
    geometry = (stride, padding, (1,), False, (0,), 1)
    return convolution_backward(grad, x, weight, None, *geometry, output_mask)
