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

from flambeau_prims._op import MetaResult, flops_per_input, metas_of, require, tensor_metas
from flambeau_prims.layout import Size, TensorMeta
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.pointwise import FLOATS

aten = torch.ops.aten
_POSITIONS = frozenset({torch.int32, torch.int64})
_bag_leaf = partial(
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


_bag_leaf(
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


_bag_leaf(
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


_bag_leaf(
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


_FULL = frozenset({torch.float32, torch.float64})
_EDGES = {
    "nan": "gives NaN",
    "ties": "the gradient of a distance of 0 is 0",
    "note": "`p` 0 counts entries that differ, infinity takes the largest",
}


def _check_rows(name: str, p: float, *metas: TensorMeta) -> None:
    require(p >= 0, f"{name}: p is {p}")
    for meta in metas:
        require(meta.dtype in _FULL, f"{name}: not defined on {meta.dtype}")
        require(meta.dtype == metas[0].dtype, f"{name}: dtypes {metas[0].dtype}, {meta.dtype}")


def _check_distances(name: str, grad: TensorMeta, found: TensorMeta, meta: TensorMeta) -> None:
    good = grad.shape == found.shape == meta.shape
    require(good, f"{name}: gradient {grad.shape}, distances {meta.shape}")


def _cdist_rule(a: TensorMeta, b: TensorMeta, p: float) -> TensorMeta:
    _check_rows("cdist", p, a, b)
    good = a.ndim == b.ndim and a.ndim >= 2 and a.shape[:-2] == b.shape[:-2]
    require(
        bool(good and a.shape[-1] == b.shape[-1]),
        f"cdist: rows of shapes {a.shape} and {b.shape}; broadcast the batches first",
    )
    return a.like((*a.shape[:-1], b.shape[-2]))


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

_distance_leaf(
    "cdist(Tensor a, Tensor b, float p) -> Tensor",
    _cdist_rule,
    lambda a, b, p: aten._cdist_forward.default(a, b, p, 2),
    "out[..., i, j] is the norm of order `p` of a[..., i, :] - b[..., j, :].",
    flops=_cdist_flops,
    shape="[..., rows of `a`, rows of `b`]",
    edge_cases={**_EDGES, "empty": "rows without entries are at distance 0"},
    differentiable="by cdist_backward",
)


def _cdist_back_rule(
    grad: TensorMeta, a: TensorMeta, b: TensorMeta, p: float, distance: TensorMeta
) -> TensorMeta:
    _check_rows("cdist_backward", p, grad, a, b, distance)
    _check_distances("cdist_backward", grad, distance, _cdist_rule(a, b, p))
    return a.like(a.shape)


_distance_leaf(
    "cdist_backward(Tensor grad, Tensor a, Tensor b, float p, Tensor distance) -> Tensor",
    _cdist_back_rule,
    lambda grad, a, b, p, d: aten._cdist_backward.default(
        grad.contiguous(), a.contiguous(), b.contiguous(), p, d
    ),
    "The gradient of `a` through `distance`, which is cdist(a, b, p).",
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[-1],
    shape="that of `a`, row-major",
)


def _pdist_rule(a: TensorMeta, p: float) -> TensorMeta:
    _check_rows("pdist", p, a)
    require(a.ndim == 2, f"pdist: rows of shape {a.shape}, not 2-d")
    return a.like((a.shape[0] * (a.shape[0] - 1) // 2,))


_distance_leaf(
    "pdist(Tensor a, float p) -> Tensor",
    _pdist_rule,
    lambda a, p: aten._pdist_forward.default(a.contiguous(), p),
    "The distances of order `p` of all pairs i < j of rows, in row-major order of (i, j).",
    flops=lambda args, result: 3 * tensor_metas((result,))[0].numel() * args[0].shape[1],
    shape="[n (n - 1) / 2] for n rows",
    differentiable="by pdist_backward",
)


def _pdist_back_rule(grad: TensorMeta, a: TensorMeta, p: float, distance: TensorMeta) -> TensorMeta:
    _check_rows("pdist_backward", p, grad, a, distance)
    _check_distances("pdist_backward", grad, distance, _pdist_rule(a, p))
    return a.like(a.shape)


_distance_leaf(
    "pdist_backward(Tensor grad, Tensor a, float p, Tensor distance) -> Tensor",
    _pdist_back_rule,
    lambda grad, a, p, d: aten._pdist_backward.default(grad, a.contiguous(), p, d),
    "The gradient of `a` through `distance`, which is pdist(a, p).",
    flops=lambda args, result: 4 * args[0].numel() * args[1].shape[1],
    shape="that of `a`, row-major",
)


def _ctc_rule(
    log_probs: TensorMeta,
    targets: TensorMeta,
    input_lengths: Any,
    target_lengths: Any,
    blank: int,
    zero_infinity: bool,
) -> tuple[TensorMeta, TensorMeta]:
    name = "ctc_loss"
    del zero_infinity
    require(log_probs.ndim == 3, f"{name}: log-probabilities of shape {log_probs.shape}")
    require(log_probs.dtype in _FULL, f"{name}: not defined on {log_probs.dtype}")
    steps, batch, classes = log_probs.shape
    require(0 <= blank < classes, f"{name}: blank {blank} of {classes} classes")
    require(targets.dtype in (torch.int32, torch.int64), f"{name}: targets of {targets.dtype}")
    for what, lengths in (("input", input_lengths), ("target", target_lengths)):
        require(len(lengths) == batch, f"{name}: {len(lengths)} {what} lengths for {batch}")
    require(all(n <= steps for n in input_lengths), f"{name}: an input longer than {steps}")
    if targets.ndim == 2:
        good = targets.shape[0] == batch and all(n <= targets.shape[1] for n in target_lengths)
    else:
        good = targets.ndim == 1 and targets.shape[0] == sum(target_lengths)
    require(bool(good), f"{name}: targets of shape {targets.shape} for {list(target_lengths)}")
    most = max(target_lengths, default=0)
    alpha = (batch, steps, 2 * most + 1)
    return log_probs.like((batch,)), log_probs.like(alpha)


_ctc_leaf = partial(
    leaf,
    family="ctc",
    reason="a recurrence over time steps, one library call of which the derivative needs the parts",
    source="Graves et al.: Connectionist temporal classification, 2006",
)

_ctc_leaf(
    "ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths,"
    " int blank, bool zero_infinity) -> (Tensor loss, Tensor log_alpha)",
    _ctc_rule,
    aten._ctc_loss,
    "For each sequence minus the logarithm of the probability that its labels, with blanks"
    " between them and repeats, spell the target; and the forward variables of that sum.",
    flops=lambda args, result: 8 * tensor_metas((result,))[-1].numel(),
    shape="[N] and [N, T, 2 S + 1] for T steps and targets up to S long",
    edge_cases={
        "infinity": "a target too long for its input: inf, or 0 if `zero_infinity`",
        "note": "elements of log_alpha past a sequence's end mean nothing",
    },
    differentiable="by ctc_loss_backward",
)


def _ctc_back_rule(
    grad: TensorMeta,
    log_probs: TensorMeta,
    targets: TensorMeta,
    input_lengths: Any,
    target_lengths: Any,
    loss: TensorMeta,
    log_alpha: TensorMeta,
    blank: int,
    zero_infinity: bool,
) -> TensorMeta:
    first, second = _ctc_rule(
        log_probs, targets, input_lengths, target_lengths, blank, zero_infinity
    )
    good = grad.shape == loss.shape == first.shape and log_alpha.shape == second.shape
    require(good, f"ctc_loss_backward: gradient {grad.shape}, losses {first.shape}")
    return log_probs.like(log_probs.shape)


_ctc_leaf(
    "ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, int[] input_lengths,"
    " int[] target_lengths, Tensor loss, Tensor log_alpha, int blank, bool zero_infinity)"
    " -> Tensor",
    _ctc_back_rule,
    aten._ctc_loss_backward,
    "The gradient of the log-probabilities, given both results of ctc_loss.",
    flops=lambda args, result: 8 * args[6].numel(),
    shape="that of `log_probs`, row-major",
    edge_cases="0 past a sequence's end; 0 where the loss is infinite, if `zero_infinity`",
)
