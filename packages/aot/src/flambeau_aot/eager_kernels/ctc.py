"""The CTC loss by lengths that are tensors, as one operator.

In: log-probabilities, targets and the lengths of both. Out: the loss of each sequence, or the
gradient by the log-probabilities. Invariant: eager's own kernel computes both; the derivative runs
it again, as the size of what the kernel would keep for it depends on the lengths.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_aot.eager_kernels.kernel_operators import KernelOperator, define_pair

_CALL = (
    "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "bool zero_infinity"
)
_NONE, _MEAN, _SUM = ("none", 0), ("mean", 1), ("sum", 2)
"""Reductions, as functions of modules name them and as operators number them."""


def _run(log_probs: Tensor, *rest: Any) -> Tensor:
    targets, steps, lengths, blank, zero_infinity = rest
    return torch.ctc_loss(log_probs, targets, steps, lengths, blank, _NONE[1], zero_infinity)


def _like(log_probs: Tensor, *rest: Any) -> Tensor:
    return log_probs.new_empty(log_probs.shape[1:2] if log_probs.dim() == 3 else ())


def _differentiated(log_probs: Tensor, *rest: Any) -> Tensor:
    *given, cotangent = rest
    with torch.enable_grad():
        own = log_probs.detach().requires_grad_()
        (found,) = torch.autograd.grad(_run(own, *given), own, cotangent)
    return found.contiguous()


def _gradient_like(log_probs: Tensor, *rest: Any) -> Tensor:
    return torch.empty_like(log_probs, memory_format=torch.contiguous_format)


_ctc_loss, _ctc_loss_backward = define_pair(
    "ctc_loss",
    _CALL,
    "Tensor",
    KernelOperator(_run, _like),
    KernelOperator(_differentiated, _gradient_like),
)


class CtcLoss(torch.autograd.Function):
    """The operator, and its derivative by the other one."""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, *rest: Any) -> Tensor:
        """Of `rest`: targets, lengths of inputs and targets; the blank, and what infinities do."""
        ctx.save_for_backward(log_probs, *rest[:3])
        ctx.numbers = rest[3:]
        found: Tensor = _ctc_loss(log_probs, *rest)
        return found

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:  # type: ignore[override]
        """The gradient by the log-probabilities."""
        call = *ctx.saved_tensors, *ctx.numbers
        return _ctc_loss_backward(*call, cotangent), *[None] * 5


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: int | str = _MEAN[1],
    zero_infinity: bool = False,
) -> Tensor:
    """What `torch.ctc_loss` returns."""
    call = log_probs, targets, input_lengths, target_lengths, blank, zero_infinity
    found: Tensor = CtcLoss.apply(*call)  # type: ignore[no-untyped-call]
    if reduction in _MEAN:
        return (found / target_lengths.clamp(min=1).to(found)).mean()
    return found.sum() if reduction in _SUM else found
