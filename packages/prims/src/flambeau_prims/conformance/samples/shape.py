"""Sample calls of shape primitives and copies.

In: a generator. Out: calls on operands in several layouts. Invariant: sizes are given in full.
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
    CPU,
    F32,
    F64,
    I64,
    U8,
    layouts,
    tensor,
)

_DTYPES = (F32, BF16, I64, BOOL, C64)


def _pairs(g: Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Contiguous and permuted, both of shape (3, 4, 5), in each dtype."""
    for dtype in _DTYPES:
        yield tensor((3, 4, 5), dtype, g), tensor((5, 3, 4), dtype, g).permute(1, 2, 0)


def _image(g: Generator) -> Tensor:
    return tensor((2, 3, 4, 5), F32, g).contiguous(memory_format=torch.channels_last)


@samples("broadcast_in_dim")
def _broadcast(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call(a, [2, 3, 4, 5], [1, 2, 3])
        yield call(turned, [3, 1, 4, 5], [0, 2, 3])
        yield call(a[:, :1, 0], [4, 3, 5], [1, 2])
    yield call(tensor((4, 1), F32, g), [4, 3, 5], [0, 2])
    yield call(tensor((), F32, g), [2, 3], [])
    yield call(tensor((1,), F32, g), [0], [0])


@samples("reshape")
def _reshape(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call(a, [12, 5])
        yield call(turned, [3, 20])
        yield call(turned, [3, 2, 2, 5])
        yield call(turned, [60])
    yield call(tensor((1,), F32, g), [])
    yield call(tensor((), F32, g), [1, 1])
    yield call(tensor((0, 3), F32, g), [2, 0, 5])


@samples("permute")
def _permute(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call(a, [2, 0, 1])
        yield call(turned, [0, 2, 1])
    yield call(tensor((), F32, g), [])


_PART = ([0, 1, 2], [3, 4, 5], [2, 1, 2])
_NONE = ([0, 2, 0], [3, 2, 5], [1, 1, 1])


@samples("slice")
def _slice(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call(a, *_PART)
        yield call(turned, [1, 1, 1], [1, 3, 4], [1, 1, 1])
        yield call(turned, *_PART)
        yield call(a, *_NONE)
    yield call(tensor((), F32, g), [], [], [])


@samples("slice_scatter")
def _slice_scatter(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call(a, tensor((2, 3, 2), a.dtype, g), *_PART)
        yield call(turned, tensor((2, 3, 2), a.dtype, g), *_PART)
        yield call(a, tensor((3, 0, 5), a.dtype, g), *_NONE)


@samples("cat")
def _cat(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call([a, a], 2)
        yield call([a, turned], 0)
        yield call([a, a[:, :2]], 1)
        yield call([turned], 2)
        yield call([a, a[:, :, :0], turned], 2)
    image = _image(g)
    yield call([image, image], 1)


@samples("pad")
def _pad(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        value = True if a.dtype == BOOL else 7
        yield call(a, [1, 0, 2], [0, 3, 1], value)
        yield call(turned, [0, 0, 0], [1, 0, 0], value)
    yield call(_image(g), [0] * 4, [0, 1, 0, 2], 0.5)
    yield call(tensor((0, 3), F32, g), [1, 1], [1, 0], -1.5)


@samples("flip")
def _flip(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call(a, [0, 2])
        yield call(turned, [1])
        yield call(a, [])


@samples("clone")
def _clone(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        for a in layouts(dtype, g).values():
            yield call(a)
            yield call(a, order=list(reversed(range(a.ndim))))


@samples("as_strided")
def _as_strided(g: Generator) -> Iterator[Call]:
    a = tensor((3, 4, 5), F32, g)
    yield call(a, [2, 2], [1, 7], 3)
    yield call(a, [3, 3], [1, 1], 0)  # overlapping
    yield call(a, [], [], 59)
    yield call(a, [2, 0], [1, 1], 0)
    yield call(a[1:], [2, 2], [5, 1], 1)  # the offset counts from the start of the storage


@samples("device_put")
def _device_put(g: Generator) -> Iterator[Call]:
    for a, turned in _pairs(g):
        yield call(a, device=CPU)
        yield call(turned, device=CPU)


@samples("copy_")
def _copy(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16, I64, U8, BOOL, C64):
        yield call(torch.zeros(3, 4, 5, dtype=dtype), tensor((5, 3, 4), dtype, g).permute(1, 2, 0))
        yield call(torch.zeros(5, 3, dtype=dtype).t(), tensor((3, 5), dtype, g))
