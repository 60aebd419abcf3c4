"""Sample calls of bags of embeddings and of losses of sequences.

In: a generator. Out: bags and targets of several lengths, empty ones among them.
Invariant: a backward call gets what the forward call of the same arguments returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from flambeau_prims.conformance.samples.registry import Call, call, gradients, samples
from flambeau_prims.conformance.samples.tensors import F32, F64, I64, distinct, signed


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
