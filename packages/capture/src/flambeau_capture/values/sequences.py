"""Lists, tuples (named ones and torch.Size among them), slices and deques.

In: sequences of the program or new ones. Out: `ListValue`, `TupleValue`, `SliceValue`,
`DequeValue`. Invariant: items of an existing sequence are wrapped when they are first read; its
length is guarded from the start.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.source import Item, Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    NotConcrete,
    Tracer,
    Value,
    unpack,
)
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.iterators import SequenceIterator
from flambeau_capture.values.methods import BoundMethod


class Pending:
    """An item of an existing container that nobody has read yet."""

    __slots__ = ("real", "source")

    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.source = source


class SequenceValue(Value):
    """What lists and tuples share: items, of which some may be pending."""

    def __init__(
        self, items: Iterable[Value | Pending], source: Source | None = None, tx: Any = None
    ) -> None:
        self._items: list[Value | Pending] = list(items)
        self._tx = tx
        self.source = source

    def item(self, index: int) -> Value:
        item = self._items[index]
        if isinstance(item, Pending):
            item = self._tx.wrap(item.real, item.source)
            self._items[index] = item
        return item

    def parts(self) -> list[Value]:
        """All items."""
        return [self.item(index) for index in range(len(self._items))]

    def graph_argument(self) -> Any:
        from flambeau_capture.values.tensor import graph_argument

        return [graph_argument(part) for part in self.parts()]

    def truth(self, tx: Tracer) -> bool:
        return bool(self._items)

    def length(self, tx: Tracer) -> int:
        return len(self._items)

    def iterate(self, tx: Tracer) -> IteratorValue:
        return SequenceIterator(self)

    def contains(self, tx: Tracer, item: Value) -> bool:
        return any(tx_equal(tx, part, item) for part in self.parts())

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue):
            return self.like(self._at(key.as_slice()))
        index = index_of(tx, key)
        try:
            return self.item(index)
        except IndexError:
            tx.raise_error(IndexError, f"{self.cls.__name__} index out of range")

    def _at(self, where: slice) -> list[Value]:
        return [self.item(index) for index in range(*where.indices(len(self._items)))]

    def like(self, items: list[Value]) -> Value:
        raise NotImplementedError

    def position(self, tx: Tracer, args: Args) -> Value:
        start = constant_of(args[1]) if len(args) > 1 else 0
        stop = constant_of(args[2]) if len(args) > 2 else len(self._items)
        for index in range(*slice(start, stop).indices(len(self._items))):
            if tx_equal(tx, self.item(index), args[0]):
                return Constant(index)
        tx.raise_error(ValueError, f"value is not in {self.cls.__name__}")

    def count(self, tx: Tracer, args: Args) -> Value:
        return Constant(sum(tx_equal(tx, part, args[0]) for part in self.parts()))


def tx_equal(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right or left == right`, as containers compare."""
    return left is right or tx.binary("==", left, right).truth(tx)


def index_of(tx: Tracer, key: Value) -> int:
    """A subscript's integer."""
    from flambeau_capture.values.tensor import TensorValue

    if isinstance(key, TensorValue):
        raise Break("FB0002", f"{key.describe()} as an index")
    if isinstance(key, Constant) and isinstance(key.value, int):
        return int(key.value)
    try:
        concrete = key.as_python()
    except NotConcrete:
        concrete = None
    if hasattr(concrete, "__index__"):
        return int(concrete.__index__())
    tx.raise_error(TypeError, f"indices must be integers or slices, not {key.cls.__name__}")


class ListValue(SequenceValue):
    @property
    def cls(self) -> type:
        return list

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
                items[index_of(tx, key)] = value
            except IndexError:
                tx.raise_error(IndexError, "list assignment index out of range")
        self.replace(tx, items)

    def del_item(self, tx: Tracer, key: Value) -> None:
        items = self.raw()
        try:
            del items[key.as_slice() if isinstance(key, SliceValue) else index_of(tx, key)]
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
        return handler(self, tx, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
            return
        with writer.building(self):
            for part in self.parts():
                writer.load(part)
            writer.build_list(len(self._items))

    def replay(self, writer: Any) -> None:
        """Write the items back into the object, past what a subclass of list defines."""
        whole = Constant(slice(None))
        writer.call(list.__setitem__, [self, whole, ListValue(self.parts())])
        writer.pop_top()


_SEQUENCE_DUNDERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "__getitem__": lambda s, tx, a: s.get_item(tx, a[0]),
    "__len__": lambda s, tx, a: Constant(s.length(tx)),
    "__contains__": lambda s, tx, a: Constant(s.contains(tx, a[0])),
    "__iter__": lambda s, tx, a: s.iterate(tx),
    "__eq__": lambda s, tx, a: tx.binary("==", s, a[0]),
    "__ne__": lambda s, tx, a: tx.binary("!=", s, a[0]),
    "__add__": lambda s, tx, a: tx.binary("+", s, a[0]),
    "__mul__": lambda s, tx, a: tx.binary("*", s, a[0]),
    "index": lambda s, tx, a: s.position(tx, a),
    "count": lambda s, tx, a: s.count(tx, a),
}


