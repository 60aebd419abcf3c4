"""Sets and frozensets as values.

In: sets of the program or new ones. Out: `SetValue`. Invariant: items come in the order in which
Python's own set of the same keys, made the same way, would give them.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from flambeau_capture._native import set_like
from flambeau_capture.breaks import Break
from flambeau_capture.source import Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.dict_views import DictView, algebra_of_keys
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.hashable_keys import (
    Identity,
    is_among,
    raise_key_error,
    set_element,
)
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BuiltinKind
from flambeau_capture.values.iterators.builtin import KeysIterator


class SetValue(BuiltinKind):
    """set and frozenset. A real set of the keys gives the order in which Python would iterate.
    `found`: the program's own set, or one that was evaluated, which the items are of, in order."""

    cls: type

    def __init__(
        self,
        items: Iterable[Value],
        python_class: type = set,
        source: Source | None = None,
        tx: Any = None,
        found: AbstractSet[Any] | None = None,
    ) -> None:
        self.cls = python_class
        self._tx = tx
        self.source = source
        keyed = [(set_element(tx, item), item) for item in items]
        keys = [key for key, _ in keyed]
        self._found = None if found is None else set_like(False, found)
        #: the keys, of equal ones that which Python's set keeps, in a table such as Python's
        self._order: set[Hashable] = set(keys)
        if self._found is not None:
            self._order = set_like(False, self._found, (*keys,))
        self._items = {id(key): item for key, item in keyed}  # read for what is in `_order` alone
        self._done: list[tuple[Any, list[Value]]] = []  # calls that changed the program's own set

    def parts(self) -> list[Value]:
        self.assume_order()
        return [self._items[id(key)] for key in self._order]

    def assume_order(self, table: bool = False) -> None:
        """Guard what the order of the program's own set rests on: changed, on its whole table."""
        if self.source is not None and self._found is not None:
            kind = "SET_TABLE" if table or self._done else "SET_ORDER"
            self._tx.guard(self.source, kind, self._found)

    def log(self, method: Any, *args: Value) -> None:
        """A call that has changed it: to be made again on the program's own set."""
        if self.source is not None:
            self._done.append((method, [*args]))

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
        size = len(self._order)
        self._order.add(key)
        if len(self._order) > size:
            self._items[id(key)] = item
            self.log(set.add, item)

    def drop(self, key: Hashable, item: Value) -> None:
        if key in self._order:
            self._order.discard(key)
            self.log(set.discard, item)

    def take(self) -> Value:
        """What `pop` gives."""
        self.assume_order(table=True)
        found = self._items[id(self._order.pop())]
        self.log(set.pop)
        return found

    def empty(self) -> None:
        self._order.clear()
        self._items.clear()
        self.log(set.clear)

    def describe(self) -> str:
        return f"{self.cls.__name__} of {len(self._order)}"

    def as_python(self) -> Any:
        parts = tuple(part.as_python() for part in self.parts())
        frozen = self.cls is frozenset
        return set_like(frozen, self._order, parts) if self._is_ordered() else self.cls(parts)

    def _is_ordered(self) -> bool:
        """Whether the items themselves have the hashes of their keys, and so this order."""
        return all(map(_hashes_alike, self._order))

    def truth(self, tx: Tracer) -> bool:
        return bool(self._order)

    def length(self, tx: Tracer) -> int:
        return len(self._order)

    def contains(self, tx: Tracer, item: Value) -> bool:
        return is_among(tx, _member(tx, item), self._order, set_element)

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
        parts = TupleValue(self.parts())
        self.assume_order(table=True)
        with writer.building(self):
            if self._is_ordered():
                model = set_like(False, self._order)
                writer.call(set_like, [Constant(self.cls is frozenset), Constant(model), parts])
            else:
                writer.call(self.cls, [parts])

    def is_as_it_was(self) -> bool:
        """Whether no call has changed it: what was discarded was not there."""
        return not self._done

    def replay(self, writer: Any) -> None:
        for method, args in self._done:
            writer.do(method, [self, *args])


def _hashes_alike(key: Hashable) -> bool:
    """Whether what a key stands for has the key's hash."""
    if isinstance(key, tuple):
        return all(map(_hashes_alike, key))
    return not isinstance(key, Identity)


def _keys_of(tx: Tracer, given: Value) -> tuple[dict[int, Value], Any]:
    """The items of an argument by their keys' identity, and the keys in a container of its kind,
    which decides the order, and which of equal keys is kept."""
    payload = getattr(given, "payload", None)
    given = payload if isinstance(payload, SetValue) else given  # whatever its class iterates over
    if isinstance(given, SetValue):
        given.assume_order(table=True)
        return given.keyed(), given._order
    keyed = [(set_element(tx, item), item) for item in unpack(tx, given)]
    keys = [key for key, _ in keyed]
    items = {id(key): item for key, item in keyed}
    if given.cls is dict:
        return items, dict.fromkeys(keys)
    is_view = isinstance(given, DictView) and given.kind != "values"
    return items, dict.fromkeys(keys).keys() if is_view else keys


