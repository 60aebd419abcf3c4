"""Sample calls of reductions, scans, sorting, indexing, data-dependent sizes, assertions.

In: a generator. Out: calls over several dimensions, layouts and dtypes, positions in range.
Invariant: results are determined: integer sums stay small, there are no ties where the position
of one is undefined, and no result depends on the order of writes.

Sample calls of bags of embeddings and of losses of sequences. In: a generator. Out: bags and
targets of several lengths, empty ones among them. Invariant: a backward call gets what the forward
call of the same arguments returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from flambeau_prims.conformance.samples.registry import Call, call, gradients, samples
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    BOOL,
    C64,
    C128,
    F16,
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
    yield call(special(F32)[:6].view(2, 3), [1])  # an infinity and a finite number


@samples("prod", of=(F32, F64, I64, C64))
def _prod(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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


@samples("var_mean", of=(F32, F64))
def _var_mean(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    for dims in ([1], [0, 2], [0, 1, 2]):
        yield call(tensor((3, 4, 5), dtype, g), dims, correction=1.0)
        yield call(tensor((3, 4, 5), dtype, g).transpose(0, 1), dims, correction=0.0)
    yield call(tensor((64, 1), dtype, g) + 1000, [0], correction=0.0)  # cancellation
    yield call(tensor((3, 1), dtype, g), [1], correction=1.0)  # NaN: no degree of freedom


@samples("cumsum", "cumprod", of=(F32, F64, I64, I32, C64))
def _scans(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(tensor((3, 7), dtype, g), 1)
    yield call(tensor((7, 3), dtype, g).t(), 0)
    yield call(tensor((2, 3, 4), dtype, g), 1)
    yield call(tensor((2, 0), dtype, g), 1)


@samples("cummax", "cummin", of=(F32, F64, I64))
def _running_extremum(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(distinct((3, 7), dtype, g), 1)
    yield call(distinct((7, 3), dtype, g).t(), 0)
    yield call(distinct((2, 3, 4), dtype, g), 1)


@samples("logcumsumexp", of=(F32, F64))
def _logcumsumexp(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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
    edges = distinct((9,), F32, g).sort().values
    for values in (signed((4, 5), F32, g) * 4, edges[2:5]):
        for right in (False, True):
            yield call(edges, values, right)


@samples("kthvalue", of=(F32, F64, BF16, I64))
def _kthvalue(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    for k in (1, 3, 5):
        yield call(distinct((4, 5), dtype, g), k, 1)
    yield call(distinct((5, 4), dtype, g).t(), 2, 0)


@samples("median", "nanmedian", of=(F32, F64, BF16, I64))
def _median(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(distinct((4, 5), dtype, g), 1)
    yield call(distinct((5, 4), dtype, g).t(), 0)
    yield call(distinct((2, 6, 3), dtype, g), 1)


@samples("nanmedian")
def _nanmedian(g: Generator) -> Iterator[Call]:
    a = distinct((3, 5), F32, g)
    a[0, 2] = a[1, 0] = a[1, 4] = float("nan")
    yield call(a, 1)


@samples("mode", of=(F32, F64, I64))
def _mode(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(torch.tensor([[3, 1, 3, 2], [7, 7, 7, 7], [2, 5, 5, 9]]).to(dtype), 1)
    yield call(distinct((5, 4), dtype, g), 0)


@samples("searchsorted", of=(F32, F64, I64, I32))
def _searchsorted_rows(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    edges = tensor((6,), dtype, g).sort().values
    for right in (False, True):
        yield call(edges, tensor((3, 4), dtype, g), right)
        yield call(edges, edges, right)
    rows = distinct((3, 6), dtype, g).sort(1).values
    yield call(rows, signed((3, 5), dtype, g).abs() * 4, False)
    yield call(edges[:0], tensor((3,), dtype, g), False)
    yield call(edges, tensor((), dtype, g), True)


@samples("histc", of=(F32, F64))
def _histc(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    low, high = torch.tensor(0.125, dtype=dtype), torch.tensor(0.625, dtype=dtype)
    yield call(tensor((3, 40), dtype, g), 4, low, high)
    yield call(torch.tensor([0.125, 0.25, 0.625, 0.7, 0.0], dtype=dtype), 4, low, high)
    yield call(tensor((0,), dtype, g), 3, low, high)


@samples("cummax", "cummin")
def _running_extremum_of_kinds(g: Generator) -> Iterator[Call]:
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


@samples("scatter_prod", "scatter_amax", "scatter_amin", of=(F32, F64, BF16, I64))
def _scatter_combining(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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


@samples("nonzero", of=(F32, I64, BOOL, C64))
def _nonzero(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(positions((3, 4), 2, g).to(dtype))
    yield call(positions((4, 3), 2, g).to(dtype).t())
    yield call(tensor((2, 0), dtype, g))
    yield call(torch.ones((), dtype=dtype))


@samples("masked_select", of=(F32, BF16, I64, BOOL, C64))
def _masked_select(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(tensor((3, 4), dtype, g), tensor((3, 4), BOOL, g))
    yield call(tensor((4, 3), dtype, g).t(), tensor((3, 4), BOOL, g))


@samples("unique", "unique_consecutive", of=(F32, F64, I64, U8, BOOL))
def _unique(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(positions((3, 4), 4, g).to(dtype))
    yield call(positions((5, 3), 3, g).to(dtype).t())
    yield call(tensor((0,), dtype, g))


@samples("unique_dim", of=(F32, I64))
def _unique_dim(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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


@samples("index_select", of=_DTYPES)
def _index_select(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(tensor((4, 5), dtype, g), 0, positions((6,), 4, g))
    yield call(tensor((4, 5), dtype, g).t(), 0, positions((6,), 5, g))
    yield call(tensor((2, 3, 4), dtype, g), 1, positions((0,), 3, g))


def _orders(shape: tuple[int, int], below: int, g: Generator) -> Tensor:
    """Positions along dimension 1 that are distinct in each row."""
    rows, columns = shape
    return torch.stack([torch.randperm(below, generator=g)[:columns] for _ in range(rows)])


@samples("scatter", of=_DTYPES)
def _scatter(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    order = _orders((4, 3), 5, g)
    yield call(tensor((4, 5), dtype, g), 1, order, tensor((4, 3), dtype, g))
    yield call(tensor((5, 4), dtype, g).t(), 1, order, tensor((3, 4), dtype, g).t())
    yield call(tensor((5, 4), dtype, g), 0, order.t(), tensor((3, 4), dtype, g))


@samples("scatter_add", of=(F32, F64, I64, C64))
def _scatter_add(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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


@samples("assert_true")
def _assert_true(g: Generator) -> Iterator[Call]:
    yield call(torch.tensor(True), "not so")


@samples("embedding_bag", of=(F32, F64))
def _bags(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    weight = distinct((6, 3), dtype, g)
    indices = torch.tensor([1, 4, 4, 0, 5, 2, 3])
    offsets = torch.tensor([0, 2, 2, 5])
    for mode in (0, 1, 2):
        yield call(weight, indices, offsets, False, mode, None, False, -1)
        yield call(weight, indices, offsets, False, mode, None, False, 4)
    own = signed((7,), dtype, g)
    yield call(weight, indices, offsets, False, 0, own, False, -1)
    closed = torch.tensor([0, 2, 7])
    yield call(weight, indices, closed, False, 0, None, True, -1)


@samples("ctc_loss", of=(F32, F64))
def _sequences(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    scores = signed((6, 2, 4), dtype, g).log_softmax(2)
    targets = torch.randint(1, 4, (2, 3), dtype=I64, generator=g)
    yield call(scores, targets, [6, 5], [3, 2], 0, False)
    yield call(scores, targets.flatten()[:5], [6, 6], [3, 2], 0, False)


gradients("embedding_bag_backward", rows=lambda given: given["weight"].shape[0])
gradients("embedding_bag_weights_backward", "embedding_bag")
gradients("ctc_loss_backward")
