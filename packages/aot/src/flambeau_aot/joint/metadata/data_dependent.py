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


INTEGER_DIVISIONS = frozenset(("div", "floor_divide", "remainder", "fmod"))
"""Operators that raise where an integer is divided by zero."""

CHECKED = frozenset(
    ("masked_scatter", "searchsorted", "segment_reduce", "lu_unpack", "histc", "_linalg_svd")
)
"""Operators that check their data in a way of their own."""


@cache
def _names(func: Any) -> tuple[str, tuple[str, ...]]:
    """The name of an operator that may raise by its data, "" for others, and its arguments'."""
    namespace, name = func._schema.name.split("::")
    names = tuple(argument.name for argument in func._schema.arguments)
    known = name in INTEGER_DIVISIONS | CHECKED or not INDEXING.isdisjoint(names)
    checks = namespace == "aten" and known and not name.startswith("_unsafe")
    return (name if checks else ""), names


def may_raise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator may raise by its data: an integer tensor indexes another one or divides,
    a mask counts the values it takes, or the operator checks. (Checks without a result, as of
    linear algebra, are effects of their own.)"""
    name, names = _names(func)
    if not name:
        return False
    given = {**dict(zip(names, args)), **kwargs}
    if name in CHECKED:
        return name != "searchsorted" or given.get("sorter") is not None
    if name in INTEGER_DIVISIONS:
        divided = [x for x in (given["self"], given["other"]) if isinstance(x, torch.Tensor)]
        return len(divided) == 2 and not any(map(_is_real, divided))
    several = name == "index_put" and given["values"].numel() != 1
    tensors = (x for each in INDEXING.intersection(given) for x in tensors_in(given[each]))
    return any(not _is_real(x) and (several or x.dtype != torch.bool) for x in tensors)


def _is_real(x: torch.Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


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
