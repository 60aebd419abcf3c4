"""Decompositions of bags of embeddings, forward and backward.

In: ATen's overloads. Out: the embedding prims.
Invariant: sparse gradients stay with ATen: a prim's result is strided.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.indexing.indexing import positions
from flambeau_prims.decomposition_table import Arguments, by_name

aten = torch.ops.aten


def _positions(indices: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    wide = [positions("embedding_bag", given) for given in (indices, offsets)]
    return (indices, offsets) if indices.dtype == offsets.dtype else (wide[0], wide[1])


@by_name(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(a: Arguments) -> Any:
    if a.sparse or a.weight.ndim != 2:
        return NotImplemented
    bags = _positions(a.indices, a.offsets)
    rest = (a.per_sample_weights, a.include_last_offset, a.padding_idx)
    return tuple(p.embedding_bag(a.weight, *bags, a.scale_grad_by_freq, a.mode, *rest))


@by_name(aten._embedding_bag_dense_backward.default, aten._embedding_bag_backward.default)
def embedding_bag_backward(a: Arguments) -> Any:
    """Every bag's entries are known by now, so that the second overload's offsets are not read."""
    if a.sparse or (a.offsets is not None and tuple(a.offset2bag.shape) != tuple(a.indices.shape)):
        return NotImplemented
    return p.embedding_bag_backward(
        a.grad, a.indices, a.offset2bag, a.bag_size, a.maximum_indices, a.num_weights,
        a.scale_grad_by_freq, a.mode, a.per_sample_weights, a.padding_idx,
    )  # fmt: skip


@by_name(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_per_sample_weights_backward(a: Arguments) -> Any:
    bags = _positions(a.indices, a.offsets)
    rest = (a.offset2bag, a.mode, a.padding_idx)
    return p.embedding_bag_weights_backward(a.grad, a.weight, *bags, *rest)
