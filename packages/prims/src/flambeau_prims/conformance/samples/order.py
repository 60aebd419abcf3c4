"""Sample calls of sorting, and of data-dependent sizes.

In: a generator. Out: calls whose positions in the result are determined.
Invariant: no ties where which position is given is undefined.
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
    C128,
    F32,
    F64,
    I32,
    I64,
    U8,
    distinct,
    positions,
    signed,
    special,
    tensor,
)


@samples("kthvalue")
def _kthvalue(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16, I64):
        for k in (1, 3, 5):
            yield call(distinct((4, 5), dtype, g), k, 1)
        yield call(distinct((5, 4), dtype, g).t(), 2, 0)


@samples("median", "nanmedian")
def _median(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16, I64):
        yield call(distinct((4, 5), dtype, g), 1)
        yield call(distinct((5, 4), dtype, g).t(), 0)
        yield call(distinct((2, 6, 3), dtype, g), 1)


@samples("nanmedian")
def _nanmedian(g: Generator) -> Iterator[Call]:
    a = distinct((3, 5), F32, g)
    a[0, 2] = a[1, 0] = a[1, 4] = float("nan")
    yield call(a, 1)


@samples("mode")
def _mode(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64):
        yield call(torch.tensor([[3, 1, 3, 2], [7, 7, 7, 7], [2, 5, 5, 9]]).to(dtype), 1)
        yield call(distinct((5, 4), dtype, g), 0)


@samples("searchsorted")
def _searchsorted(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64, I32):
        edges = tensor((6,), dtype, g).sort().values
        for right in (False, True):
            yield call(edges, tensor((3, 4), dtype, g), right)
            yield call(edges, edges, right)
        rows = distinct((3, 6), dtype, g).sort(1).values
        yield call(rows, signed((3, 5), dtype, g).abs() * 4, False)
        yield call(edges[:0], tensor((3,), dtype, g), False)
        yield call(edges, tensor((), dtype, g), True)


@samples("histc")
def _histc(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        low, high = torch.tensor(0.125, dtype=dtype), torch.tensor(0.625, dtype=dtype)
        yield call(tensor((3, 40), dtype, g), 4, low, high)
        yield call(torch.tensor([0.125, 0.25, 0.625, 0.7, 0.0], dtype=dtype), 4, low, high)
        yield call(tensor((0,), dtype, g), 3, low, high)


@samples("cummax", "cummin")
def _running_extremum(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16, I64, BOOL):
        yield call(signed((3, 7), dtype, g), 1)
        yield call(signed((7, 3), dtype, g).t(), 0)
    yield call(special(F32).view(3, 4), 1)
    yield call(tensor((2, 0), F32, g), 1)


@samples("logcumsumexp")
def _log_of_sums(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16, C64, C128):
        yield call(signed((3, 7), dtype, g), 1)
        yield call(signed((7, 3), dtype, g).t() * 3, 0)
    yield call(torch.tensor([float("-inf"), float("-inf"), 1.0, 800.0, -800.0]), 0)
    yield call(tensor((2, 0), F32, g), 1)


@samples("scatter_prod", "scatter_amax", "scatter_amin")
def _scatter_combining(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16, I64):
        many = positions((4, 9), 5, g)
        src = signed((4, 9), dtype, g)
        if dtype == BF16:  # so that a product is exact in any order
            many, src = positions((4, 3), 5, g), torch.full((4, 3), 2.0, dtype=dtype)
        yield call(tensor((4, 5), dtype, g), 1, many, src)
        yield call(tensor((5, 4), dtype, g).t(), 1, many, src.t().contiguous().t())


@samples("scatter_amax", "scatter_amin")
def _scatter_nan(g: Generator) -> Iterator[Call]:
    a = signed((4, 5), F32, g)
    a[0, 0], src = float("nan"), signed((4, 3), F32, g)
    src[2, 1] = float("nan")
    yield call(a, 1, positions((4, 3), 5, g), src)


@samples("nonzero")
def _nonzero(g: Generator) -> Iterator[Call]:
    for dtype in (F32, I64, BOOL, C64):
        yield call(positions((3, 4), 2, g).to(dtype))
        yield call(positions((4, 3), 2, g).to(dtype).t())
        yield call(tensor((2, 0), dtype, g))
        yield call(torch.ones((), dtype=dtype))


@samples("masked_select")
def _masked_select(g: Generator) -> Iterator[Call]:
    for dtype in (F32, BF16, I64, BOOL, C64):
        yield call(tensor((3, 4), dtype, g), tensor((3, 4), BOOL, g))
        yield call(tensor((4, 3), dtype, g).t(), tensor((3, 4), BOOL, g))


@samples("unique", "unique_consecutive")
def _unique(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64, U8, BOOL):
        yield call(positions((3, 4), 4, g).to(dtype))
        yield call(positions((5, 3), 3, g).to(dtype).t())
        yield call(tensor((0,), dtype, g))


@samples("unique_dim")
def _unique_dim(g: Generator) -> Iterator[Call]:
    for dtype in (F32, I64):
        a = positions((6, 2), 2, g).to(dtype)
        for consecutive in (False, True):
            yield call(a, 0, consecutive)
            yield call(a.t(), 1, consecutive)
            yield call(torch.stack([a, a, a + 1], 1), 1, consecutive)


@samples("bincount")
def _bincount(g: Generator) -> Iterator[Call]:
    for dtype in (I64, I32, U8):
        yield call(positions((20,), 6, g).to(dtype), None, 0)
        yield call(positions((20,), 6, g).to(dtype), None, 9)
        yield call(positions((20,), 6, g).to(dtype), tensor((20,), F64, g), 0)
    yield call(positions((0,), 6, g), None, 3)


@samples("repeat_interleave")
def _repeat_interleave(g: Generator) -> Iterator[Call]:
    yield call(positions((7,), 4, g))
    yield call(positions((7,), 4, g).int())
    yield call(positions((0,), 4, g))
