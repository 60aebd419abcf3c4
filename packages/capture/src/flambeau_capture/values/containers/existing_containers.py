"""Containers that existed before the frame.

In: a container of the program and its source. Out: its value; an opaque one where it is too large
to guard whole. Invariant: what is read of it is guarded: each key of an opaque one that is looked
up, the length and keys of any other.
"""

from __future__ import annotations

import collections
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

from flambeau_capture.guards.equality import PLAIN, keys_of
from flambeau_capture.guards.kinds import SPECIAL_NAMES, entry_of
from flambeau_capture.identity import compares_itself
from flambeau_capture.source import Attr, DictKey, KnownKey, Source, item_of
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import LITERALS, Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sequences import (
    Pending,
    SliceValue,
    TupleValue,
    existing_sequence,
)
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.containers.unread import UnreadDeque, UnreadDict, UnreadList, UnreadSet
from flambeau_capture.values.objects.attributes import (
    assume_special_methods,
    find_in_class,
    layout_of,
)
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import already_tracked, tracked, wraps_if, wraps_type


@wraps_type(list)
@tracked
def wrap_list(tx: Tracer, obj: list[Any], source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", list)

    def read() -> list[Value | Pending]:
        tx.guard(source, "LIST_LENGTH", len(obj))
        return existing_sequence(obj, source, list)

    return UnreadList(tx, obj, source, read)


@wraps_if(lambda obj: issubclass(type(obj), tuple) and is_plain_tuple(type(obj)), 30)
def wrap_tuple(tx: Tracer, obj: tuple[Any, ...], source: Source) -> Value:
    known = already_tracked(tx, obj, source) if obj else None
    if known is not None:
        return known
    if type(obj) is tuple:
        tx.guard(source, "TUPLE_LENGTH", len(obj))
    else:
        tx.guard(source, "TYPE_MATCH", type(obj))
        tx.guard(source, "LENGTH", len(obj))
        assume_special_methods(tx, type(obj))
    real = obj if find_in_class(type(obj), "n_unnamed_fields") is not None else None
    made = TupleValue(existing_sequence(obj, source, tuple), type(obj), source, tx, real)
    if obj:
        tx.heap.know(obj, made)
    return made


def is_plain_tuple(kind: type) -> bool:
    """Whether a tuple class says nothing in Python of subscripts, iteration or comparison."""
    if kind is tuple or kind is torch.Size or find_in_class(kind, "n_sequence_fields") is not None:
        return True
    return (
        find_in_class(kind, "_fields") is not None
        and not kind.__dictoffset__
        and all(
            entry_of(kind, name)[1:] == entry_of(tuple, name)[1:]
            for name in (*SPECIAL_NAMES, *_TUPLE_SPECIALS)
        )
    )


#: what a named tuple has of its own: how it is made, shown and copied
_TUPLE_SPECIALS = tuple(
    name
    for name, found in vars(tuple).items()
    if isinstance(found, types.WrapperDescriptorType)
    and name not in ("__repr__", "__getattribute__")
)


_DICTS: tuple[type, ...] = (dict, collections.OrderedDict, collections.defaultdict)


@wraps_type(*_DICTS)
def wrap_dict(tx: Tracer, obj: dict[Any, Any], source: Source) -> Value:
    known = already_tracked(tx, obj, source)
    if known is not None:
        return known
    if tx.heap.are_attributes(obj):
        return OpaqueValue(obj, source)
    tx.guard(source, "TYPE_MATCH", type(obj))
    if type(obj) is dict and _is_of_a_module(obj):
        tx.guard(source, "ID_MATCH", obj)
        return tx.scope_of(obj).as_dict()  # capture adds names to it: its keys are no guard
    made = _dict(tx, obj, source, type(obj))
    if isinstance(obj, collections.OrderedDict):
        made.real_attributes = vars(obj)
    tx.heap.know(obj, made)
    return made


def _is_of_a_module(obj: dict[Any, Any]) -> bool:
    name = dict.get(obj, "__name__")
    module = sys.modules.get(name) if type(name) is str else None
    return module is not None and getattr(module, "__dict__", None) is obj


def _dict(tx: Tracer, obj: Any, source: Source, base: type) -> DictValue:
    """What a dict of the program holds."""

    def read() -> list[tuple[Value, Pending]]:
        keys = keys_of(obj)
        tx.guard(source, "DICT_KEYS", keys, True)
        return [
            (
                _key(tx, key, source, index),
                Pending(dict.__getitem__(obj, key), item_of(obj, source, key, "dict")),
            )
            for index, key in enumerate(keys)
        ]

    made = UnreadDict(tx, obj, base, source, read)
    if base is collections.defaultdict:
        made.factory = tx.wrap(obj.default_factory, Attr(source, "default_factory"))
    return made


def _key(tx: Tracer, key: Any, source: Source, index: int) -> Value:
    if compares_itself(type(key)):
        return tx.wrap(key, DictKey(source, index))
    if type(key) in LITERALS:
        return Constant(key)
    if isinstance(key, tuple) and all(type(part) in LITERALS for part in tuple.__iter__(key)):
        return tx.wrap_new(key)
    if isinstance(key, torch.Tensor):  # of which a dict knows each by itself alone
        return tx.wrap(key, KnownKey(source, key, index))
    return tx.wrap(key, DictKey(source, index))


@wraps_type(set, frozenset)
@tracked
def wrap_set(tx: Tracer, obj: Any, source: Source) -> Value:
    if type(obj) is set:
        tx.guard(source, "TYPE_MATCH", set)
    made: Value = _set(tx, obj, source, type(obj))
    if made is NotImplemented:  # what it holds compares by rules of its own
        tx.guard(source, "TYPE_MATCH", type(obj))
        return OpaqueValue(obj, source)
    return made


#: classes of which Python and torch say what their hashes are, and what they equal
_EQUAL_TO_ITSELF = frozenset(LITERALS) | {
    types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType,
    types.WrapperDescriptorType, types.ModuleType, torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
}  # fmt: skip


def _set(tx: Tracer, obj: Any, source: Source, base: type) -> Any:
    items = list(base.__iter__(obj))  # type: ignore[attr-defined]
    if not all(type(item) in _EQUAL_TO_ITSELF or isinstance(item, type) for item in items):
        return NotImplemented
    if type(obj) is frozenset:
        tx.guard(source, "CONSTANT_MATCH", obj)
        return SetValue([tx.wrap_new(item) for item in items], base, source, tx, obj)

    def read() -> list[Value]:
        tx.guard(source, "LENGTH", len(items))
        for item in items:
            tx.guard(source, "SET_CONTAINS", item)
        return [tx.wrap_new(item) for item in items]

    return UnreadSet(tx, obj, source, base, read)


@wraps_type(collections.deque)
@tracked
def wrap_deque(tx: Tracer, obj: collections.deque[Any], source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    return _deque(tx, obj, source, collections.deque)


def _deque(tx: Tracer, obj: Any, source: Source, base: type) -> Value:
    tx.guard(Attr(source, "maxlen"), "CONSTANT_MATCH", obj.maxlen)
    return UnreadDeque(tx, obj, source, _reader(tx, obj, source, base))


def _reader(tx: Tracer, obj: Any, source: Source, base: Any) -> Callable[[], list[Any]]:
    def read() -> list[Any]:
        tx.guard(source, "LENGTH", base.__len__(obj))
        return existing_sequence(obj, source, base)

    return read


@wraps_type(slice)
@tracked
def wrap_slice(tx: Tracer, obj: slice, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", slice)
    bounds = [tx.wrap(getattr(obj, n), Attr(source, n)) for n in ("start", "stop", "step")]
    return SliceValue(bounds[0], bounds[1], bounds[2], source)


def _list(tx: Tracer, obj: Any, source: Source, base: type) -> Value:
    return UnreadList(tx, obj, source, _reader(tx, obj, source, base))


def _tuple(tx: Tracer, obj: Any, source: Source, base: type) -> Value:
    tx.guard(source, "LENGTH", tuple.__len__(obj))
    return TupleValue(existing_sequence(obj, source, base), tuple, None, tx)


def _constant(tx: Tracer, obj: Any, source: Source, base: type) -> Value:
    plain = PLAIN[base](obj)
    tx.guard(source, "TYPE_MATCH", type(obj))
    tx.guard_equal(source, plain)
    return Constant(plain)


_CONTENTS: dict[type, Callable[[Tracer, Any, Source, type], Any]] = {
    **dict.fromkeys(_DICTS, _dict),
    **dict.fromkeys((set, frozenset), _set),
    **dict.fromkeys((str, int, float, bytes, complex), _constant),
    collections.deque: _deque,
    list: _list,
    tuple: _tuple,
}


def wrap_payload(tx: Tracer, obj: Any, source: Source) -> Any:
    """The built-in part of an instance, whose source is its own: changes are replayed on it.

    None if it has none, NotImplemented if it is not understood.
    """
    base = _builtin_base(type(obj))
    if base is object:
        return None
    reads = find_in_class(type(obj), "__getitem__")
    if base is collections.deque and (reads is None or reads[0] is not base):
        return NotImplemented  # its items cannot be read where they are
    return _CONTENTS[base](tx, obj, source, base) if base in _CONTENTS else NotImplemented


def _builtin_base(kind: type) -> type:
    for base in kind.__mro__:
        if base.__module__ != "typing" and base is layout_of(base):
            return object if base in (types.SimpleNamespace, threading.local) else base
    return object
