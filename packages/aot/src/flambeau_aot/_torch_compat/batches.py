"""Batched tensors of `vmap` and of `is_grads_batched=True`.

In: tensors inside of a `vmap`. Out: the same with the hidden dimension in front, and back again.
Invariant: torch has two kinds of `vmap`, that of `torch.func` and an older one; both are known here
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_MOST_LEVELS = 64  # as many as the older kind has
_OLDER = torch._C._dispatch_key_parse("VmapMode")
_OLDER_BATCHED = torch._C._dispatch_key_parse("Batched")

transforms_active: Callable[[], bool] = torch._C._are_functorch_transforms_active


def shown(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that transforms of `torch.func` hide in this one."""
    native: Any = torch._C._functorch
    while native.is_functorch_wrapped_tensor(tensor):
        tensor = native.get_unwrapped(tensor)
    return tensor


def within_older_vmap() -> bool:
    """Whether this thread runs a program for a `vmap` of the older kind."""
    return torch._C._dispatch_tls_is_dispatch_key_included(_OLDER)


@dataclass(frozen=True)
class Batch:
    """One hidden dimension: of which `vmap`, and how long."""

    level: int
    size: int
    older: bool

    def shown(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor with this dimension in front; one that does not have it is expanded."""
        remove = torch._remove_batch_dim if self.older else torch._C._functorch._remove_batch_dim
        result: torch.Tensor = remove(tensor, self.level, self.size, 0)
        return result

    def hidden(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor whose first dimension is this one."""
        add = torch._add_batch_dim if self.older else torch._C._functorch._add_batch_dim
        result: torch.Tensor = add(tensor, 0, self.level)
        return result


def batch_of(tensors: Sequence[torch.Tensor]) -> Batch | None:
    """The innermost hidden dimension of these tensors, None where they have none."""
    native: Any = torch._C._functorch
    batched = [item for item in tensors if native.is_batchedtensor(item)]
    if batched:
        item = max(batched, key=native.maybe_get_level)
        level = native.maybe_get_level(item)
        return Batch(level, native._remove_batch_dim(item, level, 1, 0).shape[0], False)
    for item in filter(_is_older, tensors):
        # the tensor does not say its level, and a thread of the engine does not know it
        for level in range(_MOST_LEVELS, 0, -1):
            shown = torch._remove_batch_dim(item, level, 1, 0)
            if shown.shape[0] != 1 or not _is_older(shown):
                return Batch(level, shown.shape[0], True)
    return None


def _is_older(tensor: torch.Tensor) -> bool:
    return bool(torch._C._dispatch_keys(tensor).has(_OLDER_BATCHED))
