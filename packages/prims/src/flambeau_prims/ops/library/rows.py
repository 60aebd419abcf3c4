"""Leaves of bags of embeddings, distances of rows, the CTC loss, and their gradients.

In: tables or batches of rows, positions, lengths. Out: a row for each bag, norms of differences,
a loss for each sequence.
Invariant: the mode of a bag is 0 sum, 1 mean, 2 maximum, and a position equal to `padding_idx` is
skipped; the order `p` of a norm is not negative; lengths are numbers, so that sizes do not depend
on elements.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._op import MetaResult, flops_per_input, metas_of, require, tensor_metas
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.pointwise import FLOATS
from flambeau_prims.shape_rules import Size, TensorMeta

aten = torch.ops.aten
_POSITIONS = frozenset({torch.int32, torch.int64})
_bag_leaf = partial(
    leaf,
    family="embedding",
    tags=("library", "index"),
    source="torch.nn.EmbeddingBag's documentation",
    exact=False,  # sums
)


def _check(weight: TensorMeta, indices: TensorMeta, offsets: TensorMeta) -> None:
    require(weight.ndim == 2, f"a table of shape {weight.shape}, not 2-d")
    require(weight.dtype in FLOATS, f"not defined on {weight.dtype}")
    for what, meta in (("indices", indices), ("offsets", offsets)):
        require(meta.ndim == 1, f"{what} of shape {meta.shape}, not 1-d")
        require(meta.dtype in _POSITIONS, f"{what} are {meta.dtype}, not int32 or int64")
    require(indices.dtype == offsets.dtype, "indices and offsets differ in dtype")


def _bag(weight: Tensor, indices: Tensor, offsets: Tensor, *how: Any) -> Any:
    by_frequency, mode, *rest = how
    expected = embedding_bag(*map(metas_of, (weight, indices, offsets, *how)))
    bags = (weight, indices, offsets)
    out, _, _, largest = aten._embedding_bag.default(*bags, by_frequency, mode, False, *rest)
    # A kernel leaves out what it has no use for; these mean the same on every device.
    order = torch.arange(indices.shape[0], device=indices.device)
    bag_of = torch.bucketize(order, offsets, right=True).to(indices.dtype) - 1
    count = expected[2].shape[0]
    kept = bag_of[indices != rest[-1]].long().clamp(max=max(count - 1, 0))
    sizes = torch.bincount(kept, minlength=count).to(indices.dtype)
    if mode != 2 or largest.shape != expected[3].shape:
        largest = largest.new_zeros(expected[3].shape)
    return out, bag_of, sizes, largest


@_bag_leaf(
    "embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq,"
    " int mode, Tensor? per_sample_weights, bool include_last_offset, int padding_idx)"
    " -> (Tensor out, Tensor bag_of, Tensor sizes, Tensor largest)",
    _bag,
    flops=flops_per_input(1),
    shape="[bags, columns of `weight`]; that of `indices`; [bags]; [bags, columns] for maxima",
    edge_cases={
        "empty": "an empty bag gives zeros",
        "out of range": "a position outside the table: an error in eager",
        "note": "the last three results mean something to the gradients alone",
    },
    differentiable="by embedding_bag_backward and embedding_bag_weights_backward",
)
def embedding_bag(
    weight: TensorMeta, indices: TensorMeta, offsets: TensorMeta, *how: Any
) -> tuple[TensorMeta, ...]:
    """out[b] is the sum, mean or maximum of weight[indices[i]] over the i of bag b, which begins at
    offsets[b]; and for the gradient the bag of each i, the sizes, the maxima's positions."""
    _check(weight, indices, offsets)
    _, mode, own, include_last_offset, _ = how
    require(mode in (0, 1, 2), f"mode {mode}")
    require(offsets.shape[0] > int(include_last_offset) - 1, "no offsets")
    if own is not None:
        require(mode == 0, f"weights of samples are for sums, not for mode {mode}")
        good = own.shape == indices.shape and own.dtype == weight.dtype
        require(good, f"weights of samples {own.shape} {own.dtype}")
    bags = offsets.shape[0] - int(include_last_offset)
    out = weight.like((bags, weight.shape[1]))
    whole = indices.like
    unused = (0,) if weight.device.type == "cuda" else (bags,)
    largest = (bags, weight.shape[1]) if mode == 2 else unused
    return out, whole(indices.shape), whole((bags,)), whole(largest)


