"""Container constructors: list, tuple, dict, set, slice, deque, OrderedDict, defaultdict.

In: values. Out: new containers. Invariant: a new container shares items, never storage, with what
it was made from.
"""

from __future__ import annotations

import collections
from typing import Any

from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.lists import DequeValue, ListValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.containers.slices import SliceValue
from flambeau_capture.values.containers.tuples import TupleValue
from flambeau_capture.values.functions.callables import handles


def _items(tx: Tracer, kind: type, args: Args, kwargs: Kwargs) -> list[Value]:
    """The items that a container begins with."""
    name = kind.__name__
    if kwargs:
        tx.raise_error(TypeError, f"{name}() takes no keyword arguments")
    if len(args) > 1:
        tx.raise_error(TypeError, f"{name} expected at most 1 argument, got {len(args)}")
    return unpack(tx, args[0], hint=kind in (list, tuple)) if args else []


@handles(list)
def _list(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(_items(tx, list, args, kwargs))


@handles(tuple)
def _tuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(_items(tx, tuple, args, kwargs))


@handles(set)
def _set(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _set_of(tx, set, args, kwargs)


@handles(frozenset)
def _frozenset(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) == 1 and args[0].cls is frozenset and isinstance(args[0], SetValue):
        return args[0]
    return _set_of(tx, frozenset, args, kwargs)


def _set_of(tx: Tracer, kind: type, args: Args, kwargs: Kwargs) -> Value:
    if kwargs or len(args) != 1:
        _items(tx, kind, args, kwargs)
    made = SetValue([], kind, tx=tx)
    return made.filled(tx, args[0]) if args else made


def _dict_of(kind: type) -> None:
    @handles(kind)
    def make(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        made = DictValue(python_class=kind, tx=tx)
        made.call_method(tx, "__init__", args, kwargs)
        return made

    if kind is collections.defaultdict:
        return

    @handles(kind.fromkeys)  # type: ignore[attr-defined]
    def from_keys(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        keys, *values = [*args, *kwargs.values()]
        value = values[0] if values else Constant(None)
        return DictValue([(key, value) for key in unpack(tx, keys)], python_class=kind, tx=tx)


for _kind in (dict, collections.OrderedDict, collections.defaultdict):
    _dict_of(_kind)


@handles(collections.deque)
def _deque(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    bound: Any = args[1] if len(args) > 1 else kwargs.get("maxlen", Constant(None))
    made = DequeValue([], constant_of(bound))
    if args:
        made.replace(tx, unpack(tx, args[0]))
    return made


@handles(slice)
def _slice(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    none = Constant(None)
    if len(args) == 1:
        return SliceValue(none, args[0], none)
    start, stop, *step = args
    return SliceValue(start, stop, step[0] if step else none)
