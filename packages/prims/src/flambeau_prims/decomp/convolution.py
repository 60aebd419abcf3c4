"""Convolution and pooling.

In: ATen's overloads, whose geometry lists may be short or empty. Out: the library prims.
Invariant: geometry is written out in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p, spread
from flambeau_prims.layout import Size
from flambeau_prims.table import decomposition

aten = torch.ops.aten


def _full(values: Sequence[Size] | int, count: int) -> list[Size]:
    given = [values] if isinstance(values, int) else list(values)
    return given * count if len(given) == 1 else given


@decomposition(aten.convolution.default, aten.convolution_overrideable.default)
def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
) -> Any:
    n = weight.ndim - 2
    if x.ndim != weight.ndim or x.dtype != weight.dtype:
        return NotImplemented
    geometry = [_full(v, n) for v in (stride, padding, dilation)]
    return p.convolution(x, weight, bias, *geometry, transposed, _full(output_padding, n), groups)


@decomposition(aten.convolution_backward.default)
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[Size] | None,
    stride: Sequence[Size],
    padding: Sequence[Size],
    dilation: Sequence[Size],
    transposed: bool,
    output_padding: Sequence[Size],
    groups: Size,
    output_mask: Sequence[bool],
) -> Any:
    n = weight.ndim - 2
    wants_bias = output_mask[2]
    geometry = [_full(v, n) for v in (stride, padding, dilation)]
    mask = [output_mask[0], output_mask[1], False]
    first: Any = (None, None, None)
    if any(mask):
        first = p.convolution_backward(
            grad, x, weight, bias_sizes, *geometry, transposed, _full(output_padding, n), groups,
            mask,
        )  # fmt: skip
    bias = None
    if wants_bias:  # a plain sum, which fuses with what made the gradient
        dims = [d for d in range(grad.ndim) if d != 1]
        bias = e.cast(p.sum(e.widen(grad), dims), grad.dtype)
    return (first[0] if mask[0] else None, first[1] if mask[1] else None, bias)


def _window(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    full = _full(kernel, 2)
    return full, _full(stride, 2) if len(stride) else full, _full(padding, 2)


@decomposition(aten.max_pool2d_with_indices.default)
def max_pool2d_with_indices(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    window = _window(kernel_size, stride, padding)
    result = p.max_pool2d_with_indices(x, *window, _full(dilation, 2), ceil_mode)
    return result[0], result[1]


@decomposition(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_with_indices_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    window = _window(kernel_size, stride, padding)
    return p.max_pool2d_with_indices_backward(
        grad, x, *window, _full(dilation, 2), ceil_mode, indices
    )


@decomposition(aten.avg_pool2d.default)
def avg_pool2d(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    window = _window(kernel_size, stride, padding)
    return p.avg_pool2d(x, *window, ceil_mode, count_include_pad, divisor_override)


@decomposition(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    grad: Tensor,
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    window = _window(kernel_size, stride, padding)
    return p.avg_pool2d_backward(grad, x, *window, ceil_mode, count_include_pad, divisor_override)


def _even_windows(size: Sequence[Size], output: Sequence[Size]) -> list[Size] | None:
    """The window that tiles `size` into `output` parts, or None if it does not come out even."""
    if any(o == 0 or n == 0 or n % o != 0 for n, o in zip(size, output, strict=True)):
        return None
    return [n // o for n, o in zip(size, output, strict=True)]


@decomposition(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(x: Tensor, output_size: Sequence[Size]) -> Any:
    window = _even_windows(x.shape[-2:], output_size)
    if window is None:
        return NotImplemented
    if all(o == 1 for o in output_size):
        dims = [x.ndim - 2, x.ndim - 1]
        total = p.sum(e.widen(x), dims)
        mean = e.div(total, float(e.count(x.shape, dims)))
        return e.cast(spread(mean, [*x.shape[:-2], 1, 1], dims), x.dtype)
    return p.avg_pool2d(x, window, window, [0, 0], False, True, None)


@decomposition(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(grad: Tensor, x: Tensor) -> Any:
    window = _even_windows(x.shape[-2:], grad.shape[-2:])
    if window is None:
        return NotImplemented
    if all(o == 1 for o in grad.shape[-2:]):
        each = e.div(e.widen(grad), float(e.count(x.shape, [x.ndim - 2, x.ndim - 1])))
        return e.copy_in_format(
            e.expand(e.cast(each, grad.dtype), x.shape), torch.contiguous_format
        )
    return p.avg_pool2d_backward(grad, x, window, window, [0, 0], False, True, None)
