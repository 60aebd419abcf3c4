"""Modules that share all with another, and are called in a way of their own.

In: a module, and what is put around its call. Out: a twin. Invariant: nothing of the module given
changes, and whatever is set on one of the two is set on the other.
"""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

ORIGINAL = "__flambeau_original__"
NOTES = "__flambeau_notes__"  # of a compiled module: what those who wrap it remember, by name
_SLOTS = (ORIGINAL, "__flambeau_compiler__", "__call__", NOTES)


class _Signature:
    """What `inspect.signature` reads: it takes no slot for a method."""

    def __get__(self, twin: Any, kind: Any = None) -> inspect.Signature:
        if twin is None:
            raise AttributeError("__signature__")
        return inspect.signature(getattr(twin, ORIGINAL))


def twin_of(
    module: torch.nn.Module, around: Callable[[Any], Any], compiler: object = None
) -> torch.nn.Module:
    """A module, called by what is put `around` its call, that shares the state of the one given:
    same `__dict__`, a subclass of its class. What is its own stands in slots, its call too, which
    Python finds there itself: a class lives until the collector runs, the module goes with the
    twin. The two are equal, so that what a library
    keeps by module, in a table or a set, is that of both."""
    original = type(module)
    names = {
        "__slots__": (*_SLOTS,),
        "__reduce_ex__": _reduce_twin,
        "__deepcopy__": _copy_twin,
        "__eq__": _is_twin,
        "__hash__": _hash_twin,
        "__signature__": _Signature(),
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
    }
    kind = type(original.__name__, (original,), names)
    twin: torch.nn.Module = object.__new__(kind)
    object.__setattr__(twin, "__dict__", module.__dict__)
    inner: Any = original.__call__
    if isinstance(inner, types.MemberDescriptorType):  # of a twin: the call in its slot
        bound = inner.__get__(module)
        call = types.MethodType(around(bound.__func__), bound.__self__)
    else:
        call = types.MethodType(around(inner), module)
    values: tuple[object, ...] = (module, compiler, call, {})
    for name, value in zip(_SLOTS, values, strict=True):
        object.__setattr__(twin, name, value)
    return twin


def notes_of(compiled: Any) -> dict[str, Any]:
    """What those who wrap a compiled callable remember of it, by name."""
    is_module = isinstance(compiled, torch.nn.Module)
    found: dict[str, Any] = object.__getattribute__(compiled, NOTES if is_module else "__dict__")
    return found


def _reduce_twin(self: Any, protocol: Any) -> Any:
    return self.__flambeau_original__.__reduce_ex__(protocol)


def _copy_twin(self: Any, memo: dict[int, Any]) -> Any:
    return copy.deepcopy(self.__flambeau_original__, memo)


def _is_twin(self: Any, other: Any) -> bool:
    return self.__flambeau_original__ is getattr(other, "__flambeau_original__", other)


def _hash_twin(self: Any) -> int:
    return hash(self.__flambeau_original__)
