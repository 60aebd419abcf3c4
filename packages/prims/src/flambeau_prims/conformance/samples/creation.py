"""Sample calls of creation and random primitives.

In: a generator. Out: calls that make tensors. Invariant: numbers fit the dtype asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    BOOL,
    C64,
    CPU,
    F16,
    F32,
    F64,
    I32,
    I64,
    U8,
)


@samples("full")
def _full(g: Generator) -> Iterator[Call]:
    del g
    for dtype in (F32, F64, F16, BF16):
        yield call([2, 3], 1.5, dtype=dtype, device=CPU)
        yield call([3], float("nan"), dtype=dtype, device=CPU)
        yield call([1], float("-inf"), dtype=dtype, device=CPU)
        yield call([2], -0.0, dtype=dtype, device=CPU)
    for dtype in (I64, I32, U8):
        yield call([], 3, dtype=dtype, device=CPU)
    yield call([2, 0], 3, dtype=F32, device=CPU)
    yield call([3], -(2**63), dtype=I64, device=CPU)
    yield call([4], True, dtype=BOOL, device=CPU)
    yield call([4], 1 + 2j, dtype=C64, device=CPU)


@samples("iota")
def _iota(g: Generator) -> Iterator[Call]:
    del g
    for dtype in (I64, I32):
        yield call(5, 2, 3, dtype=dtype, device=CPU)
        yield call(6, 2, -3, dtype=dtype, device=CPU)
    for dtype in (F32, F64, BF16):
        yield call(4, 0.5, -0.25, dtype=dtype, device=CPU)
        yield call(33, 0.1, 0.1, dtype=dtype, device=CPU)  # formed in float64, rounded once
    yield call(0, 0, 1, dtype=I64, device=CPU)


@samples("seed")
def _seed(g: Generator) -> Iterator[Call]:
    del g
    yield call(device=CPU)


@samples("philox_uniform", "philox_normal")
def _philox(g: Generator) -> Iterator[Call]:
    del g
    for dtype in (F32, F64, F16, BF16):
        yield call([3, 5], torch.tensor(1234), 0, dtype=dtype, device=CPU)
        yield call([17], torch.tensor(-7), 2, dtype=dtype, device=CPU)
        yield call([2, 3, 4], torch.tensor(2**40 + 3), 2**33, dtype=dtype, device=CPU)
        yield call([0], torch.tensor(5), 0, dtype=dtype, device=CPU)
        yield call([], torch.tensor(5), 9, dtype=dtype, device=CPU)
