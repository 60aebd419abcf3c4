"""Sample calls of random numbers, their bits, and derivatives of distributions.

In: a generator. Out: seeds, calls that draw by position, and points of distributions.
Invariant: a call's numbers are determined by its seed and offset.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from flambeau_prims.conformance.samples.registry import Call, call, samples
from flambeau_prims.conformance.samples.tensors import BF16, CPU, F16, F32, F64, I32, I64, tensor


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
