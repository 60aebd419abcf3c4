"""Sample calls of special functions of restricted domain.

In: a generator. Out: calls inside the domain, away from its ends.
Invariant: eager is right to three digits there.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import F32, F64, tensor


@samples("gamma_grad")
def _gamma_grad(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        alpha = tensor((4, 5), dtype, g) * 3 + 0.5
        yield call(alpha, alpha * tensor((4, 5), dtype, g) + 0.1)
        yield call(alpha.t(), tensor((5, 4), dtype, g))
        yield call(alpha[:0], alpha[:0])


@samples("dirichlet_grad")
def _dirichlet_grad(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        alpha = tensor((4, 5), dtype, g) * 2 + 0.5
        total = alpha + tensor((4, 5), dtype, g) * 2 + 0.5
        yield call(tensor((4, 5), dtype, g), alpha, total)
        yield call(tensor((5, 4), dtype, g), alpha.t(), total.t())
        yield call(torch.full((), 0.3, dtype=dtype), alpha[0, 0], total[0, 0])
