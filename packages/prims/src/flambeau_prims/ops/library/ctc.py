"""Leaves of the CTC loss and its gradient.

In: log-probabilities [T, N, C], targets of labels, lengths. Out: a loss for each sequence.
Invariant: lengths are numbers, so that sizes do not depend on elements.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from flambeau_prims._op import require, tensor_metas
from flambeau_prims.layout import TensorMeta
from flambeau_prims.ops.library.leaf import leaf

aten = torch.ops.aten
_FULL = frozenset({torch.float32, torch.float64})


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


_leaf = partial(
    leaf,
    family="ctc",
    reason="a recurrence over time steps, one library call of which the derivative needs the parts",
    source="Graves et al.: Connectionist temporal classification, 2006",
)

_leaf(
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


_leaf(
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
