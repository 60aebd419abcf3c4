"""Lists, deques and sorting.

In: lists of the program or new ones. Out: `ListValue`, `ExistingList`, `DequeValue`, `sort_values`.
Invariant: a list that existed before the frame is written back where it was changed.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant, constant_of, evaluate, is_none
from flambeau_capture.values.containers.sequences import (
    Pending,
    SequenceValue,
    SliceValue,
    TupleValue,
    index_of,
    sequence_method,
    tx_equal,
)
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.objects.attributes import call_special


class _ByComparison:
    """A sort key that the program's own `<` compares: first `__lt__` alone, then the operator."""

    def __init__(self, tx: Tracer, value: Value, alike: bool) -> None:
        self.tx = tx
        self.value = value
        self.alike = alike

    def __lt__(self, other: _ByComparison) -> bool:
        if self.alike and self.value.special(self.tx, "__lt__"):
            found = call_special(self.tx, self.value, "__lt__", [other.value])
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return found.truth(self.tx)
        return self.tx.binary("<", self.value, other.value).truth(self.tx)


def sort_values(tx: Tracer, items: list[Value], kwargs: Kwargs) -> list[Value]:
    key, reverse = kwargs.get("key"), kwargs.get("reverse")
    no_key = key is None or (is_none(key))
    keys = items if no_key or key is None else [tx.call(key, [item], {}) for item in items]
    try:
        plain: list[Any] = [one.as_python() for one in keys]
    except NotConcrete as error:
        if any(hasattr(one, "fake") for one in keys):
            raise Break("FB0001", f"sorting by {error}") from None
        alike = len({id(one.cls) for one in keys}) == 1
        plain = [_ByComparison(tx, one, alike) for one in keys]
    backwards = reverse is not None and reverse.truth(tx)

    def sort() -> list[int]:
        return sorted(range(len(items)), key=lambda index: plain[index], reverse=backwards)

    order: Any = sort() if plain and isinstance(plain[0], _ByComparison) else evaluate(tx, sort)
    return [items[index] for index in order]


class ListValue(SequenceValue):
    cls: type = list

    def describe(self) -> str:
        return f"list of {len(self._items)}"

    def as_python(self) -> Any:
        return [part.as_python() for part in self.parts()]

    def like(self, items: list[Value]) -> Value:
        return ListValue(items)

    def replace(self, tx: Tracer, items: Iterable[Value | Pending]) -> None:
        """Change the contents."""
        tx.heap.changed(self)
        self._items = list(items)

    def add(self, tx: Tracer, items: list[Value]) -> None:
        """Append."""
        self.replace(tx, [*self.raw(), *items])

    def raw(self) -> list[Value | Pending]:
        """The items as they are, pending ones included."""
        return list(self._items)

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        items = self.raw()
        if isinstance(key, SliceValue):
            try:
                items[key.as_slice()] = unpack(tx, value)
            except ValueError as error:
                tx.raise_error(ValueError, *error.args)
        else:
            try:
                items[index_of(tx, key, self)] = value
            except IndexError:
                tx.raise_error(IndexError, "list assignment index out of range")
        self.replace(tx, items)

    def del_item(self, tx: Tracer, key: Value) -> None:
        items = self.raw()
        try:
            where = key.as_slice() if isinstance(key, SliceValue) else index_of(tx, key, self)
            del items[where]
        except IndexError:
            tx.raise_error(IndexError, "list assignment index out of range")
        self.replace(tx, items)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if not hasattr(list, name):
            tx.raise_error(AttributeError, f"'list' object has no attribute '{name}'")
        return BoundMethod(self, name) if name != "__class__" else tx.wrap_new(list)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        handler = _LIST_METHODS.get(name)
        if handler is None:
            return sequence_method(self, tx, name, args, kwargs)
        return handler(self, tx, args, kwargs) or Constant(None)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            for part in self.parts():
                writer.load(part)
            writer.build_list(len(self._items))

    def replay(self, writer: Any) -> None:
        """Write the items back into the object, past what a subclass of list defines."""
        whole = Constant(slice(None))
        writer.call(list.__setitem__, [self, whole, ListValue(self.parts())])
        writer.pop_top()


class ExistingList(ListValue):
    """A list of the program. Nothing is assumed of its items until they are read."""

    def __init__(
        self, tx: Tracer, source: Source, read: Callable[[], list[Value | Pending]]
    ) -> None:
        self._read: Callable[[], list[Value | Pending]] | None = None
        self._held: list[Value | Pending] = []
        super().__init__([], source, tx)
        self._read = read

    @property
    def _items(self) -> list[Value | Pending]:
        if self._read is not None:
            read, self._read = self._read, None
            self._held = [*read(), *self._held]
        return self._held

    @_items.setter
    def _items(self, items: list[Value | Pending]) -> None:
        self._read = None
        self._held = items

    def add(self, tx: Tracer, items: list[Value]) -> None:
        """Append, without looking at what is there."""
        tx.heap.changed(self)
        self._held = [*self._held, *items]

    def describe(self) -> str:
        return "list" if self._read is not None else super().describe()

    def replay(self, writer: Any) -> None:
        if self._read is None:
            super().replay(writer)
            return
        added = [item for item in self._held if isinstance(item, Value)]
        writer.call(list.extend, [self, TupleValue(added)])
        writer.pop_top()


