"""Random masks drawn in place, in eager's order.

What comes in: the functional form of `bernoulli_`, as dropout calls it. What goes out: the same
operator on a permutation of the tensor, and the way back.
Invariant: numbers are drawn one after the other as in eager, and the mask has the tensor's strides.

Eager fills a dense tensor in the order of its memory; the functional operator returns a contiguous
tensor, and draws in the order of its dimensions. MKL's generator, which torch uses on processors
of one maker only, draws in the order of dimensions in place, too: which it is, is tried out.
"""

from __future__ import annotations

from functools import cache

import torch

from flambeau_aot._torch_compat import without_modes
from flambeau_aot.inputs.memory_overlap import is_dense


def memory_order(value: torch.Tensor, device: torch.device) -> list[int] | None:
    """The dimensions of a tensor in the order of its memory; None where nothing depends on it."""
    shape, stride = tuple(value.shape), tuple(value.stride())
    if value.is_contiguous() or not is_dense(shape, stride):
        return None
    if device.type == "cpu" and not _drawn_by_memory():
        return None
    return sorted(range(value.dim()), key=lambda dim: (-stride[dim], dim))


def inverse(order: list[int]) -> list[int]:
    """The permutation that undoes one."""
    return sorted(range(len(order)), key=order.__getitem__)


@cache
def _drawn_by_memory() -> bool:
    """Whether `bernoulli_` on this processor fills a transposed tensor by its memory."""
    with without_modes():
        made = [torch.empty(8, 16) for _ in range(2)]
        made[0].t().bernoulli_(0.5, generator=torch.Generator().manual_seed(0))
        made[1].bernoulli_(0.5, generator=torch.Generator().manual_seed(0))
        return torch.equal(*made)