def sequence_method(
    value: SequenceValue, tx: Tracer, name: str, args: Args, kwargs: Kwargs
) -> Value:
    """Methods that lists, tuples and deques share."""
    if name in _SEQUENCE_DUNDERS and not kwargs:
        result: Value = _SEQUENCE_DUNDERS[name](value, tx, args)
        return result
    try:
        plain = value.as_python()
        found = getattr(plain, name)(
            *(arg.as_python() for arg in args),
            **{key: arg.as_python() for key, arg in kwargs.items()},
        )
    except NotConcrete:
        value.unknown(f"method {name!r}")
    if not isinstance(value, TupleValue) and name not in _PURE_LIST_METHODS:
        value.unknown(f"method {name!r}")
    return tx.wrap_new(found)


_PURE_LIST_METHODS = frozenset({"__repr__", "__str__", "__format__", "__sizeof__"})


def _append(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.replace(tx, [*self.raw(), args[0]])
    return Constant(None)


def _extend(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.replace(tx, [*self.raw(), *unpack(tx, args[0])])
    return Constant(None)


def _iadd(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _extend(self, tx, args, kwargs)
    return self


def _insert(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = self.raw()
    items.insert(constant_of(args[0]), args[1])
    self.replace(tx, items)
    return Constant(None)


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


def _remove(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    index = constant_of(self.position(tx, args))
    items = self.raw()
    del items[index]
    self.replace(tx, items)
    return Constant(None)


def _clear(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.replace(tx, [])
    return Constant(None)


def _copy(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return self.like(self.parts())


def _reverse(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.replace(tx, reversed(self.raw()))
    return Constant(None)


def _sort(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    from flambeau_capture.values.sorting import sort_values

    self.replace(tx, sort_values(tx, self.parts(), kwargs))
    return Constant(None)


def _init(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.replace(tx, unpack(tx, args[0]) if args else [])
    return Constant(None)


def _set_item(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.set_item(tx, args[0], args[1])
    return Constant(None)


def _del_item(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    self.del_item(tx, args[0])
    return Constant(None)


def _reversed(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return SequenceIterator(TupleValue(list(reversed(self.parts()))))


_LIST_METHODS: dict[str, Callable[[ListValue, Tracer, Args, Kwargs], Value]] = {
    "append": _append,
    "extend": _extend,
    "__iadd__": _iadd,
    "insert": _insert,
    "pop": _pop,
    "remove": _remove,
    "clear": _clear,
    "copy": _copy,
    "reverse": _reverse,
    "sort": _sort,
    "__init__": _init,
    "__setitem__": _set_item,
    "__delitem__": _del_item,
    "__reversed__": _reversed,
}


class DequeValue(ListValue):
    """collections.deque, with its bound on the length."""

    def __init__(
        self,
        items: Iterable[Value | Pending],
        maxlen: int | None = None,
        source: Source | None = None,
        tx: Any = None,
    ) -> None:
        super().__init__(items, source, tx)
        self.maxlen = maxlen

    @property
    def cls(self) -> type:
        return collections.deque

    def as_python(self) -> Any:
        return collections.deque((part.as_python() for part in self.parts()), self.maxlen)

    def like(self, items: list[Value]) -> Value:
        return DequeValue(items, self.maxlen)

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

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
            return
        with writer.building(self):
            writer.call(collections.deque, [TupleValue(self.parts()), Constant(self.maxlen)])

    def replay(self, writer: Any) -> None:
        writer.load(self)
        writer.load_method_and_call("clear", [])
        writer.pop_top()
        writer.load(self)
        writer.load_method_and_call("extend", [TupleValue(self.parts())])
        writer.pop_top()


class TupleValue(SequenceValue):
    """Tuples, torch.Size, named tuples, and the result types of torch."""

    def __init__(
        self,
        items: Iterable[Value | Pending],
        python_class: type = tuple,
        source: Source | None = None,
        tx: Any = None,
    ) -> None:
        super().__init__(items, source, tx)
        self._class = python_class

    @property
    def cls(self) -> type:
        return self._class

    def describe(self) -> str:
        return f"{self._class.__name__} of {len(self._items)}"

    def as_python(self) -> Any:
        return make_tuple(self._class, [part.as_python() for part in self.parts()])

    def graph_argument(self) -> Any:
        from flambeau_capture.values.tensor import graph_argument

        return tuple(graph_argument(part) for part in self.parts())

    def like(self, items: list[Value]) -> Value:
        return TupleValue(items, torch.Size if self._class is torch.Size else tuple)

    def fields(self) -> tuple[str, ...]:
        """Names of the items, where they have names."""
        names = getattr(self._class, "_fields", None)
        if names is None and hasattr(self._class, "n_sequence_fields"):
            names = self._class.__match_args__  # type: ignore[attr-defined]
        return tuple(names or ())

    def get_attr(self, tx: Tracer, name: str) -> Value:
        names = self.fields()
        if name in names:
            return self.item(names.index(name))
        if name == "__class__":
            return tx.wrap_new(self._class)
        if name == "_fields":
            return tx.wrap_new(names)
        from flambeau_capture.values.objects import class_attribute, find_in_class

        written = find_in_class(self._class, name)
        if written is not None and isinstance(written[1], _PYTHON_ATTRIBUTES):
            return class_attribute(tx, self, self._class, name)
        found = getattr(self._class, name, None)
        if found is None and not hasattr(self._class, name):
            tx.raise_error(
                AttributeError, f"'{self._class.__name__}' object has no attribute '{name}'"
            )
        if callable(found):
            return BoundMethod(self, name)
        return tx.wrap_new(found)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "numel" and self._class is torch.Size:
            return tx.wrap_new(self.as_python().numel())
        if name in ("_replace", "_asdict") or (
            name not in _SEQUENCE_DUNDERS and not hasattr(tuple, name)
        ):
            return tx.call(self.get_attr(tx, name), args, kwargs)
        return sequence_method(self, tx, name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
            return
        with writer.building(self):
            if self._class is tuple:
                for part in self.parts():
                    writer.load(part)
                writer.build_tuple(len(self._items))
            elif hasattr(self._class, "_fields"):
                writer.call(_make_named, [Constant(self._class), TupleValue(self.parts())])
            else:
                writer.call(self._class, [TupleValue(self.parts())])


_PYTHON_ATTRIBUTES = (types.FunctionType, classmethod, staticmethod, property)


def _make_named(kind: Any, items: tuple[Any, ...]) -> Any:
    return tuple.__new__(kind, items)


def make_tuple(kind: type, items: list[Any]) -> Any:
    """A tuple of a tuple class."""
    if kind is tuple:
        return tuple(items)
    if hasattr(kind, "_fields"):
        return tuple.__new__(kind, items)
    return kind(items)


class SliceValue(Value):
    def __init__(
        self, start: Value, stop: Value, step: Value, source: Source | None = None
    ) -> None:
        self.bounds = (start, stop, step)
        self.source = source

    @property
    def cls(self) -> type:
        return slice

    def parts(self) -> list[Value]:
        return list(self.bounds)

    def describe(self) -> str:
        return "slice"

    def truth(self, tx: Tracer) -> bool:
        return True

    def as_python(self) -> Any:
        return slice(*(bound.as_python() for bound in self.bounds))

    def as_slice(self) -> slice:
        """The slice with integer bounds."""
        try:
            found: slice = self.as_python()
        except NotConcrete as error:
            raise Break("FB0002", f"{error} as a bound of a slice") from None
        return found

    def graph_argument(self) -> Any:
        from flambeau_capture.values.tensor import graph_argument

        return slice(*(graph_argument(bound) for bound in self.bounds))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        names = ("start", "stop", "step")
        if name in names:
            return self.bounds[names.index(name)]
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "indices":
            return tx.wrap_new(self.as_slice().indices(constant_of(args[0])))
        self.unknown(f"method {name!r}")

    def reconstruct(self, writer: Any) -> None:
        writer.call(slice, list(self.bounds))


def existing_sequence(
    tx: Any, items: Iterable[Any], source: Source, kind: str
) -> list[Value | Pending]:
    """The pending items of a sequence of the program."""
    return [
        Pending(item, Item(source, index, kind))  # type: ignore[arg-type]
        for index, item in enumerate(items)
    ]