@algebra_of_keys.by
def algebra(tx: Tracer, left: Value, name: str, args: Args) -> Value:
    """A method of a set or of a dict's view, as Python's own do it to the keys; or an operator
    of anything that a view, on its right, iterates over."""
    if name not in _SET_ALGEBRA:
        left.unknown(f"method {name!r}")
    takes_any = not isinstance(left, SetValue) and name in _ANY_ITERABLE
    if name.startswith("__") and not takes_any and not _is_set_like(args[0]):
        return Constant(NotImplemented)
    views = any(isinstance(each, DictView) for each in (left, *args) if name.startswith("__"))
    if name == "isdisjoint" and args and (left.cls, args[0].cls) not in _BY_KEYS:
        return Constant(_is_disjoint(tx, left, args[0]))
    given = [(*_keys_of(tx, each), each.cls) for each in (left, *args)]
    if views:  # whose operators treat frozen sets otherwise
        given = [(i, set_like(True, k) if c is frozenset else k, c) for i, k, c in given]
    keys, *others = (each for _, each, _ in given)
    by = getattr(operator, name) if name.startswith("__") else getattr(type(keys), name)
    result: Any = by(keys, *others)
    if isinstance(result, bool):
        return Constant(result)
    made = SetValue([], set if views else left.cls, tx=tx)
    made._items = {at: item for items, *_ in given for at, item in items.items()}
    made._order = result
    return made


#: sets of which `isdisjoint` reads nothing but the keys
_BY_KEYS = frozenset(itertools.product((set, frozenset), repeat=2))


def _is_disjoint(tx: Tracer, left: Value, other: Value) -> bool:
    """Items are taken until one is found; a view takes those of the smaller one of itself and a
    set."""
    if left in (other, getattr(other, "payload", None)):
        return not left.truth(tx)
    find = left.contains
    if isinstance(left, SetValue):  # a set stands for no frozen one here
        find = partial(is_among, keys=left._order, of=set_element)  # type: ignore[assignment]
    elif _is_set_like(other) and left.length(tx) < other.length(tx):
        find, other = other.contains, left
    return not any(find(tx, item) for item in other.iterate(tx).drain(tx))


def _is_set(value: Value) -> bool:
    return isinstance(getattr(value, "payload", None) or value, SetValue)


def _is_set_like(value: Value) -> bool:
    return _is_set(value) or (isinstance(value, DictView) and value.kind != "values")


def _member(tx: Tracer, item: Value) -> Value:
    """An item that is looked for: a set stands for the frozen set of its items."""
    return SetValue(unpack(tx, item), frozenset, tx=tx) if item.cls is set else item


SetHandler = Callable[[SetValue, Tracer, Args], Value | None]


def _in_place(name: str) -> SetHandler:
    def run(self: SetValue, tx: Tracer, args: Args) -> Value | None:
        for step in [args] if name == "intersection_update" else [[arg] for arg in args]:
            given, order = [_keys_of(tx, arg) for arg in step], self._order  # read, if not yet
            self.log(getattr(set, name), *(_as_given(self, tx, *each) for each in given))
            for items, _ in given:
                self._items = {**items, **self.keyed()}
            getattr(order, name)(*(keys for _, keys in given))
        return self if name.startswith("__i") else None

    return run


def _as_given(own: SetValue, tx: Tracer, items: dict[int, Value], keys: Any) -> Value:
    """An argument as it is now, in a container that Python treats alike."""
    if keys is own._order:
        return own
    found = [items[id(key)] for key in keys]
    if isinstance(keys, dict):
        return DictValue([(item, Constant(None)) for item in found], tx=tx)
    if not isinstance(keys, set):
        return TupleValue(found)
    made = SetValue([], frozenset, tx=tx)
    made._order, made._items = set_like(False, keys), items
    return made


def _set_remove(self: SetValue, tx: Tracer, args: Args) -> None:
    if not self.contains(tx, args[0]):
        raise_key_error(tx, args[0])
    _set_discard(self, tx, args)


def _set_discard(self: SetValue, tx: Tracer, args: Args) -> None:
    item = _member(tx, args[0])
    self.drop(set_element(tx, item), item)


def _set_pop(self: SetValue, tx: Tracer, args: Args) -> Value:
    if not self._order:
        evaluate(tx, set.pop, set())
    if not self._is_ordered():
        raise Break("FB0009", "set.pop: the item depends on the order of hashes")
    return self.take()


def _set_init(self: SetValue, tx: Tracer, args: Args) -> None:
    given = [_as_given(self, tx, *_keys_of(tx, arg)) for arg in args]
    self.empty()
    _in_place("update")(self, tx, given)


_SET_MUTATIONS: dict[str, SetHandler] = {
    "add": lambda s, tx, a: s.insert(set_element(tx, a[0]), a[0]),
    "discard": _set_discard,
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