def _extend(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    added = unpack(tx, args[0], hint=True)
    if args[0] is self:
        self.replace(tx, [*self.raw(), *added])
    else:
        self.add(tx, added)


def _iadd(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _extend(self, tx, args, kwargs)
    return self


def _insert(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    items = self.raw()
    items.insert(index_of(tx, args[0]), args[1])
    self.replace(tx, items)


def _pop(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    index = index_of(tx, args[0]) if args else -1
    size = len(self.raw())
    if not -size <= index < size:
        tx.raise_error(IndexError, "pop index out of range" if size else "pop from empty list")
    popped = self.item(index)
    items = self.raw()
    del items[index]
    self.replace(tx, items)
    return popped


def _remove(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    index = next((i for i, one in enumerate(self.parts()) if tx_equal(tx, one, args[0])), None)
    if index is None:
        self.absent(tx, "remove", args[0])
    items = self.raw()
    del items[index]
    self.replace(tx, items)


_LIST_METHODS: dict[str, Callable[[ListValue, Tracer, Args, Kwargs], Value | None]] = {
    "append": lambda s, tx, a, k: s.add(tx, [a[0]]),
    "extend": _extend,
    "__iadd__": _iadd,
    "insert": _insert,
    "pop": _pop,
    "remove": _remove,
    "clear": lambda s, tx, a, k: s.replace(tx, []),
    "copy": lambda s, tx, a, k: s.like(s.parts()),
    "reverse": lambda s, tx, a, k: s.replace(tx, reversed(s.raw())),
    "sort": lambda s, tx, a, k: s.replace(tx, sort_values(tx, s.parts(), k)),
    "__init__": lambda s, tx, a, k: s.replace(tx, unpack(tx, a[0], hint=True) if a else []),
    "__setitem__": lambda s, tx, a, k: s.set_item(tx, a[0], a[1]),
    "__delitem__": lambda s, tx, a, k: s.del_item(tx, a[0]),
    "__reversed__": lambda s, tx, a, k: SequenceIterator(TupleValue(s.parts()[::-1])),
}
"""A method that returns nothing returns None to the program."""


class DequeValue(ListValue):
    """collections.deque, with its bound on the length."""

    cls: type = collections.deque

    def __init__(
        self,
        items: Iterable[Value | Pending],
        maxlen: int | None = None,
        source: Source | None = None,
        tx: Any = None,
    ) -> None:
        super().__init__(items, source, tx)
        self.maxlen = maxlen

    def as_python(self) -> Any:
        return collections.deque((part.as_python() for part in self.parts()), self.maxlen)

    def like(self, items: list[Value]) -> Value:
        return DequeValue(items, self.maxlen)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        return super().get_item(tx, self._index(tx, key))

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        super().set_item(tx, self._index(tx, key), value)

    def del_item(self, tx: Tracer, key: Value) -> None:
        super().del_item(tx, self._index(tx, key))

    def _index(self, tx: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue):
            tx.raise_error(TypeError, "sequence index must be integer, not 'slice'")
        return key

    def replace(self, tx: Tracer, items: Iterable[Value | Pending]) -> None:
        kept = list(items)
        if self.maxlen is not None and len(kept) > self.maxlen:
            kept = kept[len(kept) - self.maxlen :]
        super().replace(tx, kept)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "maxlen":
            return Constant(self.maxlen)
        if not hasattr(collections.deque, name):
            tx.raise_error(AttributeError, f"'collections.deque' object has no attribute '{name}'")
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__init__":
            given = dict(zip(("iterable", "maxlen"), args)) | dict(kwargs)
            limit = constant_of(given["maxlen"]) if "maxlen" in given else None
            if self.source is not None and limit != self.maxlen:
                self.unknown("__init__ with another maxlen")
            self.maxlen = limit
            self.replace(tx, unpack(tx, given["iterable"]) if "iterable" in given else [])
            return Constant(None)
        if name in ("appendleft", "extendleft"):
            new = [args[0]] if name == "appendleft" else unpack(tx, args[0])[::-1]
            items = [*new, *self.raw()]
            if self.maxlen is not None:
                items = items[: self.maxlen]
            self.replace(tx, items)
            return Constant(None)
        if name == "popleft":
            if not self.raw():
                tx.raise_error(IndexError, "pop from an empty deque")
            return _pop(self, tx, [Constant(0)], {})
        if name == "rotate":
            items = self.raw()
            shift = (constant_of(args[0]) if args else 1) % max(len(items), 1)
            self.replace(tx, [*items[len(items) - shift :], *items[: len(items) - shift]])
            return Constant(None)
        return super().call_method(tx, name, args, kwargs)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(collections.deque, [TupleValue(self.parts()), Constant(self.maxlen)])

    def replay(self, writer: Any) -> None:
        writer.load(self)
        writer.load_method_and_call("clear", [])
        writer.pop_top()
        writer.load(self)
        writer.load_method_and_call("extend", [TupleValue(self.parts())])
        writer.pop_top()
