"""Methods of dictionaries.

In: a `DictValue` and arguments. Out: `DICT_METHODS`, a handler a name. Invariant: what a method
raises is what Python's own raises.
"""

from __future__ import annotations

import collections
from collections.abc import Callable

from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.dict_views import DictView
from flambeau_capture.values.containers.dicts import DictValue, pairs_of
from flambeau_capture.values.containers.hashable_keys import (
    raise_key_error,
    raise_ordered_key_error,
)
from flambeau_capture.values.containers.sequences import tx_equal
from flambeau_capture.values.containers.tuples import TupleValue
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.objects.attributes import find_in_class
from flambeau_capture.values.stand_ins import refuse

Handler = Callable[[DictValue, Tracer, Args, Kwargs], Value]


def _get(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = self.lookup(tx, args[0])
    if found is not None:
        return found
    return args[1] if len(args) > 1 else kwargs.get("default", Constant(None))


def _pop(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    empty = not self.length(tx) and self.cls is not collections.OrderedDict  # no key is looked at
    found = None if empty else self.remove(tx, args[0])
    if found is not None:
        return found
    if len(args) > 1:
        return args[1]
    if "default" in kwargs:
        return kwargs["default"]
    if self.cls is collections.OrderedDict:
        raise_ordered_key_error(tx, args[0])
    raise_key_error(tx, args[0])


def _popitem(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not self.truth(tx):
        ordered = self.cls is collections.OrderedDict
        tx.raise_error(KeyError, ("" if ordered else "popitem(): ") + "dictionary is empty")
    last = args[0] if args else kwargs.get("last")
    entries = self.entries()
    key, value = entries[-1 if last is None or last.truth(tx) else 0]
    self.remove(tx, key)
    return TupleValue([key, value])


def _setdefault(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = self.lookup(tx, args[0])
    if found is None:
        found = args[1] if len(args) > 1 else kwargs.get("default", Constant(None))
        self.store(tx, args[0], found)
    return found


def _update(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    for given in args:
        for key, value in pairs_of(tx, given, ordered=self.cls is collections.OrderedDict):
            self.store(tx, key, value)
    for name, value in kwargs.items():
        self.store(tx, Constant(name), value)
    return Constant(None)


def _init(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if self._class is collections.defaultdict and args:
        if not is_none(args[0]) and find_in_class(args[0].cls, "__call__") is None:
            refuse(tx, collections.defaultdict, args[0])
        self.factory, args = args[0], args[1:]
    return _update(self, tx, args, kwargs)


def _ior(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _update(self, tx, args, {})
    return self


def _or(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    other = getattr(args[0], "payload", None) or args[0]
    if not isinstance(other, DictValue):
        return Constant(NotImplemented)
    merged = _copy(self, tx, [], {})
    assert isinstance(merged, DictValue)
    _update(merged, tx, args, {})
    return merged


def _copy(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return DictValue(self.entries(), self._class, tx=tx, factory=self.factory)


def _clear(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.clear(tx)
    return Constant(None)


def _set_item(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.store(tx, args[0], args[1])
    return Constant(None)


def _del_item(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.del_item(tx, args[0])
    return Constant(None)


def _move_to_end(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    last = args[1] if len(args) > 1 else kwargs.get("last", Constant(True))
    if not self.contains(tx, args[0]):
        raise_ordered_key_error(tx, args[0])
    self.move(tx, args[0], last.truth(tx))
    return Constant(None)


def _reversed(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return SequenceIterator(TupleValue(self.keys()[::-1]))


def _equal(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    other = args[0]
    other = getattr(other, "payload", None) or other
    if not isinstance(other, DictValue):
        return Constant(NotImplemented)
    if self.length(tx) != other.length(tx):
        return Constant(False)
    for key, value in self.entries():
        theirs = other.lookup(tx, key)
        if theirs is None or not tx_equal(tx, value, theirs):
            return Constant(False)
    return Constant(True)


def _view(kind: str) -> Handler:
    def make(self: DictValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return DictView(self, kind)

    return make


DICT_METHODS: dict[str, Handler] = {
    "get": _get,
    "pop": _pop,
    "popitem": _popitem,
    "setdefault": _setdefault,
    "update": _update,
    "__init__": _init,
    "__ior__": _ior,
    "__or__": _or,
    "copy": _copy,
    "clear": _clear,
    "keys": _view("keys"),
    "values": _view("values"),
    "items": _view("items"),
    "move_to_end": _move_to_end,
    "__getitem__": lambda s, tx, a, k: s.get_item(tx, a[0]),
    "__setitem__": _set_item,
    "__delitem__": _del_item,
    "__contains__": lambda s, tx, a, k: Constant(s.contains(tx, a[0])),
    "__len__": lambda s, tx, a, k: Constant(s.length(tx)),
    "__iter__": lambda s, tx, a, k: s.iterate(tx),
    "__reversed__": _reversed,
    "__eq__": _equal,
    "__repr__": lambda s, tx, a, k: tx.wrap_new(repr(s.as_python())),
}
