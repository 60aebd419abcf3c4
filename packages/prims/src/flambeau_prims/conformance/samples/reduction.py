"""Sample calls of reductions, scans and sorting.

In: a generator. Out: calls over several dimensions, layouts and dtypes.
Invariant: sums stay small enough for exact comparison in the integer dtypes.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Generator, Tensor

from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    BOOL,
    C64,
    F16,
    F32,
    F64,
    I32,
    I64,
    U8,
    distinct,
    signed,
    special,
    tensor,
)

_REAL = (F32, F64, BF16, F16, I64, I32, U8)


def _operands(shape: tuple[int, ...], *dtypes: object, g: Generator) -> Iterator[Tensor]:
    """Contiguous, permuted, strided and expanded operands of one shape (of 3 dimensions)."""
    a, b, c = shape
    for dtype in dtypes:
        yield signed(shape, dtype, g)  # type: ignore[arg-type]
        yield signed((c, a, b), dtype, g).permute(1, 2, 0)  # type: ignore[arg-type]
        yield signed((a, b, 2 * c), dtype, g)[:, :, ::2]  # type: ignore[arg-type]
        yield signed((a, 1, c), dtype, g).expand(shape)  # type: ignore[arg-type]


def _over_dims(*dtypes: object, empty: bool, g: Generator) -> Iterator[Call]:
    for a in _operands((3, 4, 5), *dtypes, g=g):
        for dims in ([2], [0], [0, 2], [0, 1, 2], []):
            yield call(a, dims)
    for dtype in dtypes:
        yield call(signed((), dtype, g), [])  # type: ignore[arg-type]
        yield call(signed((3, 0, 5), dtype, g), [0])  # type: ignore[arg-type]
        yield call(signed((1, 17, 67), dtype, g), [2])  # type: ignore[arg-type]
        if empty:
            yield call(signed((3, 0, 5), dtype, g), [1])  # type: ignore[arg-type]
            yield call(signed((0,), dtype, g), [0])  # type: ignore[arg-type]


@samples("sum")
def _sum(g: Generator) -> Iterator[Call]:
    yield from _over_dims(*_REAL, C64, BOOL, empty=True, g=g)
    yield call(special(F32)[:6].view(2, 3), [1])  # an infinity meets a finite number


@samples("prod")
def _prod(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64, C64):
        yield call(tensor((3, 4, 5), dtype, g), [1])
        yield call(tensor((5, 3, 4), dtype, g).permute(1, 2, 0), [0, 2])
        yield call(tensor((2, 0), dtype, g), [1])
        yield call(tensor((), dtype, g), [])


@samples("amax", "amin")
def _extremum(g: Generator) -> Iterator[Call]:
    yield from _over_dims(*_REAL, BOOL, empty=False, g=g)
    for dtype in (F32, F64, BF16):
        yield call(special(dtype).view(3, 4), [1])
        yield call(special(dtype)[:8].view(2, 4), [0])


@samples("any", "all")
def _tests(g: Generator) -> Iterator[Call]:
    yield from _over_dims(BOOL, empty=True, g=g)


@samples("argmax", "argmin")
def _positions(g: Generator) -> Iterator[Call]:
    for dtype in _REAL:
        yield call(signed((3, 7), dtype, g), 1)
        yield call(signed((7, 3), dtype, g).t(), 0)
        yield call(signed((2, 1, 5), dtype, g), 1)
    yield call(special(F32).view(3, 4), 1)  # NaN counts as the largest, and as the smallest
    yield call(tensor((4, 5), I64, g) // 3, 0)  # ties: the first


@samples("var_mean")
def _var_mean(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        for dims in ([1], [0, 2], [0, 1, 2]):
            yield call(tensor((3, 4, 5), dtype, g), dims, correction=1.0)
            yield call(tensor((3, 4, 5), dtype, g).transpose(0, 1), dims, correction=0.0)
        yield call(tensor((64, 1), dtype, g) + 1000, [0], correction=0.0)  # cancellation
        yield call(tensor((3, 1), dtype, g), [1], correction=1.0)  # NaN: no degree of freedom


@samples("cumsum", "cumprod")
def _scans(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64, I32, C64):
        yield call(tensor((3, 7), dtype, g), 1)
        yield call(tensor((7, 3), dtype, g).t(), 0)
        yield call(tensor((2, 3, 4), dtype, g), 1)
        yield call(tensor((2, 0), dtype, g), 1)


@samples("cummax", "cummin")
def _running_extremum(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, I64):
        yield call(distinct((3, 7), dtype, g), 1)
        yield call(distinct((7, 3), dtype, g).t(), 0)
        yield call(distinct((2, 3, 4), dtype, g), 1)


@samples("logcumsumexp")
def _logcumsumexp(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        yield call(signed((3, 7), dtype, g), 1)
        yield call(signed((7, 3), dtype, g).t() * 50, 0)


@samples("sort")
def _sorts(g: Generator) -> Iterator[Call]:
    for dtype in _REAL:
        for descending in (False, True):
            yield call(distinct((3, 7), dtype, g), 1, descending, True)
            yield call(distinct((7, 3), dtype, g).t(), 0, descending, False)
    yield call(tensor((4, 9), I64, g) // 2, 1, False, True)  # ties keep their order
    yield call(tensor((4, 9), I64, g) // 2, 1, True, True)
    yield call(special(F32).view(3, 4), 1, False, True)  # NaN is the largest
    yield call(tensor((3, 0), F32, g), 1, False, True)


@samples("topk")
def _topk(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64, BF16, I64):
        for largest in (True, False):
            yield call(distinct((3, 7), dtype, g), 3, 1, largest, True)
            yield call(distinct((7, 3), dtype, g).t(), 2, 0, largest, True)
            yield call(distinct((2, 5, 3), dtype, g), 4, 1, largest, False)
    yield call(distinct((3, 7), F32, g), 0, 1, True, True)


@samples("searchsorted")
def _searchsorted(g: Generator) -> Iterator[Call]:
    from flambeau_prims._op import PRIMS
    from flambeau_prims.conformance.samples.derived import (
        accepts,  # derive imports this package's cases
    )

    edges = distinct((9,), F32, g).sort().values
    for values in (signed((4, 5), F32, g) * 4, edges[2:5]):
        for right in (False, True):
            if accepts(PRIMS["searchsorted"], (edges, values, right), {}):
                yield call(edges, values, right)
