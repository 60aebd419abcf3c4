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
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.layout import Size

aten = torch.ops.aten


def _positions(indices: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    wide = [positions("embedding_bag", given) for given in (indices, offsets)]
    return (indices, offsets) if indices.dtype == offsets.dtype else (wide[0], wide[1])


@decomposition(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    if sparse or weight.ndim != 2:
        return NotImplemented
    indices, offsets = _positions(indices, offsets)
    result = p.embedding_bag(
        weight, indices, offsets, scale_grad_by_freq, mode, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    return tuple(result)


@decomposition(aten._embedding_bag_dense_backward.default)
def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Size,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    return p.embedding_bag_backward(
        grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq,
        mode, per_sample_weights, padding_idx,
    )  # fmt: skip


@decomposition(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Any:
    indices, offsets = _positions(indices, offsets)
    return p.embedding_bag_weights_backward(
        grad, weight, indices, offsets, offset2bag, mode, padding_idx
    )


@decomposition(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: Size,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Any:
    del offsets  # every bag's entries are known by now
    if sparse or tuple(offset2bag.shape) != tuple(indices.shape):
        return NotImplemented
    return embedding_bag_dense_backward(
        grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq,
        mode, per_sample_weights, padding_idx,
    )  # fmt: skip