@_bag_leaf(
    "embedding_bag_backward(Tensor grad, Tensor indices, Tensor bag_of, Tensor sizes,"
    " Tensor largest, SymInt rows, bool scale_grad_by_freq, int mode, Tensor? per_sample_weights,"
    " int padding_idx) -> Tensor",
    aten._embedding_bag_dense_backward,
    flops=flops_per_input(1),
    shape="[`rows`, columns of the gradient]",
    edge_cases={"duplicates": "add up; divided by their number if `scale_grad_by_freq`"},
)
def embedding_bag_backward(
    grad: TensorMeta, indices: TensorMeta, rows: Size, mode: int
) -> TensorMeta:
    """The gradient of the table: each bag's gradient added to the rows it was made of."""
    require(grad.ndim == 2 and grad.dtype in FLOATS, f"gradient {grad.shape}")
    require(indices.ndim == 1, f"indices of shape {indices.shape}, not 1-d")
    require(mode in (0, 1, 2), f"mode {mode}")
    return grad.like((rows, grad.shape[1]))


@_bag_leaf(
    "embedding_bag_weights_backward(Tensor grad, Tensor weight, Tensor indices, Tensor offsets,"
    " Tensor bag_of, int mode, int padding_idx) -> Tensor",
    aten._embedding_bag_per_sample_weights_backward,
    flops=flops_per_input(2),
    shape="that of `indices`",
    edge_cases="0 at `padding_idx`",
    reason="sums over bags of uneven lengths",
)
def embedding_bag_weights_backward(
    grad: TensorMeta, weight: TensorMeta, indices: TensorMeta, offsets: TensorMeta, mode: int
) -> TensorMeta:
    """The gradient of a sample's weight: its row times its bag's gradient, summed."""
    _check(weight, indices, offsets)
    require(mode == 0, f"weights of samples are for sums, not for mode {mode}")
    require(grad.dtype == weight.dtype, f"gradient of {grad.dtype} for {weight.dtype}")
    return grad.like(indices.shape)


_FULL = frozenset({torch.float32, torch.float64})
_EDGES = {
    "nan": "gives NaN",
    "ties": "the gradient of a distance of 0 is 0",
    "note": "`p` 0 counts entries that differ, infinity takes the largest",
}


def _check_rows(p: float, *metas: TensorMeta) -> None:
    require(p >= 0, f"p is {p}")
    for meta in metas:
        require(meta.dtype in _FULL, f"not defined on {meta.dtype}")
        require(meta.dtype == metas[0].dtype, f"dtypes {metas[0].dtype}, {meta.dtype}")


def _check_distances(grad: TensorMeta, found: TensorMeta, meta: TensorMeta) -> None:
    good = grad.shape == found.shape == meta.shape
    require(good, f"gradient {grad.shape}, distances {meta.shape}")


def _cdist_flops(args: tuple[Any, ...], result: MetaResult) -> Size:
    count: Size = 3 * tensor_metas((result,))[0].numel() * args[0].shape[-1]
    return count


_distance_leaf = partial(
    leaf,
    family="distance",
    reason="a product of matrices where eager has one, and rows otherwise, by the sizes",
    edge_cases=_EDGES,
    source="norms of the spaces l^p; scipy.spatial.distance's documentation",
)


@_distance_leaf(
    "cdist(Tensor a, Tensor b, float p) -> Tensor",
    lambda a, b, p: aten._cdist_forward.default(a, b, p, 2),
    flops=_cdist_flops,
    shape="[..., rows of `a`, rows of `b`]",
    edge_cases={**_EDGES, "empty": "rows without entries are at distance 0"},
    differentiable="by cdist_backward",
)
def cdist(a: TensorMeta, b: TensorMeta, p: float) -> TensorMeta:
    """out[..., i, j] is the norm of order `p` of a[..., i, :] - b[..., j, :]."""
    _check_rows(p, a, b)
    good = a.ndim == b.ndim and a.ndim >= 2 and a.shape[:-2] == b.shape[:-2]
    require(
        bool(good and a.shape[-1] == b.shape[-1]),
        f"rows of shapes {a.shape} and {b.shape}; broadcast the batches first",
    )
    return a.like((*a.shape[:-1], b.shape[-2]))


@_distance_leaf(
    "cdist_backward(Tensor grad, Tensor a, Tensor b, float p, Tensor distance) -> Tensor",
    lambda grad, a, b, p, d: aten._cdist_backward.default(
        grad.contiguous(), a.contiguous(), b.contiguous(), p, d
    ),
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[-1],
    shape="that of `a`, row-major",
)
def cdist_backward(
    grad: TensorMeta, a: TensorMeta, b: TensorMeta, p: float, distance: TensorMeta
) -> TensorMeta:
    """The gradient of `a` through `distance`, which is cdist(a, b, p)."""
    _check_rows(p, grad, a, b, distance)
    _check_distances(grad, distance, cdist(a, b, p))
    return a.like(a.shape)


