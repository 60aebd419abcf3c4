"""Leaves of bags of embeddings and their gradients.

In: a table of rows, positions of rows, and where each bag begins. Out: a row for each bag.
Invariant: `mode` is 0 sum, 1 mean, 2 maximum; a position equal to `padding_idx` is passed over.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from flambeau_prims._op import flops_per_input, metas_of, require
from flambeau_prims.layout import Size, TensorMeta
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.pointwise import FLOATS

aten = torch.ops.aten
_POSITIONS = frozenset({torch.int32, torch.int64})
_leaf = partial(
    leaf,
    family="embedding",
    tags=("library", "index"),
    source="torch.nn.EmbeddingBag's documentation",
    exact=False,  # sums
)


def _check(name: str, weight: TensorMeta, indices: TensorMeta, offsets: TensorMeta) -> None:
    require(weight.ndim == 2, f"{name}: a table of shape {weight.shape}, not 2-d")
    require(weight.dtype in FLOATS, f"{name}: not defined on {weight.dtype}")
    for what, meta in (("indices", indices), ("offsets", offsets)):
        require(meta.ndim == 1, f"{name}: {what} of shape {meta.shape}, not 1-d")
        require(meta.dtype in _POSITIONS, f"{name}: {what} are {meta.dtype}, not int32 or int64")
    require(indices.dtype == offsets.dtype, f"{name}: indices and offsets differ in dtype")


def _bag_rule(
    weight: TensorMeta,
    indices: TensorMeta,
    offsets: TensorMeta,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: TensorMeta | None,
    include_last_offset: bool,
    padding_idx: int,
) -> tuple[TensorMeta, ...]:
    name = "embedding_bag"
    del scale_grad_by_freq, padding_idx
    _check(name, weight, indices, offsets)
    require(mode in (0, 1, 2), f"{name}: mode {mode}")
    require(offsets.shape[0] > int(include_last_offset) - 1, f"{name}: no offsets")
    if per_sample_weights is not None:
        require(mode == 0, f"{name}: weights of samples are for sums, not for mode {mode}")
        good = per_sample_weights.shape == indices.shape
        require(
            good and per_sample_weights.dtype == weight.dtype,
            f"{name}: weights of samples {per_sample_weights.shape} {per_sample_weights.dtype}",
        )
    bags = offsets.shape[0] - int(include_last_offset)
    out = weight.like((bags, weight.shape[1]))
    whole = indices.like
    largest = (bags, weight.shape[1]) if mode == 2 else _unused_largest(weight, bags)
    return out, whole(indices.shape), whole((bags,)), whole(largest)


def _unused_largest(weight: TensorMeta, bags: Size) -> tuple[Size, ...]:
    return (0,) if weight.device.type == "cuda" else (bags,)


def _bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: torch.Tensor | None,
    include_last_offset: bool,
    padding_idx: int,
) -> Any:
    args = (weight, indices, offsets, scale_grad_by_freq, mode)
    rest = (per_sample_weights, include_last_offset, padding_idx)
    expected = _bag_rule(*map(metas_of, (*args, *rest)))
    out, _, _, largest = aten._embedding_bag.default(*args, False, *rest)
    # A kernel leaves out what it has no use for; these mean the same on every device.
    order = torch.arange(indices.shape[0], device=indices.device)
    bag_of = torch.bucketize(order, offsets, right=True).to(indices.dtype) - 1
    bags = expected[2].shape[0]
    kept = bag_of[indices != padding_idx].long().clamp(max=max(bags - 1, 0))
    sizes = torch.bincount(kept, minlength=bags).to(indices.dtype)
    if mode != 2 or largest.shape != expected[3].shape:
        largest = largest.new_zeros(expected[3].shape)
    return out, bag_of, sizes, largest


_leaf(
    "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq,"
    " int mode, Tensor? per_sample_weights, bool include_last_offset, int padding_idx)"
    " -> (Tensor out, Tensor bag_of, Tensor sizes, Tensor largest)",
    _bag_rule,
    _bag,
    "out[b] is the sum, mean or maximum of weight[indices[i]] over the i of bag b, which begins"
    " at offsets[b]; and for the gradient the bag of each i, the sizes, the maxima's positions.",
    flops=flops_per_input(1),
    shape="[bags, columns of `weight`]; that of `indices`; [bags]; [bags, columns] for maxima",
    edge_cases={
        "empty": "an empty bag gives zeros",
        "out of range": "a position outside the table: an error in eager",
        "note": "the last three results mean something to the gradients alone",
    },
    differentiable="by embedding_bag_backward and embedding_bag_weights_backward",
)


def _back_rule(
    grad: TensorMeta,
    indices: TensorMeta,
    bag_of: TensorMeta,
    sizes: TensorMeta,
    largest: TensorMeta,
    rows: Size,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: TensorMeta | None,
    padding_idx: int,
) -> TensorMeta:
    name = "embedding_bag_backward"
    del bag_of, sizes, largest, scale_grad_by_freq, per_sample_weights, padding_idx
    require(grad.ndim == 2 and grad.dtype in FLOATS, f"{name}: gradient {grad.shape}")
    require(indices.ndim == 1, f"{name}: indices of shape {indices.shape}, not 1-d")
    require(mode in (0, 1, 2), f"{name}: mode {mode}")
    return grad.like((rows, grad.shape[1]))


_leaf(
    "embedding_bag_backward(Tensor grad, Tensor indices, Tensor bag_of, Tensor sizes,"
    " Tensor largest, SymInt rows, bool scale_grad_by_freq, int mode, Tensor? per_sample_weights,"
    " int padding_idx) -> Tensor",
    _back_rule,
    aten._embedding_bag_dense_backward,
    "The gradient of the table: each bag's gradient added to the rows it was made of.",
    flops=flops_per_input(1),
    shape="[`rows`, columns of the gradient]",
    edge_cases={"duplicates": "add up; divided by their number if `scale_grad_by_freq`"},
)


def _weights_back_rule(
    grad: TensorMeta,
    weight: TensorMeta,
    indices: TensorMeta,
    offsets: TensorMeta,
    bag_of: TensorMeta,
    mode: int,
    padding_idx: int,
) -> TensorMeta:
    name = "embedding_bag_weights_backward"
    del bag_of, padding_idx
    _check(name, weight, indices, offsets)
    require(mode == 0, f"{name}: weights of samples are for sums, not for mode {mode}")
    require(grad.dtype == weight.dtype, f"{name}: gradient of {grad.dtype} for {weight.dtype}")
    return grad.like(indices.shape)


_leaf(
    "embedding_bag_weights_backward(Tensor grad, Tensor weight, Tensor indices, Tensor offsets,"
    " Tensor bag_of, int mode, int padding_idx) -> Tensor",
    _weights_back_rule,
    aten._embedding_bag_per_sample_weights_backward,
    "The gradient of a sample's weight: its row times its bag's gradient, summed.",
    flops=flops_per_input(2),
    shape="that of `indices`",
    edge_cases="0 at `padding_idx`",
    reason="sums over bags of uneven lengths",
)
