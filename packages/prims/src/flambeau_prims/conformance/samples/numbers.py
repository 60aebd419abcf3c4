"""Sample calls of complex primitives and views.

In: a generator. Out: calls on dense and strided operands.
Invariant: operands of `bitcast` have strides that allow the other size.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    C64,
    C128,
    F32,
    F64,
    I32,
    I64,
    U8,
    signed,
    tensor,
)


@samples("real", "imag", "view_as_real")
def _parts(g: Generator) -> Iterator[Call]:
    for dtype in (C64, C128):
        yield call(signed((3, 4), dtype, g))
        yield call(signed((4, 3), dtype, g).t())
        yield call(signed((3, 8), dtype, g)[1:, ::2])
        yield call(signed((), dtype, g))
        yield call(signed((2, 0), dtype, g))


@samples("view_as_complex")
def _pairs(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        yield call(signed((3, 4, 2), dtype, g))
        yield call(signed((4, 3, 2), dtype, g).transpose(0, 1))
        yield call(signed((3, 4), dtype, g)[:, 2:])
        yield call(signed((2,), dtype, g))


@samples("diagonal")
def _diagonal(g: Generator) -> Iterator[Call]:
    for dtype in (F32, BF16, I64, C64):
        a = tensor((3, 4, 5), dtype, g)
        for offset in (0, 2, -1, -7, 9):
            yield call(a, offset, 1, 2)
        yield call(a, 1, 2, 0)
        yield call(a.permute(2, 0, 1), 0, 0, 1)
    yield call(tensor((3, 0), F32, g), 0, 0, 1)


@samples("diagonal_scatter")
def _diagonal_scatter(g: Generator) -> Iterator[Call]:
    for dtype in (F32, BF16, I64, C64):
        a = tensor((3, 4, 5), dtype, g)
        yield call(a, tensor((3, 4), dtype, g), 0, 1, 2)
        yield call(a, tensor((4, 3), dtype, g), -1, 2, 0)
        yield call(a.permute(2, 0, 1), tensor((4, 3), dtype, g), 0, 0, 1)
        yield call(a, tensor((3, 0), dtype, g), 9, 1, 2)


@samples("unfold")
def _unfold(g: Generator) -> Iterator[Call]:
    for dtype in (F32, I64, C64):
        a = tensor((3, 9, 2), dtype, g)
        for size, step in ((3, 1), (2, 3), (9, 1), (1, 4)):
            yield call(a, 1, size, step)
        yield call(a.permute(1, 0, 2), 0, 4, 2)
        yield call(a, 1, 0, 1)


@samples("restride")
def _restride(g: Generator) -> Iterator[Call]:
    for dtype in (F32, I64, C64):
        a = tensor((3, 4, 5), dtype, g)
        yield call(a, [2, 3, 3], [20, 5, 1])
        yield call(a[1:, 2:], [2, 2], [1, 7])
        yield call(a, [3, 3], [1, 1])


@samples("as_strided_scatter")
def _as_strided_scatter(g: Generator) -> Iterator[Call]:
    for dtype in (F32, I64, C64):
        a = tensor((3, 4, 5), dtype, g)
        yield call(a, tensor((2, 2), dtype, g), [2, 2], [1, 7], 3)
        yield call(a, tensor((), dtype, g), [], [], 59)
        yield call(a, tensor((0, 2), dtype, g), [0, 2], [1, 1], 0)


@samples("bitcast")
def _bitcast(g: Generator) -> Iterator[Call]:
    a = signed((3, 4), F32, g)
    for dtype in (I32, F64, U8, torch.int16, C64):
        yield call(a, dtype=dtype)
    yield call(a.t(), dtype=I32)
    yield call(signed((3, 4), I64, g), dtype=F64)
    yield call(signed((), F32, g), dtype=I32)
    yield call(signed((2, 8), BF16, g), dtype=I64)
