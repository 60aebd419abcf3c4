"""Wrappers of constants, frozen objects, built-in callables and iterators.

In: an object. Out: its value; `wrap_new` for one that capture itself has made or found. Invariant:
importing this module fills the registry.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.identity import compares_itself, is_heap_type
from flambeau_capture.lookahead import can_look_ahead
from flambeau_capture.source import Attr, ConstantSource, Source
from flambeau_capture.values.base import Tracer, Value, needing
from flambeau_capture.values.constant import LITERALS, Constant
from flambeau_capture.values.containers import existing_containers
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import SliceValue, TupleValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.functions import functions  # noqa: F401 - registers what it wraps
from flambeau_capture.values.functions.builtin_functions import BuiltinValue, is_found_by_name
from flambeau_capture.values.functions.call_rules import known_callable
from flambeau_capture.values.iterators.existing_iterators import ForeignIterator, LiveIterator
from flambeau_capture.values.objects import (
    attribute_dicts,  # noqa: F401 - each registers what it wraps
    instances,  # noqa: F401 - each registers what it wraps
    nn_modules,  # noqa: F401 - each registers what it wraps
)
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.descriptors import is_of_tensors
from flambeau_capture.values.objects.opaque import FrozenValue, OpaqueValue
from flambeau_capture.values.registry import (
    assume_there,
    tracked,
    trusted_callable,
    wraps_if,
    wraps_type,
)
from flambeau_capture.values.tensors import existing_tensors  # noqa: F401 - each registers what it wraps
from flambeau_capture.values.tensors.symbolic_numbers import NUMBERS, symbol_value

_FROZEN: tuple[type, ...] = (
    torch.finfo,
    torch.iinfo,
    re.Pattern,
    re.Match,
    inspect.Signature,
    inspect.Parameter,
    types.CodeType,
    compat.SDP_BACKEND,
)


@wraps_type(*LITERALS)
def wrap_literal(tx: Tracer, obj: Any, source: Source) -> Value:
    if tx.is_own(source):
        return Constant(obj)
    if type(obj) in (int, float) and obj == obj and tx.varies(source, obj):
        made = tx.shapes.number(obj, source)
        if isinstance(made, NUMBERS):
            return symbol_value(tx, made)

    assume_there(tx, source, obj)
    given = () if obj is None else (obj,)
    kind = _MATCHES.get(type(obj), "CONSTANT_MATCH")
    return Constant(obj, source, functools.partial(tx.guard, source, kind, *given))


_MATCHES = {type(None): "NONE_MATCH", bool: "BOOL_MATCH"}


_BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    functools._lru_cache_wrapper,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    type(torch.ops.aten),
)


@wraps_if(lambda obj: issubclass(type(obj), _BUILTIN_CALLABLES), 70)
def wrap_builtin(tx: Tracer, obj: Any, source: Source) -> Value:
    owner = getattr(obj, "__self__", None)
    if (
        isinstance(obj, types.BuiltinFunctionType | types.MethodWrapperType)
        and owner is not None
        and not isinstance(owner, types.ModuleType | type)
        and not is_of_tensors(owner)
        and not trusted_callable(obj)
        and not known_callable(obj)
        and is_found_by_name(obj)
    ):
        tx.guard(source, "TYPE_MATCH", type(obj))
        receiver = tx.wrap(owner, Attr(source, "__self__"))
        return tx.get_attr(receiver, obj.__name__)
    tx.guard(source, "FUNCTION_MATCH", obj)
    return BuiltinValue(obj, ConstantSource(obj, getattr(obj, "__name__", type(obj).__name__)))


_TYPING = (types.GenericAlias, types.UnionType)


class TypingValue(FrozenValue):
    """What typing makes: `List[int]` is evaluated."""

    def special(self, tx: Tracer, name: str) -> bool:
        return False  # typing's own are evaluated with it

    def get_item(self, tx: Tracer, key: Value) -> Value:
        with needing("FB0009", lambda error: f"{self.real}[{error}]"):
            return tx.wrap_new(self.real[key.as_python()])


def _by_identity(
    test: Callable[[Any], bool], priority: int, kind: type[OpaqueValue], name: Callable[[Any], str]
) -> None:
    @wraps_if(test, priority)
    def wrap(tx: Tracer, obj: Any, source: Source) -> Value:
        tx.guard(source, "ID_MATCH", obj)
        return kind(obj, ConstantSource(obj, name(obj)))


def _class_name(obj: Any) -> str:
    return type(obj).__name__


def _is_typing(obj: Any) -> bool:
    kind = type(obj)
    if kind is typing.ForwardRef:  # which is evaluated in place
        return False
    return issubclass(kind, _TYPING) or kind.__module__ == "typing"


_by_identity(lambda obj: issubclass(type(obj), _FROZEN), 50, FrozenValue, _class_name)
_by_identity(_is_typing, 80, TypingValue, str)


@wraps_if(lambda obj: not is_heap_type(type(obj)) and hasattr(type(obj), "__next__"), 100)
@tracked
def wrap_iterator(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    return LiveIterator(obj, source) if can_look_ahead(obj) else ForeignIterator(obj, source)


def wrap_new(tx: Tracer, obj: Any) -> Value:
    """The value of an object that evaluation has made or found; containers are new objects."""
    kind = type(obj)
    if compares_itself(kind):
        return tx.wrap(obj, ConstantSource(obj, kind.__name__))
    if kind in LITERALS:
        return Constant(obj)
    if kind in NUMBERS:
        return symbol_value(tx, obj)
    if kind is list:
        return ListValue([wrap_new(tx, item) for item in obj])
    if isinstance(obj, tuple) and existing_containers.is_plain_tuple(kind):
        return TupleValue([wrap_new(tx, item) for item in obj], kind)
    if kind is dict:
        entries = [(wrap_new(tx, key), wrap_new(tx, value)) for key, value in obj.items()]
        return DictValue(entries, tx=tx)
    if kind in (set, frozenset):
        return SetValue([wrap_new(tx, item) for item in obj], kind, tx=tx, found=obj)
    if kind is slice:
        bounds = [wrap_new(tx, bound) for bound in (obj.start, obj.stop, obj.step)]
        return SliceValue(bounds[0], bounds[1], bounds[2])
    if isinstance(obj, type):
        return tx.heap.value_of(obj, lambda: ClassValue(obj))
    return tx.wrap(obj, ConstantSource(obj, kind.__name__))
