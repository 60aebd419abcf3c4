"""Sequences as values: indexing, slices, shared methods, tuples and named tuples.

In: items of the program or new ones. Out: `SequenceValue`, the base of lists and tuples;
`TupleValue`, `SliceValue`. Invariant: items that the program does not touch are wrapped, and
guarded, when they are read.
"""

from __future__ import annotations

import collections
import operator
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.source import Attr, ClassEntry, ConstantSource, Source, item_of
from flambeau_capture.source.steps import ItemKind
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    NotConcrete,
    Tracer,
    Value,
    needing,
    objects_of,
)
from flambeau_capture.values.constant import Constant, constant_of, evaluate, one_object, refuse
from flambeau_capture.values.functions.methods import PROTOCOL, BuiltinKind, Handler
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import (
    FIELD,
    assume_entry,
    class_attribute,
    find_in_class,
)
from flambeau_capture.values.stand_ins import stand_in
from flambeau_capture.values.tensors.tensor import TensorValue, known_number


class SliceValue(BuiltinKind):
    described = "slice"
    cls: type = slice
    built_once = True
    methods = {"indices": lambda s, tx, a, k: tx.wrap_new(s.indices(tx, constant_of(a[0])))}

    def __init__(
        self, start: Value, stop: Value, step: Value, source: Source | None = None
    ) -> None:
        self.bounds = (start, stop, step)
        self.source = source

    def parts(self) -> list[Value]:
        return list(self.bounds)

    def as_python(self) -> Any:
        return slice(*(bound.as_python() for bound in self.bounds))

    def as_slice(self) -> slice:
        """The slice with integer bounds."""
        with needing("FB0002", lambda error: f"{error} as a bound of a slice"):
            found: slice = self.as_python()
        if any(issubclass(bound.cls, type) for bound in self.bounds):
            raise Break("FB0002", "a class as a bound of a slice")
        return found

    def graph_argument(self) -> Any:
        return slice(*(bound.graph_argument() for bound in self.bounds))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        names = ("start", "stop", "step")
        return self.bounds[names.index(name)] if name in names else super().get_attr(tx, name)

    def indices(self, tx: Tracer, length: int) -> tuple[int, int, int]:
        found: tuple[int, int, int] = evaluate(tx, self.as_slice().indices, length)
        return found

    def reconstruct(self, writer: Any) -> None:
        writer.call(slice, list(self.bounds))


@dataclass(slots=True, eq=False)
class Pending:
    """An item of an existing container that nobody has read yet."""

    real: Any
    source: Source


_KINDS: tuple[Any, ...] = (tuple, list, collections.deque)


class SequenceValue(BuiltinKind):
    """What lists and tuples share: items, of which some may be pending."""

    immutable = False

    def __init__(
        self, items: Iterable[Value | Pending], source: Source | None = None, tx: Any = None
    ) -> None:
        self._items: list[Value | Pending] = list(items)
        self._tx = tx
        self.source = source

    def describe(self) -> str:
        return f"{self.cls.__name__} of {len(self._items)}"

    def holds(self) -> Iterable[Value]:
        return [item for item in self._items if not isinstance(item, Pending)]

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
        return [part.graph_argument() for part in self.parts()]

    def truth(self, tx: Tracer) -> bool:
        return bool(self._items)

    def length(self, tx: Tracer) -> int:
        return len(self._items)

    def iterate(self, tx: Tracer) -> IteratorValue:
        return SequenceIterator(self)

    def contains(self, tx: Tracer, item: Value) -> bool:
        return any(tx_equal(tx, part, item) for part in self.parts())

    def where(self, tx: Tracer, key: Value) -> int | slice:
        """What a subscript comes to."""
        if isinstance(key, SliceValue):
            return key.as_slice()
        return index_of(tx, key, partial(operator.getitem, self.empty()))

    def get_item(self, tx: Tracer, key: Value) -> Value:
        where = self.where(tx, key)
        if isinstance(where, slice):
            chosen = range(*evaluate(tx, where.indices, len(self._items)))
            return self.like([self.item(index) for index in chosen])
        try:
            return self.item(where)
        except IndexError:
            tx.raise_error(IndexError, f"{self.cls.__name__} index out of range")

    def like(self, items: list[Value]) -> Value:
        raise NotImplementedError

    def position(self, tx: Tracer, args: Args) -> Value:
        size = len(self._items)
        given = [self._bound(tx, arg) for arg in args[1:]]
        for index in range(*slice(*given, *(0, size)[len(given) :]).indices(size)):
            if tx_equal(tx, self.item(index), args[0]):
                return Constant(index)
        self.absent(tx, "index", args[0])

    def _bound(self, tx: Tracer, value: Value) -> int:
        """Where `index` begins or ends: an integer, which None is not."""
        return index_of(tx, value, partial(self.empty().index, None))

    def empty(self) -> Any:
        """What refuses arguments as it does, and has no items."""
        return next(kind for kind in _KINDS if issubclass(self.cls, kind))()

    def absent(self, tx: Tracer, method: str, item: Value) -> NoReturn:
        """Raise what a method raises that looks for an item which is not there."""
        empty: Any = self.cls()
        try:
            plain = item.as_python()
        except NotConcrete:
            self.unknown(f"{method} of {item.describe()}, which is not there")
        evaluate(tx, getattr(empty, method), plain)
        raise AssertionError(f"{method} has found an item in nothing")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in self.methods or name in PROTOCOL:
            return super().call_method(tx, name, args, kwargs)
        try:
            plain, named = objects_of(args, kwargs)
            found = getattr(self.as_python(), name)(*plain, **named)
        except NotConcrete:
            self.unknown(f"method {name!r}")
        if not self.immutable and name not in _PURE_LIST_METHODS:
            self.unknown(f"method {name!r}")
        return tx.wrap_new(found)

    def write_items(self, writer: Any) -> None:
        for part in self.parts():
            writer.load(part)


