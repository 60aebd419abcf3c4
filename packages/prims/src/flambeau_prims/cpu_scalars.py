"""Device rule: kernels that take a 0-d CPU tensor among their operands.

In: a pointwise ATen operation's name and its tensors. Out: whether eager refuses their devices.
Invariant: an iterator over tensors takes one 0-d tensor of the CPU's as a number, in any place;
operations that check the devices of all arguments before take none. A test holds the names to
torch's own declarations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

ON_ONE_DEVICE = frozenset(
    {
        *("clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor", "masked_fill.Scalar"),
        *("gcd", "lcm", "igamma", "igammac", "nextafter", "logaddexp", "logaddexp2"),
        *("threshold_backward", "sigmoid_backward", "tanh_backward", "silu_backward"),
        *("gelu_backward", "logit_backward", "native_dropout_backward"),
    }
)
"""Operations whose arguments are all on one device, whatever their dimensions."""

ONLY_LAST = frozenset({"addcmul", "addcdiv"})
"""Operations that take their last operand alone from a CPU."""

ANYWHERE = frozenset({"where.self", "masked_fill.Tensor"})
"""Operations that move 0-d tensors themselves, any number of them."""


def on_different_devices(name: str, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether eager refuses these operands of a pointwise operation for their devices."""
    devices = {x.device for x in tensors}
    if len(devices) < 2:
        return False
    numbers = [i for i, x in enumerate(tensors) if x.ndim == 0 and x.device.type == "cpu"]
    rest = {x.device for i, x in enumerate(tensors) if i not in numbers}
    if name in ON_ONE_DEVICE or len(rest) > 1:
        return True
    if name in ANYWHERE:
        return False
    return len(numbers) > 1 or (name in ONLY_LAST and numbers != [len(tensors) - 1])
