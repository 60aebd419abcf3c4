"""Data-dependent values during tracing.

What comes in: calls of torch functions that give the memory of a tensor to something else. What
goes out: the call, on a tensor that has memory; a refusal on one that stands for a value.
Invariant: nothing that a program computes outside torch comes from a stand-in, whose memory is
nobody's: torch would make an array of it all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from flambeau_aot._torch_compat import is_functional
from flambeau_aot.refusals import refusal

MEMORY: frozenset[Any] = frozenset(
    (
        torch.Tensor.numpy,
        torch.Tensor.__array__,
        torch.Tensor.__dlpack__,
        torch.Tensor.data_ptr,
    )
)
"""Functions that hand out a tensor's memory."""


def refuse_memory(func: Any, target: Any) -> None:
    """Raise where the memory of a stand-in is asked for."""
    if func in MEMORY and is_functional(target):
        raise refusal("AO0038", func=func.__name__)


class NoMemory(TorchFunctionMode):
    """Refuses the memory of stand-ins in code that runs beside the program's own calls."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if args:
            refuse_memory(func, args[0])
        return func(*args, **(kwargs or {}))


def guarded(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook of the user's, in which the memory of stand-ins is refused."""

    def call(*args: Any) -> Any:
        with NoMemory():
            return hook(*args)

    call.guarded = True  # type: ignore[attr-defined]
    return call