def tx_equal(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right or left == right`, as containers compare."""
    if left is right:
        return True
    if not isinstance(left, Constant) and not isinstance(right, Constant):
        tx.guard_distinct(left, right)  # one object is not compared with itself
    if isinstance(left, Constant) and isinstance(right, Constant) and _unequal_to_itself(left):
        return one_object(tx, left, right)
    return tx.binary("==", left, right).truth(tx)


def _unequal_to_itself(number: Constant) -> bool:
    return (
        type(number) is Constant and number.cls in (float, complex) and number.value != number.value
    )


def index_of(tx: Tracer, key: Value, asked: Callable[[Any], Any] = operator.index) -> int:
    """An integer where one is needed. `asked` needs it, on a container without items: it
    refuses in its own words an object that is none, and a number that is too large for it."""
    if isinstance(key, TensorValue):
        number = known_number(tx, key)
        if type(number) is int:
            return number
        raise Break("FB0002", f"{key.describe()} as an index")
    if isinstance(key, Constant) and isinstance(key.value, int):
        return _that_fits(tx, asked, int(key.value), key)
    special = key.special(tx, "__index__")
    try:
        concrete = None if special else key.as_python()
    except NotConcrete:
        concrete = None
    if hasattr(type(concrete), "__index__"):
        return _that_fits(tx, asked, int(evaluate(tx, operator.index, concrete)), key)
    payload = getattr(key, "payload", None)
    if isinstance(payload, Constant) and isinstance(payload.value, int):
        return _that_fits(tx, asked, int(payload.value), key)
    if special:
        return _that_fits(tx, asked, int(constant_of(ask(tx, key, "__index__"))), key)
    if concrete is None and find_in_class(key.cls, "__index__") is not None:
        key.unknown("__index__")  # which its class has in C
    refuse(tx, asked, key)
    raise AssertionError(key.describe())


def _that_fits(tx: Tracer, asked: Callable[[Any], Any], number: int, key: Value) -> int:
    """The number; where it is too large, what is raised of that, which is not said of a place that
    a container without items has not."""
    if abs(number) > sys.maxsize:
        own = isinstance(key, Constant)
        try:
            asked(number if own else stand_in(key.cls, {"__index__": lambda _: number}))
        except (OverflowError, IndexError) as error:
            if isinstance(error, OverflowError) or "cannot fit" in str(error):
                tx.raise_as_python(error)
        except ValueError:  # it is not found
            pass
    return number


def _by_items(sequence: SequenceValue, tx: Tracer, symbol: str, other: Value) -> Value:
    """A comparison as the special method answers it: another kind of object is none of its own."""
    payload: Value = getattr(other, "payload", None) or other
    if not issubclass(payload.cls, type(sequence.empty())):
        return Constant(NotImplemented)
    return tx.binary(symbol, sequence, payload)


def _times(sequence: SequenceValue, tx: Tracer, times: Value) -> Value:
    """What its method takes, which has other words than the operator."""
    return Constant(index_of(tx, times, sequence.empty().__mul__))


SEQUENCE_METHODS: dict[str, Handler] = {
    "__eq__": lambda s, tx, a, k: _by_items(s, tx, "==", a[0]),
    "__ne__": lambda s, tx, a, k: _by_items(s, tx, "!=", a[0]),
    "__lt__": lambda s, tx, a, k: _by_items(s, tx, "<", a[0]),
    "__le__": lambda s, tx, a, k: _by_items(s, tx, "<=", a[0]),
    "__gt__": lambda s, tx, a, k: _by_items(s, tx, ">", a[0]),
    "__ge__": lambda s, tx, a, k: _by_items(s, tx, ">=", a[0]),
    "__add__": lambda s, tx, a, k: tx.binary("+", s, a[0]),
    "__mul__": lambda s, tx, a, k: tx.binary("*", s, _times(s, tx, a[0])),
    "index": lambda s, tx, a, k: s.position(tx, a),
    "count": lambda s, tx, a, k: Constant(sum(tx_equal(tx, p, a[0]) for p in s.parts())),
}

_PURE_LIST_METHODS = frozenset({"__repr__", "__str__", "__format__", "__sizeof__"})


def existing_sequence(items: Any, source: Source, base: type) -> list[Value | Pending]:
    """The pending items of a container of the program, whatever its class overrides."""
    kind: ItemKind = "list" if base is list else "tuple" if base is tuple else "any"
    own = enumerate(base.__iter__(items))  # type: ignore[attr-defined]
    return [Pending(item, item_of(items, source, index, kind)) for index, item in own]


class TupleValue(SequenceValue):
    """Tuples, torch.Size, named tuples, and the result types of torch."""

    cls: type
    immutable = True
    methods = SEQUENCE_METHODS

    def __init__(
        self,
        items: Iterable[Value | Pending],
        python_class: type = tuple,
        source: Source | None = None,
        tx: Any = None,
        real: Any = None,
    ) -> None:
        super().__init__(items, source, tx)
        self.cls = python_class
        self.real = real  # an object that has more than its items

    def as_python(self) -> Any:
        items = [part.as_python() for part in self.parts()]
        if self.real is not None:
            return self.real
        try:
            return make_tuple(self.cls, items)
        except TypeError:  # a class that nothing but the interpreter makes instances of
            raise NotConcrete(self.describe()) from None

    def graph_argument(self) -> Any:
        return tuple(part.graph_argument() for part in self.parts())

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue) and self.cls is tuple:
            where = range(*key.indices(tx, len(self._items)))
            if where.step == 1 and len(where) == len(self._items):
                return self  # all of a tuple is the tuple
        return super().get_item(tx, key)

    def like(self, items: list[Value]) -> Value:
        return TupleValue(items, torch.Size if self.cls is torch.Size else tuple)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        assume_entry(tx, self.cls, name)
        written = find_in_class(self.cls, name)
        if written is not None and isinstance(written[1], FIELD):
            return self.item(written[1].__reduce__()[1][0])
        by_name = hasattr(self.cls, "n_sequence_fields")  # a result type of torch
        names: Any = getattr(self.cls, "__match_args__", ()) if by_name else ()
        if name in names:
            return self.item(names.index(name))
        if self.real is not None and written and isinstance(written[1], types.MemberDescriptorType):
            assert self.source is not None
            return tx.wrap(getattr(self.real, name), Attr(self.source, name))
        if name == "_fields" and written is not None:
            owner, fields = written
            return tx.wrap(fields, ClassEntry(ConstantSource(owner, owner.__name__), name))
        if written is not None and isinstance(written[1], _PYTHON_ATTRIBUTES):
            return class_attribute(tx, self, self.cls, name)
        if name == "__dict__" or not hasattr(self.cls, name):
            self.lacks(tx, name)
        found = getattr(self.cls, name)
        return super().get_attr(tx, name) if callable(found) else tx.wrap_new(found)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "numel" and self.cls is torch.Size:
            total: Value = Constant(1)
            for size in self.parts():
                total = tx.binary("*", total, size)
            return total
        own = name not in self.methods and not hasattr(tuple, name)
        if own or name in ("_replace", "_asdict"):
            return tx.call(self.get_attr(tx, name), args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            if self.cls is tuple:
                self.write_items(writer)
                writer.build_tuple(len(self._items))
            elif hasattr(self.cls, "_fields"):
                writer.call(make_tuple, [Constant(self.cls), TupleValue(self.parts())])
            else:
                writer.call(self.cls, [TupleValue(self.parts())])


_PYTHON_ATTRIBUTES = (types.FunctionType, classmethod, staticmethod, property)


def make_tuple(kind: type, items: Iterable[Any]) -> Any:
    """A tuple of a tuple class."""
    if kind is tuple:
        return tuple(items)
    if hasattr(kind, "_fields"):
        return tuple.__new__(kind, items)
    return kind(items)


_MUTABLE = (list, dict, set, bytearray, collections.deque)


def is_mutable(value: Value) -> bool:
    """Whether a value is a container that may be written to, or holds one."""
    if isinstance(value, TupleValue):
        return any(map(is_mutable, value.parts()))
    kind: Any = getattr(value, "cls", None)
    return isinstance(kind, type) and issubclass(kind, _MUTABLE)


def given_before(tx: Tracer, values: Iterable[Value]) -> None:
    """Refuse a container that a function brings along into what autograd runs later."""
    if tx.run_later and any(map(is_mutable, values)):
        tx.heap.changed()
        raise Break("FB0025", f"{tx.run_later} reads a container that a function was made with")


def too_many(tx: Tracer, given: Value, count: int) -> str:
    """What is said of more values than are unpacked; from 3.14 on how many, where that is known."""
    sized = VERSION >= (3, 14) and given.cls in (list, tuple, dict)
    had = f", got {given.length(tx)}" if sized else ""
    return f"too many values to unpack (expected {count}{had})"
