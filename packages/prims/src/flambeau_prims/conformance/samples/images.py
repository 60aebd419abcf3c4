"""Sample calls of images: convolution, pooling, attention, sampling; forward and backward.

In: a generator. Out: calls with the geometries that differ in kind.
Invariant: a backward call gets what the forward call of the same arguments returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Generator

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import BF16, F32, F64, distinct, signed

_LAST = torch.channels_last


@samples("max_pool3d_with_indices")
def _max_pools(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = distinct((1, 2, 4, 5, 3), dtype, g)
        yield call(a, [2, 3, 2], [2, 1, 1], [0, 1, 1], [1, 1, 1], False)
        yield call(a[0], [2, 2, 1], [2, 2, 1], [1, 0, 0], [1, 2, 1], True)


@samples("max_pool3d_with_indices_backward")
def _max_pool_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _max_pools(g):
        values, at = PRIMS["max_pool3d_with_indices"].overload(*args)
        yield call(signed(tuple(values.shape), values.dtype, g), *args, at)


@samples("avg_pool3d")
def _average_pools(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = signed((1, 2, 4, 5, 3), dtype, g)
        yield call(a, [2, 3, 2], [2, 1, 1], [0, 1, 1], False, False, None)
        yield call(a[0], [2, 2, 1], [2, 2, 1], [1, 0, 0], True, True, 3)


@samples("avg_pool3d_backward")
def _average_pool_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _average_pools(g):
        out = PRIMS["avg_pool3d"].overload(*args)
        yield call(signed(tuple(out.shape), out.dtype, g), *args)


@samples("adaptive_avg_pool")
def _adaptive_averages(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = signed((2, 3, 7, 5), dtype, g)
        yield call(a, [3, 2])
        yield call(a.contiguous(memory_format=_LAST), [5, 5])
        yield call(a[0], [9, 1])
        yield call(signed((1, 2, 5, 4, 3), dtype, g), [2, 3, 2])


@samples("adaptive_avg_pool_backward")
def _adaptive_average_gradients(g: Generator) -> Iterator[Call]:
    for (a, output), _ in _adaptive_averages(g):
        out = PRIMS["adaptive_avg_pool"].overload(a, output)
        yield call(signed(tuple(out.shape), out.dtype, g), a, len(output))


@samples("adaptive_max_pool")
def _adaptive_maxima(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = distinct((2, 1, 7, 5), dtype, g)
        yield call(a, [3, 2])
        yield call(a[0], [9, 1])
        yield call(distinct((1, 2, 5, 4, 3), dtype, g), [2, 3, 2])


@samples("adaptive_max_pool_backward")
def _adaptive_maximum_gradients(g: Generator) -> Iterator[Call]:
    for (a, output), _ in _adaptive_maxima(g):
        values, at = PRIMS["adaptive_max_pool"].overload(a, output)
        yield call(signed(tuple(values.shape), values.dtype, g), a, at, len(output))


@samples("fractional_max_pool")
def _fractional_pools(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        random = torch.rand((2, 1, 2), dtype=dtype, generator=g)
        yield call(distinct((2, 1, 7, 6), dtype, g), [2, 3], [3, 2], random)
        random = torch.rand((1, 2, 3), dtype=dtype, generator=g)
        yield call(distinct((1, 2, 5, 4, 3), dtype, g), [2, 2, 1], [2, 2, 2], random)


@samples("fractional_max_pool_backward")
def _fractional_pool_gradients(g: Generator) -> Iterator[Call]:
    for (a, kernel, output, random), _ in _fractional_pools(g):
        values, at = PRIMS["fractional_max_pool"].overload(a, kernel, output, random)
        yield call(signed(tuple(values.shape), values.dtype, g), a, kernel, output, at)


@samples("grid_sample")
def _grids(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = signed((2, 3, 5, 4), dtype, g)
        grid = signed((2, 3, 2, 2), dtype, g) * 0.6
        for mode, padding, align in ((0, 0, True), (1, 1, False), (2, 2, False), (0, 2, True)):
            yield call(a, grid, mode, padding, align)
        cube, places = signed((1, 2, 4, 3, 5), dtype, g), signed((1, 2, 2, 3, 3), dtype, g) * 0.6
        yield call(cube, places, 0, 1, False)


@samples("grid_sample_backward")
def _grid_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _grids(g):
        out = PRIMS["grid_sample"].overload(*args)
        yield call(signed(tuple(out.shape), out.dtype, g), *args, [True, True])


@samples("resize_antialias")
def _resizes(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = signed((1, 2, 8, 6), dtype, g)
        for kind in (0, 1):
            yield call(a, [3, 4], False, [], kind)
            yield call(a, [10, 3], True, [], kind)
            yield call(a, [4, 3], False, [0.5, 0.5], kind)


@samples("resize_antialias_backward")
def _resize_gradients(g: Generator) -> Iterator[Call]:
    for (a, *rest), _ in _resizes(g):
        out = PRIMS["resize_antialias"].overload(a, *rest)
        grad = signed(tuple(out.shape), out.dtype, g)
        yield call(grad, list(a.shape), *rest[1:])


@samples("convolution")
def _convolutions(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a, w = signed((2, 4, 9, 8), dtype, g), signed((6, 4, 3, 3), dtype, g)
        plain = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        yield call(a, w, signed((6,), dtype, g), *plain)
        yield call(a.contiguous(memory_format=_LAST), w, None, *plain)
        grouped = ([2, 1], [0, 1], [1, 2], False, [0, 0], 2)
        yield call(a, signed((6, 2, 3, 3), dtype, g), None, *grouped)
        turned = ([2, 2], [1, 1], [1, 1], True, [1, 0], 1)
        yield call(a, signed((4, 3, 3, 3), dtype, g), None, *turned)
        yield call(a, signed((4, 3, 3, 2), dtype, g), signed((6,), dtype, g),
                   [1, 2], [0, 1], [2, 1], True, [0, 1], 2)  # fmt: skip
        one = ([1], [1], [1], False, [0], 1)
        yield call(signed((2, 4, 9), dtype, g), signed((6, 4, 3), dtype, g), None, *one)
        cube = ([1, 2, 1], [1, 0, 1], [1, 1, 1], False, [0, 0, 0], 1)
        yield call(
            signed((1, 2, 4, 5, 3), dtype, g), signed((3, 2, 2, 2, 3), dtype, g), None, *cube
        )


@samples("convolution_backward")
def _convolution_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _convolutions(g):
        out = PRIMS["convolution"].overload(*args)
        rest = args[3:]
        for mask in ([True, True, True], [False, True, False]):
            yield call(signed(tuple(out.shape), out.dtype, g), args[0], args[1], None, *rest, mask)


@samples("max_pool2d_with_indices")
def _flat_max_pools(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16):
        a = distinct((1, 2, 8, 7), dtype, g)
        yield call(a, [3, 3], [2, 2], [1, 1], [1, 1], False)
        yield call(a[0], [2, 3], [1, 2], [0, 1], [2, 1], False)
        last = a.contiguous(memory_format=_LAST)
        yield call(last, [2, 2], [2, 2], [0, 0], [1, 1], True)


@samples("max_pool2d_with_indices_backward")
def _flat_max_pool_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _flat_max_pools(g):
        values, at = PRIMS["max_pool2d_with_indices"].overload(*args)
        yield call(signed(tuple(values.shape), values.dtype, g), *args, at)


@samples("avg_pool2d")
def _flat_average_pools(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = signed((2, 3, 8, 9), dtype, g)
        yield call(a, [3, 3], [2, 2], [1, 1], False, False, None)
        yield call(a[0], [3, 2], [1, 2], [1, 1], False, True, None)
        last = a.contiguous(memory_format=_LAST)
        yield call(last, [2, 2], [2, 2], [0, 0], True, True, 3)


@samples("avg_pool2d_backward")
def _flat_average_pool_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _flat_average_pools(g):
        out = PRIMS["avg_pool2d"].overload(*args)
        yield call(signed(tuple(out.shape), out.dtype, g), *args)


@samples("attention")
def _attentions(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        q, k, v = (signed((2, 4, 6, 8), dtype, g) for _ in range(3))
        yield call(q, k, v, None, 0.0, True)
        yield call(q, k, v, signed((2, 1, 6, 6), dtype, g), 0.0, False, scale=0.3)
        turned = [signed((2, 6, 4, 8), dtype, g).transpose(1, 2) for _ in range(3)]
        yield call(*turned, None, 0.0, False)
        longer: Any = [signed((2, 4, 9, 8), dtype, g) for _ in range(2)]
        yield call(q, *longer, None, 0.0, False)


@samples("attention_backward")
def _attention_gradients(g: Generator) -> Iterator[Call]:
    for (q, k, v, bias, *rest), kwargs in _attentions(g):
        out, lse = PRIMS["attention"].overload(q, k, v, bias, *rest, **kwargs)
        grad = signed(tuple(out.shape), out.dtype, g)
        yield call(grad, q, k, v, out, lse, bias, *rest, **kwargs)
