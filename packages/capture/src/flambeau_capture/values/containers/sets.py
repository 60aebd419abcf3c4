"""Sets and frozensets as values.

In: sets of the program or new ones. Out: `SetValue`. Invariant: items come in the order in which
Python's own set of the same keys, made the same way, would give them.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    NotConcrete,
    Tracer,
    Unreconstructible,
    Value,
    unpack,
)
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictView
from flambeau_capture.values.containers.hashable_keys import is_among, key_of, raise_key_error
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BuiltinKind
from flambeau_capture.values.iterators.builtin import KeysIterator


class SetValue(BuiltinKind):
    """set and frozenset. A real set of the keys gives the order in which Python would iterate."""

    cls: type

    def __init__(
        self,
        items: Iterable[Value],
        python_class: type = set,
        source: Source | None = None,
        tx: Any = None,
    ) -> None:
        self.cls = python_class
        self._tx = tx
        self.source = source
        keyed = [(key_of(tx, item), item) for item in items]
        keys = [key for key, _ in keyed]
        #: the keys, of equal ones that which Python's set keeps; an existing set's as it iterates
        self._order: Any = set(keys) if source is None else dict.fromkeys(keys)
        self._items = {id(key): item for key, item in keyed}  # read for what is in `_order` alone

    def parts(self) -> list[Value]:
        return [self._items[id(key)] for key in self._order]

    def own_order(self) -> set[Hashable]:
        """The set of keys, about to be changed."""
        if self._as_found():
            self._order = set(self._order)
        order: set[Hashable] = self._order
        return order

    def keyed(self) -> dict[int, Value]:
        """The items by the identity of their keys."""
        return {id(key): self._items[id(key)] for key in self._order}

    def filled(self, tx: Tracer, given: Value) -> SetValue:
        """A new set, once it has what it is made of."""
        items, keys = _keys_of(tx, given)
        self._order = set(keys)
        self._items = dict(items)
        return self

    def insert(self, key: Hashable, item: Value) -> None:
        order = self.own_order()
        size = len(order)
        order.add(key)
        if len(order) > size:
            self._items[id(key)] = item

    def drop(self, key: Hashable) -> None:
        self.own_order().discard(key)

    def empty(self) -> None:
        self.own_order().clear()
        self._items.clear()

    def describe(self) -> str:
        return f"{self.cls.__name__} of {len(self._order)}"

    def as_python(self) -> Any:
        parts = self.parts()
        made = self.cls(part.as_python() for part in parts)
        if self._as_found() or not all(map(_hashes_alike, parts)):
            return made
        if [*made] == [*self._order]:
            return made
        recipe = _as_inserted(self._order, self.cls)
        if recipe is None:
            raise NotConcrete(f"the order of a {self.describe()}")
        return _set_of(self.cls, [self._items[id(k)].as_python() for k in recipe[0]], recipe[1])

    def _as_found(self) -> bool:
        """Whether it is still the set of the program."""
        return isinstance(self._order, dict)

    def truth(self, tx: Tracer) -> bool:
        return bool(self._order)

    def length(self, tx: Tracer) -> int:
        return len(self._order)

    def contains(self, tx: Tracer, item: Value) -> bool:
        return is_among(tx, _member(tx, item), self._order)

    def iterate(self, tx: Tracer) -> IteratorValue:
        return KeysIterator(self, self.parts())

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in _SET_MUTATIONS and self.cls is set:
            if name.startswith("__i") and name != "__init__" and not _is_set(args[0]):
                return Constant(NotImplemented)
            tx.heap.changed(self)
            return _SET_MUTATIONS[name](self, tx, args) or Constant(None)
        if name in _SET_ALGEBRA:
            return algebra(tx, self, name, args)
        if name == "copy":
            return self if self.cls is frozenset else SetValue([], tx=tx).filled(tx, self)
        return super().call_method(tx, name, args, kwargs)

    def rebuild(self, writer: Any) -> None:
        parts: list[Value] = self.parts()
        first: int | None = None
        if not self._as_found() and all(map(_hashes_alike, parts)):
            recipe = _as_inserted(self._order, self.cls)
            if recipe is None:
                raise Unreconstructible(self, f"the order of a {self.describe()}")
            parts, first = [self._items[id(key)] for key in recipe[0]], recipe[1]
        with writer.building(self):
            if first is None:
                writer.call(self.cls, [TupleValue(parts)])
            else:
                writer.call(_set_of, [Constant(self.cls), TupleValue(parts), Constant(first)])

    def replay(self, writer: Any) -> None:
        for method, args in (("clear", []), ("update", [TupleValue(self.parts())])):
            writer.load(self)
            writer.call_method_top(method, args)
            writer.pop_top()


def _hashes_alike(item: Value) -> bool:
    """Whether the item itself has the hash of its key."""
    if isinstance(item, TupleValue):
        return all(map(_hashes_alike, item.parts()))
    return isinstance(item, Constant)


def _as_inserted(order: set[Hashable], kind: type) -> tuple[list[Hashable], int | None] | None:
    """Keys in an order, and how many to begin with, that make a set which iterates as this one:
    that depends on the size of its table, and where hashes collide on what came first."""
    keys = wanted = list(order)
    firsts = (None, *dict.fromkeys(len(keys) * eighths // 8 for eighths in range(9)))
    chance = random.Random(len(keys))
    for _ in range(max(1, _TRIALS // (1 + len(keys) ** 2 // 64))):
        for first in firsts:
            if list(_set_of(kind, keys, first)) == wanted:
                return keys, first
        keys = chance.sample(wanted, len(wanted))
    return None


def _set_of(kind: Any, keys: Sequence[Any], first: int | None) -> Any:
    """A set of keys; first: how many it has before room for all is made at once."""
    return kind(keys) if first is None else kind(keys[:first]).union(dict.fromkeys(keys))


_TRIALS = 400


def _keys_of(tx: Tracer, given: Value) -> tuple[dict[int, Value], Any]:
    """The items of an argument by their keys' identity, and the keys in a container of its kind,
    which decides the order, and which of equal keys is kept."""
    payload = getattr(given, "payload", None)
    given = payload if isinstance(payload, SetValue) else given  # whatever its class iterates over
    if isinstance(given, SetValue):
        return given.keyed(), set(given._order) if given._as_found() else given._order
    keyed = [(key_of(tx, item), item) for item in unpack(tx, given)]
    keys = [key for key, _ in keyed]
    items = {id(key): item for key, item in keyed}
    if given.cls is dict:
        return items, dict.fromkeys(keys)
    is_view = isinstance(given, DictView) and given.kind != "values"
    return items, dict.fromkeys(keys).keys() if is_view else keys


def algebra(tx: Tracer, left: Value, name: str, args: Args) -> Value:
    """A method of a set or of a dict's view, as Python's own do it to the keys; or an operator
    of anything that a view, on its right, iterates over."""
    if name not in _SET_ALGEBRA:
        left.unknown(f"method {name!r}")
    takes_any = not isinstance(left, SetValue) and name in _ANY_ITERABLE
    if name.startswith("__") and not takes_any and not _is_set_like(args[0]):
        return Constant(NotImplemented)
    views = any(isinstance(each, DictView) for each in (left, *args) if name.startswith("__"))
    given = [(*_keys_of(tx, each), each.cls) for each in (left, *args)]
    if views:  # whose operators treat frozen sets otherwise
        given = [(i, frozenset(k) if c is frozenset else k, c) for i, k, c in given]
    keys, *others = (each for _, each, _ in given)
    by = getattr(operator, name) if name.startswith("__") else getattr(type(keys), name)
    result: Any = by(keys, *others)
    if isinstance(result, bool):
        return Constant(result)
    made = SetValue([], set if views else left.cls, tx=tx)
    made._items = {at: item for items, *_ in given for at, item in items.items()}
    made._order = result
    return made


def _is_set(value: Value) -> bool:
    return isinstance(getattr(value, "payload", None) or value, SetValue)


def _is_set_like(value: Value) -> bool:
    return isinstance(value, SetValue) or (isinstance(value, DictView) and value.kind != "values")


def _member(tx: Tracer, item: Value) -> Value:
    """An item that is looked for: a set stands for the frozen set of its items."""
    return SetValue(unpack(tx, item), frozenset, tx=tx) if item.cls is set else item


SetHandler = Callable[[SetValue, Tracer, Args], Value | None]


def _in_place(name: str) -> SetHandler:
    def run(self: SetValue, tx: Tracer, args: Args) -> Value | None:
        order = self.own_order()
        for step in [args] if name == "intersection_update" else [[arg] for arg in args]:
            given = [_keys_of(tx, arg) for arg in step]
            for items, _ in given:
                self._items = {**items, **self.keyed()}
            getattr(order, name)(*(keys for _, keys in given))
        return self if name.startswith("__i") else None

    return run


def _set_remove(self: SetValue, tx: Tracer, args: Args) -> None:
    if not self.contains(tx, args[0]):
        raise_key_error(tx, args[0])
    self.drop(key_of(tx, _member(tx, args[0])))


def _set_pop(self: SetValue, tx: Tracer, args: Args) -> Value:
    raise Break("FB0009", "set.pop: the item depends on the order of hashes")


def _set_init(self: SetValue, tx: Tracer, args: Args) -> None:
    self.empty()
    _in_place("update")(self, tx, args)


_SET_MUTATIONS: dict[str, SetHandler] = {
    "add": lambda s, tx, a: s.insert(key_of(tx, a[0]), a[0]),
    "discard": lambda s, tx, a: s.drop(key_of(tx, _member(tx, a[0]))),
    "remove": _set_remove,
    "clear": lambda s, tx, a: s.empty(),
    "pop": _set_pop,
    "__init__": _set_init,
    **{name: _in_place(name) for name in ("update", "difference_update", "intersection_update",
                                          "symmetric_difference_update", "__ior__", "__iand__",
                                          "__isub__", "__ixor__")},
}  # fmt: skip


_ANY_ITERABLE = frozenset({"__and__", "__or__", "__sub__", "__xor__"})
_SET_ALGEBRA = frozenset(
    {
        "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset",
        "isdisjoint", "__or__", "__and__", "__sub__", "__xor__", "__le__", "__lt__", "__ge__",
        "__gt__", "__eq__", "__ne__",
    }
)  # fmt: skip
