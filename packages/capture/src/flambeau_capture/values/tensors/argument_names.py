"""Argument names and positions of torch's functions.

In: a function of torch and how it is called. Out: `by_place`, the same call with its first
arguments by place, where handlers look for them; `Given`, arguments of which one that is missing is
a break; `without_odd_names`, a call that a graph's code can be written with. Invariant: the call
means the same; where that cannot be had, it is a break.
"""

from __future__ import annotations

import functools
import inspect
import keyword
import types
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, Kwargs, Value
from flambeau_capture.values.constant import Constant

_OTHERS: dict[Any, tuple[str, ...]] = {torch.asarray: ("obj",)}  # they have no schema
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Given(list[Value]):
    """Arguments by position; one that was not given is a break: the function itself refuses it."""

    def __init__(self, fn: Any, args: Args) -> None:
        super().__init__(args)
        self.fn = fn

    def __getitem__(self, place: Any) -> Any:
        try:
            return super().__getitem__(place)
        except IndexError:
            name = getattr(self.fn, "__name__", repr(self.fn))
            raise Break("FB0011", f"{name} with {len(self)} arguments by place") from None


def by_place(fn: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The call with as many of its first arguments by place as are given by name."""
    if not kwargs or not _of_torch(fn):
        return Given(fn, args), kwargs
    for names in _leading(fn):
        placed = list(args)
        for name in names[len(args) :]:
            if name not in kwargs:
                break
            placed.append(kwargs[name])
        if len(placed) > len(args):
            left = set(names[len(args) : len(placed)])
            return Given(fn, placed), {k: v for k, v in kwargs.items() if k not in left}
    return Given(fn, args), kwargs


def _of_torch(fn: Any) -> bool:
    module = getattr(fn, "__module__", None) or ""
    return isinstance(module, str) and module.partition(".")[0] == "torch"


@functools.cache
def _leading(fn: Any) -> tuple[tuple[str, ...], ...]:
    if fn in _OTHERS:
        return (_OTHERS[fn],)
    if isinstance(fn, types.FunctionType):
        parameters = inspect.signature(fn).parameters.values()
        return (tuple(each.name for each in parameters if each.kind in _BY_PLACE),)
    name = getattr(fn, "__name__", "")
    return tuple(
        tuple(_public(a.name) for a in schema.arguments if not a.kwarg_only)
        for schema in compat.schemas_of(name)
    )


def _public(name: str) -> str:
    return "input" if name == "self" else name


def without_odd_names(op: str, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The call with arguments whose names Python cannot write (`from`) by position."""
    odd = [each for each in kwargs if keyword.iskeyword(each) or not each.isidentifier()]
    if not odd:
        return args, kwargs
    for schema in compat.schemas_of(name):
        placed, left = list(args), dict(kwargs)
        for argument in schema.arguments[len(args) :]:
            if argument.kwarg_only or not set(odd) & set(left):
                break
            known = _public(argument.name) if op == "call_function" else argument.name
            if known in left:
                placed.append(left.pop(known))
            elif argument.has_default_value():
                placed.append(Constant(argument.default_value))
            else:
                break
        if not set(odd) & set(left):
            return placed, left
    raise Break("FB0015", f"an argument of {name} by the name {odd[0]!r}")
