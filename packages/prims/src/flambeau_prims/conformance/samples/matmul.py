"""Sample calls of matrix products.

In: a generator. Out: calls on operands in every order of strides, also empty ones.
Invariant: an empty inner dimension gives zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Generator

from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import BF16, C64, C128, F16, F32, F64, I64, signed

_DTYPES = (F32, F64, BF16, F16, I64, C64, C128)


@samples("mm")
def _mm(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        yield call(signed((3, 4), dtype, g), signed((4, 5), dtype, g))
        yield call(signed((3, 4), dtype, g), signed((5, 4), dtype, g).t())
        yield call(signed((4, 3), dtype, g).t(), signed((4, 5), dtype, g))
        yield call(signed((7, 33), dtype, g)[:, ::3], signed((11, 13), dtype, g))
        yield call(signed((1, 4), dtype, g).expand(3, 4), signed((4, 1), dtype, g))
        yield call(signed((3, 0), dtype, g), signed((0, 5), dtype, g))
        yield call(signed((0, 3), dtype, g), signed((3, 5), dtype, g))


@samples("bmm")
def _bmm(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        yield call(signed((2, 3, 4), dtype, g), signed((2, 4, 5), dtype, g))
        yield call(signed((2, 3, 4), dtype, g), signed((2, 5, 4), dtype, g).mT)
        yield call(signed((3, 2, 4), dtype, g).transpose(0, 1), signed((2, 4, 5), dtype, g))
        yield call(signed((1, 3, 4), dtype, g).expand(2, 3, 4), signed((2, 4, 1), dtype, g))
        yield call(signed((0, 3, 4), dtype, g), signed((0, 4, 5), dtype, g))
        yield call(signed((2, 3, 0), dtype, g), signed((2, 0, 5), dtype, g))
