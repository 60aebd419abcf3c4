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
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition
from flambeau_prims.ops.library.convolution import Geometry
from flambeau_prims.shape_rules import Size, Sizes

aten = torch.ops.aten


def full(values: Sizes | int, count: int) -> list[Size]:
    """A geometry list written out: one number stands for all dimensions."""
    given = [values] if isinstance(values, int) else list(values)
    return given * count if len(given) == 1 else given


def _in_full(how: Geometry, n: int) -> Geometry:
    return how._replace(
        stride=full(how.stride, n),
        padding=full(how.padding, n),
        dilation=full(how.dilation, n),
        output_padding=full(how.output_padding, n),
    )


def _geometry(a: Arguments) -> Geometry:
    return Geometry(*(getattr(a, name) for name in Geometry._fields))


def _convolved(x: Tensor, weight: Tensor, bias: Tensor | None, how: Geometry) -> Any:
    """A convolution, also of one image without batch."""
    alone = x.ndim == weight.ndim - 1
    image = p.reshape(x, [1, *x.shape]) if alone else x
    if image.ndim != weight.ndim or x.dtype != weight.dtype:
        return NotImplemented
    out = p.convolution(image, weight, bias, *_in_full(how, weight.ndim - 2))
    return p.reshape(out, list(out.shape[1:])) if alone else out


@by_name(aten.convolution.default, aten.convolution_overrideable.default, aten._convolution.default)
def convolution(a: Arguments) -> Any:
    if a.input.ndim != a.weight.ndim:
        return NotImplemented
    return _convolved(a.input, a.weight, a.bias, _geometry(a))


def _differentiated(
    grad: Tensor, x: Tensor, weight: Tensor, sizes: Any, how: Geometry, wanted: Sequence[bool]
) -> Any:
    mask = [wanted[0], wanted[1], False]
    first: Any = (None, None, None)
    if any(mask):
        geometry = _in_full(how, weight.ndim - 2)
        first = p.convolution_backward(grad, x, weight, sizes, *geometry, mask)
    bias = None
    if wanted[2]:  # a plain sum, which fuses with what made the gradient
        dims = [d for d in range(grad.ndim) if d != 1]
        bias = e.cast(p.sum(e.widen(grad), dims), grad.dtype)
    return (first[0] if mask[0] else None, first[1] if mask[1] else None, bias)


@by_name(aten.convolution_backward.default, aten.convolution_backward_overrideable.default)
def convolution_backward(a: Arguments) -> Any:
    how = _geometry(a)
    return _differentiated(a.grad_output, a.input, a.weight, a.bias_sizes, how, a.output_mask)


def _slow(a: Arguments, groups: Size) -> Any:
    """Of a kernel of torch's own, transposed if it has padding of the output."""
    turned = a.output_padding is not None
    dilation, extra = a.dilation or (1,), a.output_padding if turned else (0,)
    how = Geometry(a.stride, a.padding, dilation, turned, extra, groups)
    return _convolved(a.self, a.weight, a.bias, how)


@by_name(
    aten._slow_conv2d_forward.default,
    aten.slow_conv3d_forward.default,
    aten.slow_conv_dilated2d.default,
    aten.slow_conv_dilated3d.default,
    aten.slow_conv_transpose2d.default,
    aten.slow_conv_transpose3d.default,
)
def slow(a: Arguments) -> Any:
    if a.weight.ndim == 2:  # unfolded weights of the kernel's internals
        return NotImplemented
    return _slow(a, 1)


@by_name(aten._conv_depthwise2d.default, aten.conv_depthwise3d.default, absent=("output_padding",))
def depthwise(a: Arguments) -> Any:
    return _slow(a, a.self.shape[a.self.ndim - a.weight.ndim + 1])


@decomposition(aten.conv_tbc.default)
def time_first(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Any:
    """[T, B, C] by [K, C, O] to [T', B, O]."""
    image, how = p.permute(x, [1, 2, 0]), Geometry((1,), (pad,), (1,), False, (0,), 1)
    out = _convolved(image, p.permute(weight, [2, 1, 0]), bias, how)
    return out if out is NotImplemented else p.permute(out, [2, 0, 1])


@by_name(aten._slow_conv2d_backward.output_mask)
def slow_backward(a: Arguments) -> Any:
    if a.self.ndim != 4 or a.weight.ndim != 4:
        return NotImplemented
    how = Geometry(a.stride, a.padding, (1,), False, (0,), 1)
    return _differentiated(a.grad_output, a.self, a.weight, None, how, a.output_mask)
