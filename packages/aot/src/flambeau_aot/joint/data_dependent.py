"""Data-dependent values and errors during tracing.

In: calls that give the memory of a tensor to something else; operators that look up by indices.
Out: a refusal where the tensor has no memory; whether eager may raise by the values.
Invariant: nothing that a program computes outside torch comes from a stand-in: torch would make an
array of its memory all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from flambeau_aot._torch_compat import is_functional
from flambeau_aot.joint.nested import tensors_in
from flambeau_aot.refusals import refusal

MEMORY: frozenset[Any] = frozenset(
    (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__, torch.Tensor.data_ptr)
)
"""Functions that hand out a tensor's memory."""


INDEXING = frozenset(("index", "indices", "target"))
"""Names under which ATen's schemas take integers that must be within the size of another tensor."""


@cache
def _indexing_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    """The arguments of an operator that it checks to be in bounds, by place and name."""
    if func.namespace != "aten" or func._schema.name.startswith("aten::_unsafe"):
        return ()
    own = enumerate(argument.name for argument in func._schema.arguments)
    return tuple((place, name) for place, name in own if name in INDEXING)


def may_raise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator may raise by its data: an integer tensor indexes another one. (Checks
    without a result, as of linear algebra, are effects of their own.)"""
    given = (
        args[place] if place < len(args) else kwargs.get(name)
        for place, name in _indexing_arguments(func)
    )
    tensors = (x for value in given for x in tensors_in(value))
    return any(not x.is_floating_point() and x.dtype != torch.bool for x in tensors)


def refuse_memory(func: Any, target: Any) -> None:
    """Raise where the memory of a stand-in is read."""
    if func in MEMORY and is_functional(target):
        raise refusal("AO0038", func=func.__name__)


class NoMemory(TorchFunctionMode):
    """Refuses the memory of stand-ins in code other than the program's own calls."""

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
