"""Sample calls of row primitives: bags of embeddings, distances, CTC.

In: a generator. Out: calls of each mode.
Invariant: a backward call gets what the forward call of the same arguments returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.samples.cases import Call, call, samples
from flambeau_prims.conformance.samples.tensors import F32, F64, I64, distinct, signed


@samples("embedding_bag")
def _bags(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
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


@samples("embedding_bag_backward")
def _bag_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _bags(g):
        weight, indices, _, by_frequency, mode, own, _, padding = args
        out, bag_of, sizes, largest = PRIMS["embedding_bag"].overload(*args)
        grad = signed(tuple(out.shape), out.dtype, g)
        yield call(
            grad, indices, bag_of, sizes, largest, weight.shape[0], by_frequency, mode, own, padding
        )


@samples("embedding_bag_weights_backward")
def _bag_weight_gradients(g: Generator) -> Iterator[Call]:
    for args, _ in _bags(g):
        weight, indices, offsets, _, mode, own, _, padding = args
        if own is not None:
            out, bag_of, _, _ = PRIMS["embedding_bag"].overload(*args)
            grad = signed(tuple(out.shape), out.dtype, g)
            yield call(grad, weight, indices, offsets, bag_of, mode, padding)


@samples("cdist")
def _distances(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        a, b = signed((2, 4, 3), dtype, g), signed((2, 5, 3), dtype, g)
        for order in (0.0, 1.0, 2.0, 2.5, float("inf")):
            yield call(a, b, order)
        yield call(a[0], b[1], 2.0)


@samples("cdist_backward")
def _distance_gradients(g: Generator) -> Iterator[Call]:
    for (a, b, order), _ in _distances(g):
        distance = PRIMS["cdist"].overload(a, b, order)
        yield call(signed(tuple(distance.shape), a.dtype, g), a, b, order, distance)


@samples("pdist")
def _pairs(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        for order in (0.0, 1.0, 2.0, 2.5, float("inf")):
            yield call(signed((5, 3), dtype, g), order)
        yield call(signed((1, 3), dtype, g), 2.0)


@samples("pdist_backward")
def _pair_gradients(g: Generator) -> Iterator[Call]:
    for (a, order), _ in _pairs(g):
        distance = PRIMS["pdist"].overload(a, order)
        yield call(signed(tuple(distance.shape), a.dtype, g), a, order, distance)


@samples("ctc_loss")
def _sequences(g: Generator) -> Iterator[Call]:
    for dtype in (F32, F64):
        scores = signed((6, 2, 4), dtype, g).log_softmax(2)
        targets = torch.randint(1, 4, (2, 3), dtype=I64, generator=g)
        yield call(scores, targets, [6, 5], [3, 2], 0, False)
        yield call(scores, targets.flatten()[:5], [6, 6], [3, 2], 0, False)


@samples("ctc_loss_backward")
def _sequence_gradients(g: Generator) -> Iterator[Call]:
    for (scores, targets, steps, labels, blank, zero), _ in _sequences(g):
        loss, alpha = PRIMS["ctc_loss"].overload(scores, targets, steps, labels, blank, zero)
        grad = signed(tuple(loss.shape), loss.dtype, g)
        yield call(grad, scores, targets, steps, labels, loss, alpha, blank, zero)
