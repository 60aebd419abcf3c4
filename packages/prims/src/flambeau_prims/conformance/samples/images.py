"""Sample calls of image sampling: pools, grids, resizing; forward and backward.

In: a generator. Out: calls with the geometries that differ in kind.
Invariant: a backward call gets what the forward call of the same arguments returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import F32, F64, distinct, signed

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
