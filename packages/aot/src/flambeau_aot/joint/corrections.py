"""Fake results that torch describes otherwise than its kernels make them.

What comes in: an operator, its fake arguments and the metadata of its fake results. What goes out:
the metadata that the kernel's results have.
Invariant: a rule says only what was found to differ, on the device whose kernel does.
Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_REDUCED = (torch.bfloat16, torch.float16)
_NO_REDUCTION = 0


@dataclass(frozen=True)
class Told:
    """What a kernel's result is that its description is not; None: as described."""

    dtype: torch.dtype | None = None
    shape: Sequence[Any] | None = None
    stride: Sequence[Any] | None = None


Correction = Callable[[Sequence[Any], torch.device], Mapping[int, Told]]


def _batch_norm_statistics(args: Sequence[Any], device: torch.device) -> Mapping[int, Told]:
    """The CPU's batch norm keeps the statistics of a reduced-precision batch in the dtype of its
    parameters and running statistics; torch's description keeps them in the batch's."""
    tensors = [value for value in args if isinstance(value, torch.Tensor)]
    if device.type != "cpu" or tensors[0].dtype not in _REDUCED:
        return {}
    if not any(value.dtype is torch.float32 for value in tensors[1:]):
        return {}
    return {1: Told(dtype=torch.float32), 2: Told(dtype=torch.float32)}


def _loss_of_one_sample(args: Sequence[Any], device: torch.device) -> Mapping[int, Told]:
    """Margin losses of a sample without a batch are numbers, unless their target has a batch."""
    sample, target, *_ = args
    reduction = args[2] if len(args) == 3 else (args[5] if len(args) > 5 else 1)
    if sample.dim() > 1 or reduction != _NO_REDUCTION or (len(args) != 3 and target.dim()):
        return {}
    return {0: Told(shape=(), stride=())}


def _softmax_slope(args: Sequence[Any], device: torch.device) -> Mapping[int, Told]:
    """The CPU's derivatives of softmax keep the dtype of the cotangent, whatever is asked for."""
    return {0: Told(dtype=args[0].dtype)} if device.type == "cpu" else {}


CORRECTIONS: dict[str, Correction] = {
    "aten::native_batch_norm": _batch_norm_statistics,
    "aten::_native_batch_norm_legit": _batch_norm_statistics,
    "aten::_native_batch_norm_legit_functional": _batch_norm_statistics,
    "aten::_softmax_backward_data": _softmax_slope,
    "aten::_log_softmax_backward_data": _softmax_slope,
    "aten::multi_margin_loss": _loss_of_one_sample,
    "aten::multilabel_margin_loss_forward": _loss_of_one_sample,
}
"""By the operator's name: from its arguments, what differs of each result."""
