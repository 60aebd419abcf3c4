"""Sample calls of shapes, copies, views, creation and complex numbers.

In: a generator. Out: calls on operands in several layouts.
Invariant: sizes are given in full; numbers fit the dtype of a result; operands of `bitcast` have
strides that allow the other size.

Sample calls of random numbers, their bits, and derivatives of distributions. In: a generator. Out:
seeds, calls that draw by position, and points of distributions. Invariant: a call's numbers are
determined by its seed and offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from flambeau_prims.conformance.samples.registry import Call, call, samples
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    BOOL,
    C64,
    C128,
    CPU,
    F16,
    F32,
    F64,
    I32,
    I64,
    U8,
    layouts,
    signed,
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
        yield call(turned[:1, :, :1], [1, turned.shape[1]], stride=turned.stride()[:2])
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


@samples("clone", of=_DTYPES)
def _clone(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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


@samples("copy_", of=(F32, F64, BF16, I64, U8, BOOL, C64))
def _copy(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(torch.zeros(3, 4, 5, dtype=dtype), tensor((5, 3, 4), dtype, g).permute(1, 2, 0))
    yield call(torch.zeros(5, 3, dtype=dtype).t(), tensor((3, 5), dtype, g))


@samples("full")
def _full(g: Generator) -> Iterator[Call]:
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
    for dtype in (I64, I32):
        yield call(5, 2, 3, dtype=dtype, device=CPU)
        yield call(6, 2, -3, dtype=dtype, device=CPU)
    for dtype in (F32, F64, BF16):
        yield call(4, 0.5, -0.25, dtype=dtype, device=CPU)
        yield call(33, 0.1, 0.1, dtype=dtype, device=CPU)  # formed in float64, rounded once
    yield call(0, 0, 1, dtype=I64, device=CPU)


@samples("real", "imag", "view_as_real", of=(C64, C128))
def _parts(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(signed((3, 4), dtype, g))
    yield call(signed((4, 3), dtype, g).t())
    yield call(signed((3, 8), dtype, g)[1:, ::2])
    yield call(signed((), dtype, g))
    yield call(signed((2, 0), dtype, g))


@samples("view_as_complex", of=(F32, F64))
def _parts_and_whole(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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


@samples("diagonal_scatter", of=(F32, BF16, I64, C64))
def _diagonal_scatter(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = tensor((3, 4, 5), dtype, g)
    yield call(a, tensor((3, 4), dtype, g), 0, 1, 2)
    yield call(a, tensor((4, 3), dtype, g), -1, 2, 0)
    yield call(a.permute(2, 0, 1), tensor((4, 3), dtype, g), 0, 0, 1)
    yield call(a, tensor((3, 0), dtype, g), 9, 1, 2)


@samples("unfold", of=(F32, I64, C64))
def _unfold(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = tensor((3, 9, 2), dtype, g)
    for size, step in ((3, 1), (2, 3), (9, 1), (1, 4)):
        yield call(a, 1, size, step)
    yield call(a.permute(1, 0, 2), 0, 4, 2)
    yield call(a, 1, 0, 1)


@samples("restride", of=(F32, I64, C64))
def _restride(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = tensor((3, 4, 5), dtype, g)
    yield call(a, [2, 3, 3], [20, 5, 1])
    yield call(a[1:, 2:], [2, 2], [1, 7])
    yield call(a, [3, 3], [1, 1])


@samples("as_strided_scatter", of=(F32, I64, C64))
def _as_strided_scatter(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
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


@samples("seed")
def _seed(g: Generator) -> Iterator[Call]:
    yield call(device=CPU)


@samples("philox_uniform", "philox_normal", of=(F32, F64, F16, BF16))
def _philox(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call([3, 5], torch.tensor(1234), 0, dtype=dtype, device=CPU)
    yield call([17], torch.tensor(-7), 2, dtype=dtype, device=CPU)
    yield call([2, 3, 4], torch.tensor(2**40 + 3), 2**33, dtype=dtype, device=CPU)
    yield call([0], torch.tensor(5), 0, dtype=dtype, device=CPU)
    yield call([], torch.tensor(5), 9, dtype=dtype, device=CPU)


@samples("philox_bits", of=(I32, I64))
def _bits(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call([3, 5], torch.tensor(1234), 0, dtype=dtype, device=CPU)
    yield call([2, 3, 4], torch.tensor(2**40 + 3), 2**33, dtype=dtype, device=CPU)
    yield call([0], torch.tensor(5), 0, dtype=dtype, device=CPU)
    yield call([], torch.tensor(-5), 9, dtype=dtype, device=CPU)


@samples("gamma_grad", of=(F32, F64))
def _gamma_grad(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    alpha = tensor((4, 5), dtype, g) * 3 + 0.5
    yield call(alpha, alpha * tensor((4, 5), dtype, g) + 0.1)
    yield call(alpha.t(), tensor((5, 4), dtype, g))
    yield call(alpha[:0], alpha[:0])


@samples("dirichlet_grad", of=(F32, F64))
def _dirichlet_grad(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    alpha = tensor((4, 5), dtype, g) * 2 + 0.5
    total = alpha + tensor((4, 5), dtype, g) * 2 + 0.5
    yield call(tensor((4, 5), dtype, g), alpha, total)
    yield call(tensor((5, 4), dtype, g), alpha.t(), total.t())
    yield call(torch.full((), 0.3, dtype=dtype), alpha[0, 0], total[0, 0])