@_distance_leaf(
    "pdist(Tensor a, float p) -> Tensor",
    lambda a, p: aten._pdist_forward.default(a.contiguous(), p),
    flops=lambda args, result: 3 * tensor_metas((result,))[0].numel() * args[0].shape[1],
    shape="[n (n - 1) / 2] for n rows",
    differentiable="by pdist_backward",
)
def pdist(a: TensorMeta, p: float) -> TensorMeta:
    """The distances of order `p` of all pairs i < j of rows, in row-major order of (i, j)."""
    _check_rows(p, a)
    require(a.ndim == 2, f"rows of shape {a.shape}, not 2-d")
    return a.like((a.shape[0] * (a.shape[0] - 1) // 2,))


@_distance_leaf(
    "pdist_backward(Tensor grad, Tensor a, float p, Tensor distance) -> Tensor",
    lambda grad, a, p, d: aten._pdist_backward.default(grad, a.contiguous(), p, d),
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[1],
    shape="that of `a`, row-major",
)
def pdist_backward(grad: TensorMeta, a: TensorMeta, p: float, distance: TensorMeta) -> TensorMeta:
    """The gradient of `a` through `distance`, which is pdist(a, p)."""
    _check_rows(p, grad, a, distance)
    _check_distances(grad, distance, pdist(a, p))
    return a.like(a.shape)


_ctc_leaf = partial(
    leaf,
    family="ctc",
    reason="a recurrence over time steps, one library call of which the derivative needs the parts",
    source="Graves et al.: Connectionist temporal classification, 2006",
)


@_ctc_leaf(
    "ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths,"
    " int blank, bool zero_infinity) -> (Tensor loss, Tensor log_alpha)",
    aten._ctc_loss,
    flops=lambda args, result: 8 * tensor_metas((result,))[-1].numel(),
    shape="[N] and [N, T, 2 S + 1] for T steps and targets up to S long",
    edge_cases={
        "infinity": "a target too long for its input: inf, or 0 if `zero_infinity`",
        "note": "elements of log_alpha past a sequence's end mean nothing",
    },
    differentiable="by ctc_loss_backward",
)
def ctc_loss(
    log_probs: TensorMeta, targets: TensorMeta, input_lengths: Any, target_lengths: Any, blank: int
) -> tuple[TensorMeta, TensorMeta]:
    """For each sequence minus the logarithm of the probability that its labels, with blanks between
    them and repeats, spell the target; and the forward variables of that sum."""
    require(log_probs.ndim == 3, f"log-probabilities of shape {log_probs.shape}")
    require(log_probs.dtype in _FULL, f"not defined on {log_probs.dtype}")
    steps, batch, classes = log_probs.shape
    require(0 <= blank < classes, f"blank {blank} of {classes} classes")
    require(targets.dtype in (torch.int32, torch.int64), f"targets of {targets.dtype}")
    for what, lengths in (("input", input_lengths), ("target", target_lengths)):
        require(len(lengths) == batch, f"{len(lengths)} {what} lengths for {batch}")
    require(all(n <= steps for n in input_lengths), f"an input longer than {steps}")
    if targets.ndim == 2:
        good = targets.shape[0] == batch and all(n <= targets.shape[1] for n in target_lengths)
    else:
        good = targets.ndim == 1 and targets.shape[0] == sum(target_lengths)
    require(bool(good), f"targets of shape {targets.shape} for {list(target_lengths)}")
    most = max(target_lengths, default=0)
    alpha = (batch, steps, 2 * most + 1)
    return log_probs.like((batch,)), log_probs.like(alpha)


@_ctc_leaf(
    "ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, int[] input_lengths,"
    " int[] target_lengths, Tensor loss, Tensor log_alpha, int blank, bool zero_infinity)"
    " -> Tensor",
    aten._ctc_loss_backward,
    flops=lambda args, result: 8 * args[6].numel(),
    shape="that of `log_probs`, row-major",
    edge_cases="0 past a sequence's end; 0 where the loss is infinite, if `zero_infinity`",
)
def ctc_loss_backward(grad: TensorMeta, log_probs: TensorMeta, *rest: Any) -> TensorMeta:
    """The gradient of the log-probabilities, given both results of ctc_loss."""
    *given, loss, log_alpha, blank, zero_infinity = rest
    first, second = ctc_loss(log_probs, *given, blank, zero_infinity)
    good = grad.shape == loss.shape == first.shape and log_alpha.shape == second.shape
    require(good, f"gradient {grad.shape}, losses {first.shape}")
    return log_probs.like(log_probs.shape)
