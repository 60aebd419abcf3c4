"""Sample calls of indexing primitives.

In: a generator. Out: calls whose positions are in range.
Invariant: where several writes meet in one element the result does not depend on their order.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    BOOL,
    C64,
    F32,
    F64,
    I64,
    positions,
    tensor,
)

_DTYPES = (F32, F64, BF16, I64, BOOL, C64)


@samples("bounds_checked")
def _bounds_checked(g: Generator) -> Iterator[Call]:
    message = "index {index} is out of bounds for dimension 0 with size {size}"
    for shape in ((), (7,), (2, 3)):
        yield call(positions(shape, 5, g), 5, "IndexError", message)
    yield call(positions((3, 4), 5, g).t(), 9, "RuntimeError", message)
    yield call(positions((0,), 5, g), 0, "RuntimeError", message)


@samples("gather")
def _gather(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        yield call(tensor((4, 5), dtype, g), 1, positions((4, 3), 5, g))
        yield call(tensor((5, 4), dtype, g).t(), 0, positions((2, 5), 4, g))
        yield call(tensor((2, 3, 4), dtype, g), 1, positions((2, 7, 4), 3, g))
    yield call(tensor((4, 5), F32, g), 1, positions((4, 0), 5, g))


@samples("index_select")
def _index_select(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        yield call(tensor((4, 5), dtype, g), 0, positions((6,), 4, g))
        yield call(tensor((4, 5), dtype, g).t(), 0, positions((6,), 5, g))
        yield call(tensor((2, 3, 4), dtype, g), 1, positions((0,), 3, g))


def _orders(shape: tuple[int, int], below: int, g: Generator) -> Tensor:
    """Positions along dimension 1 that are distinct in each row."""
    rows, columns = shape
    return torch.stack([torch.randperm(below, generator=g)[:columns] for _ in range(rows)])


@samples("scatter")
def _scatter(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        order = _orders((4, 3), 5, g)
        yield call(tensor((4, 5), dtype, g), 1, order, tensor((4, 3), dtype, g))
        yield call(tensor((5, 4), dtype, g).t(), 1, order, tensor((3, 4), dtype, g).t())
        yield call(tensor((5, 4), dtype, g), 0, order.t(), tensor((3, 4), dtype, g))


@samples("scatter_add")
def _scatter_add(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64, C64):
        many = positions((4, 9), 5, g)
        yield call(tensor((4, 5), dtype, g), 1, many, tensor((4, 9), dtype, g))
        yield call(tensor((5, 4), dtype, g).t(), 1, many, tensor((9, 4), dtype, g).t())


@samples("index")
def _index(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        a = tensor((4, 5, 6), dtype, g)
        rows, columns = positions((3,), 4, g), positions((2, 1), 6, g)
        yield call(a, [rows])
        yield call(a, [None, positions((2, 3), 5, g)])
        yield call(a, [rows, None, columns])
        yield call(a.transpose(0, 2), [positions((3,), 6, g) - 6, rows])
    yield call(tensor((4, 5), F32, g), [positions((3,), 4, g).int()])
    yield call(tensor((4, 5), F32, g), [positions((0,), 4, g)])


@samples("index_put")
def _index_put(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64, BOOL):
        a = tensor((4, 5), dtype, g)
        order = torch.randperm(4, generator=g)[:3]
        yield call(a, [order], tensor((3, 5), dtype, g), False)
        yield call(a.t(), [None, order - 4], tensor((3,), dtype, g), False)
    for dtype in (F32, F64, I64):
        a = tensor((4, 5), dtype, g)
        yield call(a, [positions((7,), 4, g)], tensor((7, 5), dtype, g), True)
        yield call(a.t(), [None, positions((7,), 4, g)], tensor((7,), dtype, g), True)
        yield call(a, [positions((7,), 4, g), positions((7,), 5, g)], tensor((7,), dtype, g), True)
