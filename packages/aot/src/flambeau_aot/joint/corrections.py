"""Fake results that torch describes otherwise than its kernels make them.

What comes in: an operator, its fake arguments and the metadata of its fake results. What goes out:
the metadata that the kernel's results have.
Invariant: a rule changes dtypes only, and only on the device whose kernel was found to differ.
Tried on torch 2.11 and 2.13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_REDUCED = (torch.bfloat16, torch.float16)


def _batch_norm_statistics(args: Sequence[Any], device: torch.device) -> Mapping[int, torch.dtype]:
    """The CPU's batch norm keeps the statistics of a reduced-precision batch in the dtype of its
    parameters and running statistics; torch's description keeps them in the batch's."""
    tensors = [value for value in args if isinstance(value, torch.Tensor)]
    if device.type != "cpu" or tensors[0].dtype not in _REDUCED:
        return {}
    if not any(value.dtype is torch.float32 for value in tensors[1:]):
        return {}
    return {1: torch.float32, 2: torch.float32}


Correction = Callable[[Sequence[Any], torch.device], Mapping[int, torch.dtype]]

CORRECTIONS: dict[str, Correction] = {
    "aten::native_batch_norm": _batch_norm_statistics,
    "aten::_native_batch_norm_legit": _batch_norm_statistics,
    "aten::_native_batch_norm_legit_functional": _batch_norm_statistics,
}
"""By the operator's name: from its arguments, the dtype of each result that differs."""
