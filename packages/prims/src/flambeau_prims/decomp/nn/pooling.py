"""Decompositions of pooling, its backward and its inverse.

In: ATen's overloads, whose geometry lists may be short or empty. Out: the pooling prims, or plain
sums where windows are whole images.
Invariant: geometry is written out in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p, spread
from flambeau_prims.decomp.nn.convolution import full
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition, overloads
from flambeau_prims.shape_rules import Size, Sizes, product

aten = torch.ops.aten
Ints = Sequence[int]


def _window(a: Arguments, n: int) -> list[Any]:
    """Kernel, stride and padding written out; without a stride windows lie side by side."""
    return [full(x, n) for x in (a.kernel_size, a.stride or a.kernel_size, a.padding)]


def _max_geometry(a: Arguments, n: int) -> list[Any]:
    return [*_window(a, n), full(a.dilation, n), a.ceil_mode]


def _avg_geometry(a: Arguments, n: int) -> list[Any]:
    return [*_window(a, n), a.ceil_mode, a.count_include_pad, a.divisor_override]


def _register_windows(n: int) -> None:
    largest, average = f"max_pool{n}d_with_indices", f"avg_pool{n}d"
    names = (largest, f"{largest}_backward", average, f"{average}_backward")
    maxima, maxima_back, mean, mean_back = (getattr(p, name) for name in names)
    ops = [getattr(aten, name).default for name in names]

    @by_name(ops[0])
    def of_maxima(a: Arguments) -> Any:
        return tuple(maxima(a.self, *_max_geometry(a, n)))

    @by_name(ops[1])
    def of_maxima_backward(a: Arguments) -> Any:
        return maxima_back(a.grad_output, a.self, *_max_geometry(a, n), a.indices)

    @by_name(ops[2])
    def of_means(a: Arguments) -> Any:
        return mean(a.self, *_avg_geometry(a, n))

    @by_name(ops[3])
    def of_means_backward(a: Arguments) -> Any:
        return mean_back(a.grad_output, a.self, *_avg_geometry(a, n))


for _n in (2, 3):
    _register_windows(_n)


@by_name(*overloads("max_pool2d_backward", "default"))
def max_pool2d_backward(a: Arguments) -> Any:
    written = _max_geometry(a, 2)
    indices = p.max_pool2d_with_indices(a.self, *written)[1]
    return p.max_pool2d_with_indices_backward(a.grad_output, a.self, *written, indices)


def _even_windows(size: Sizes, output: Sizes) -> list[Size] | None:
    """The window that tiles `size` into `output` parts, or None if it does not come out even."""
    if any(o == 0 or n == 0 or n % o != 0 for n, o in zip(size, output, strict=True)):
        return None
    return [n // o for n, o in zip(size, output, strict=True)]


def _empty(x: Tensor, sizes: Sizes) -> bool:
    return product(x.shape) == 0 or product(sizes) == 0


_AVG: dict[int, tuple[Any, Any]] = {
    2: (p.avg_pool2d, p.avg_pool2d_backward),
    3: (p.avg_pool3d, p.avg_pool3d_backward),
}


def _register_adaptive_avg(n: int) -> None:
    @decomposition(getattr(aten, f"_adaptive_avg_pool{n}d").default)
    def forward(x: Tensor, output_size: Sizes) -> Any:
        if _empty(x, output_size):
            return e.filled(x, [*x.shape[:-n], *output_size])
        window = _even_windows(x.shape[-n:], output_size)
        if window is None:
            return p.adaptive_avg_pool(x, list(output_size))
        if all(o == 1 for o in output_size):
            dims = list(range(x.ndim - n, x.ndim))
            mean = e.div(p.sum(e.widen(x), dims), e.as_number(e.count(x.shape, dims)))
            return e.cast(spread(mean, [*x.shape[:-n], *[1] * n], dims), x.dtype)
        return _AVG[n][0](x, window, window, [0] * n, False, True, None)

    @decomposition(getattr(aten, f"_adaptive_avg_pool{n}d_backward").default)
    def backward(grad: Tensor, x: Tensor) -> Any:
        if _empty(x, grad.shape):
            return e.filled(x, x.shape)
        window = _even_windows(x.shape[-n:], grad.shape[-n:])
        if window is None:
            return p.adaptive_avg_pool_backward(grad, x, n)
        if all(o == 1 for o in grad.shape[-n:]):
            number = float(e.count(x.shape, list(range(x.ndim - n, x.ndim))))
            each = e.cast(e.div(e.widen(grad), number), grad.dtype)
            return e.copy_in_format(e.expand(each, x.shape), torch.contiguous_format)
        return _AVG[n][1](grad, x, window, window, [0] * n, False, True, None)

    @decomposition(getattr(aten, f"adaptive_max_pool{n}d").default)
    def largest(x: Tensor, output_size: Ints) -> Any:
        if _empty(x, output_size):
            sizes = [*x.shape[:-n], *output_size]
            return e.filled(x, sizes), e.filled(x, sizes, 0, torch.int64)
        result = p.adaptive_max_pool(x, list(output_size))
        return result[0], result[1]

    @decomposition(getattr(aten, f"adaptive_max_pool{n}d_backward").default)
    def largest_backward(grad: Tensor, x: Tensor, indices: Tensor) -> Any:
        if _empty(x, grad.shape):
            return e.filled(x, x.shape)
        return p.adaptive_max_pool_backward(grad, x, indices, n)

    @decomposition(getattr(aten, f"fractional_max_pool{n}d").default)
    def fractional(x: Tensor, kernel_size: Ints, output_size: Ints, samples: Tensor) -> Any:
        result = p.fractional_max_pool(x, list(kernel_size), list(output_size), samples)
        return result[0], result[1]

    @decomposition(getattr(aten, f"fractional_max_pool{n}d_backward").default)
    def fractional_backward(
        grad: Tensor, x: Tensor, kernel_size: Ints, output_size: Ints, indices: Tensor
    ) -> Any:
        return p.fractional_max_pool_backward(
            grad, x, list(kernel_size), list(output_size), indices
        )


for _n in (2, 3):
    _register_adaptive_avg(_n)


def _unpooled(x: Tensor, indices: Tensor, output_size: Sizes) -> Tensor:
    """Zeros with the entries of `x` at the positions they were pooled from."""
    n = len(output_size)
    lead = list(x.shape[: x.ndim - n])
    flat = [*lead, product(x.shape[x.ndim - n :])]
    zeros = e.filled(x, [*lead, product(output_size)])
    placed = p.scatter(zeros, len(lead), p.reshape(indices, flat), p.reshape(x, flat))
    return p.reshape(placed, [*lead, *output_size])


@decomposition(aten.max_unpool2d.default)
def max_unpool2d(x: Tensor, indices: Tensor, output_size: Sizes) -> Any:
    placed = _unpooled(x, indices, output_size)
    return placed if e.on_gpu(x) else e.in_image_format(x, placed)


@decomposition(aten.max_unpool3d.default)
def max_unpool3d(
    x: Tensor, indices: Tensor, output_size: Sizes, stride: Ints, padding: Ints
) -> Any:
    del stride, padding  # the output's size follows from them, and is given
    return _unpooled(x, indices, output_size)
