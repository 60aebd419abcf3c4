"""Sample calls of images: convolution, pooling, attention, sampling; forward and backward.

In: a generator. Out: calls with the geometries that differ in kind.
Invariant: a backward call gets what the forward call of the same arguments returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Generator

from flambeau_prims.conformance.samples.registry import Call, call, gradients, samples
from flambeau_prims.conformance.samples.tensors import BF16, F32, F64, distinct, signed

_LAST = torch.channels_last


@samples("max_pool3d_with_indices", of=(F32, F64))
def _max_pools(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = distinct((1, 2, 4, 5, 3), dtype, g)
    yield call(a, [2, 3, 2], [2, 1, 1], [0, 1, 1], [1, 1, 1], False)
    yield call(a[0], [2, 2, 1], [2, 2, 1], [1, 0, 0], [1, 2, 1], True)


@samples("avg_pool3d", of=(F32, F64))
def _average_pools(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = signed((1, 2, 4, 5, 3), dtype, g)
    yield call(a, [2, 3, 2], [2, 1, 1], [0, 1, 1], False, False, None)
    yield call(a[0], [2, 2, 1], [2, 2, 1], [1, 0, 0], True, True, 3)


@samples("adaptive_avg_pool", of=(F32, F64))
def _adaptive_averages(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = signed((2, 3, 7, 5), dtype, g)
    yield call(a, [3, 2])
    yield call(a.contiguous(memory_format=_LAST), [5, 5])
    yield call(a[0], [9, 1])
    yield call(signed((1, 2, 5, 4, 3), dtype, g), [2, 3, 2])


@samples("adaptive_max_pool", of=(F32, F64))
def _adaptive_maxima(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = distinct((2, 1, 7, 5), dtype, g)
    yield call(a, [3, 2])
    yield call(a[0], [9, 1])
    yield call(distinct((1, 2, 5, 4, 3), dtype, g), [2, 3, 2])


@samples("fractional_max_pool", of=(F32, F64))
def _fractional_pools(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    random = torch.rand((2, 1, 2), dtype=dtype, generator=g)
    yield call(distinct((2, 1, 7, 6), dtype, g), [2, 3], [3, 2], random)
    random = torch.rand((1, 2, 3), dtype=dtype, generator=g)
    yield call(distinct((1, 2, 5, 4, 3), dtype, g), [2, 2, 1], [2, 2, 2], random)


@samples("grid_sample", of=(F32, F64))
def _grids(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = signed((2, 3, 5, 4), dtype, g)
    grid = signed((2, 3, 2, 2), dtype, g) * 0.6
    for mode, padding, align in ((0, 0, True), (1, 1, False), (2, 2, False), (0, 2, True)):
        yield call(a, grid, mode, padding, align)
    cube, places = signed((1, 2, 4, 3, 5), dtype, g), signed((1, 2, 2, 3, 3), dtype, g) * 0.6
    yield call(cube, places, 0, 1, False)


@samples("resize_antialias", of=(F32, F64))
def _resizes(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = signed((1, 2, 8, 6), dtype, g)
    for kind in (0, 1):
        yield call(a, [3, 4], False, [], kind)
        yield call(a, [10, 3], True, [], kind)
        yield call(a, [4, 3], False, [0.5, 0.5], kind)


@samples("convolution", of=(F32, F64))
def _convolutions(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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
    yield call(signed((1, 2, 4, 5, 3), dtype, g), signed((3, 2, 2, 2, 3), dtype, g), None, *cube)


@samples("max_pool2d_with_indices", of=(F32, F64, BF16))
def _flat_max_pools(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = distinct((1, 2, 8, 7), dtype, g)
    yield call(a, [3, 3], [2, 2], [1, 1], [1, 1], False)
    yield call(a[0], [2, 3], [1, 2], [0, 1], [2, 1], False)
    last = a.contiguous(memory_format=_LAST)
    yield call(last, [2, 2], [2, 2], [0, 0], [1, 1], True)


@samples("avg_pool2d", of=(F32, F64))
def _flat_average_pools(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = signed((2, 3, 8, 9), dtype, g)
    yield call(a, [3, 3], [2, 2], [1, 1], False, False, None)
    yield call(a[0], [3, 2], [1, 2], [1, 1], False, True, None)
    last = a.contiguous(memory_format=_LAST)
    yield call(last, [2, 2], [2, 2], [0, 0], True, True, 3)


@samples("attention", of=(F32, F64))
def _attentions(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    q, k, v = (signed((2, 4, 6, 8), dtype, g) for _ in range(3))
    yield call(q, k, v, None, 0.0, True)
    yield call(q, k, v, signed((2, 1, 6, 6), dtype, g), 0.0, False, scale=0.3)
    turned = [signed((2, 6, 4, 8), dtype, g).transpose(1, 2) for _ in range(3)]
    yield call(*turned, None, 0.0, False)
    longer: Any = [signed((2, 4, 9, 8), dtype, g) for _ in range(2)]
    yield call(q, *longer, None, 0.0, False)


def _second(given: Mapping[str, Any]) -> Any:
    return given["1"]


def _rank(given: Mapping[str, Any]) -> int:
    return len(given["output"])


for _n in (2, 3):
    gradients(f"max_pool{_n}d_with_indices_backward", indices=_second)
    gradients(f"avg_pool{_n}d_backward")
gradients("adaptive_avg_pool_backward", spatial=_rank)
gradients("adaptive_max_pool_backward", indices=_second, spatial=_rank)
gradients("fractional_max_pool_backward", indices=_second)
gradients("grid_sample_backward", output_mask=lambda given: [True, True])
gradients("resize_antialias_backward", input_size=lambda given: list(given["a"].shape))
gradients("attention_backward")
for _mask in ([True, True, True], [False, True, False]):
    gradients(
        "convolution_backward",
        bias_sizes=lambda given: None,
        output_mask=lambda given, mask=_mask: mask,  # type: ignore[misc]
    )
