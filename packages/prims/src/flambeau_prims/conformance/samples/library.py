"""Sample calls of convolution, pooling and attention, forward and backward.

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
def _max_pools(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16):
        a = distinct((1, 2, 8, 7), dtype, g)
        yield call(a, [3, 3], [2, 2], [1, 1], [1, 1], False)
        yield call(a[0], [2, 3], [1, 2], [0, 1], [2, 1], False)
        last = a.contiguous(memory_format=_LAST)
        yield call(last, [2, 2], [2, 2], [0, 0], [1, 1], True)


@samples("max_pool2d_with_indices_backward")
def _max_pool_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _max_pools(g):
        values, at = PRIMS["max_pool2d_with_indices"].overload(*args)
        yield call(signed(tuple(values.shape), values.dtype, g), *args, at)


@samples("avg_pool2d")
def _average_pools(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a = signed((2, 3, 8, 9), dtype, g)
        yield call(a, [3, 3], [2, 2], [1, 1], False, False, None)
        yield call(a[0], [3, 2], [1, 2], [1, 1], False, True, None)
        last = a.contiguous(memory_format=_LAST)
        yield call(last, [2, 2], [2, 2], [0, 0], True, True, 3)


@samples("avg_pool2d_backward")
def _average_pool_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _average_pools(g):
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
