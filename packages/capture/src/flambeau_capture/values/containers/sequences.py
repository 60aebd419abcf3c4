"""Sequences: lists' and tuples' lazily wrapped items.

In: sequences of the program or new ones. Out: `SequenceValue`, `Pending`, how items compare and are
indexed. Invariant: items of an existing sequence are guarded when they are read; its length is
guarded from the start.
"""

from __future__ import annotations

import collections
import operator
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from flambeau_capture.breaks import Break
from flambeau_capture.source import Source, item_of
from flambeau_capture.source.steps import ItemKind
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of, evaluate
from flambeau_capture.values.containers.slices import SliceValue
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.special_method_results import ask
from flambeau_capture.values.stand_ins import name_in_errors, nameless, refuse
from flambeau_capture.values.tensors.tensor import TensorValue, known_number


class Pending:
    """An item of an existing container that nobody has read yet."""

    __slots__ = ("real", "source")

    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.source = source


class SequenceValue(Value):
    """What lists and tuples share: items, of which some may be pending."""

    immutable = False

    def __init__(
        self, items: Iterable[Value | Pending], source: Source | None = None, tx: Any = None
    ) -> None:
        self._items: list[Value | Pending] = list(items)
        self._tx = tx
        self.source = source

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

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue):
            where = evaluate(tx, key.as_slice().indices, len(self._items))
            return self.like([self.item(index) for index in range(*where)])
        index = index_of(tx, key, self)
        try:
            return self.item(index)
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
        if isinstance(value, Constant) and not isinstance(value.value, int):
            evaluate(tx, self.cls().index, None, value.value)
        return index_of(tx, value)

    def absent(self, tx: Tracer, method: str, item: Value) -> NoReturn:
        """Raise what a method raises that looks for an item which is not there."""
        empty: Any = self.cls()
        try:
            plain = item.as_python()
        except NotConcrete:
            self.unknown(f"{method} of {item.describe()}, which is not there")
        evaluate(tx, getattr(empty, method), plain)
        raise AssertionError(f"{method} has found an item in nothing")

    def count(self, tx: Tracer, args: Args) -> Value:
        return Constant(sum(tx_equal(tx, part, args[0]) for part in self.parts()))


def tx_equal(tx: Tracer, left: Value, right: Value) -> bool:
    """`left is right or left == right`, as containers compare."""
    return left is right or tx.binary("==", left, right).truth(tx)


def index_of(tx: Tracer, key: Value, indexed: Value | None = None) -> int:
    """An integer where one is needed: a subscript of `indexed`, or any other."""
    if isinstance(key, TensorValue):
        number = known_number(tx, key)
        if type(number) is int:
            return number
        raise Break("FB0002", f"{key.describe()} as an index")
    if isinstance(key, Constant) and isinstance(key.value, int):
        return int(key.value)
    special = key.special(tx, "__index__")
    try:
        concrete = None if special else key.as_python()
    except NotConcrete:
        concrete = None
    if hasattr(concrete, "__index__"):
        return int(evaluate(tx, operator.index, concrete))
    payload = getattr(key, "payload", None)
    if isinstance(payload, Constant) and isinstance(payload.value, int):
        return int(payload.value)
    if special:
        number = int(constant_of(ask(tx, key, "__index__")))
        if indexed is not None and abs(number) > sys.maxsize:
            shown = name_in_errors(key.cls)
            tx.raise_error(IndexError, f"cannot fit '{shown}' into an index-sized integer")
        return number
    if indexed is None:
        refuse(tx, operator.index, key)
        raise AssertionError(key.describe())
    kind = next(kind for kind in (list, tuple, collections.deque) if issubclass(indexed.cls, kind))
    evaluate(tx, operator.getitem, kind(), nameless(key))
    raise AssertionError(key.describe())


def _get_item(sequence: SequenceValue, tx: Tracer, key: Value) -> Value:
    if issubclass(sequence.cls, collections.deque):  # its method has other words than a subscript
        key = Constant(index_of(tx, key))
    return sequence.get_item(tx, key)


def _by_items(sequence: SequenceValue, tx: Tracer, symbol: str, other: Value) -> Value:
    """A comparison as the special method answers it: another kind of object is none of its own."""
    payload: Value = getattr(other, "payload", None) or other
    own = next(kind for kind in (tuple, list, collections.deque) if issubclass(sequence.cls, kind))
    if not issubclass(payload.cls, own):
        return Constant(NotImplemented)
    return tx.binary(symbol, sequence, payload)


SEQUENCE_METHODS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "__getitem__": lambda s, tx, a: _get_item(s, tx, a[0]),
    "__len__": lambda s, tx, a: Constant(s.length(tx)),
    "__contains__": lambda s, tx, a: Constant(s.contains(tx, a[0])),
    "__iter__": lambda s, tx, a: s.iterate(tx),
    "__eq__": lambda s, tx, a: _by_items(s, tx, "==", a[0]),
    "__ne__": lambda s, tx, a: _by_items(s, tx, "!=", a[0]),
    "__lt__": lambda s, tx, a: _by_items(s, tx, "<", a[0]),
    "__le__": lambda s, tx, a: _by_items(s, tx, "<=", a[0]),
    "__gt__": lambda s, tx, a: _by_items(s, tx, ">", a[0]),
    "__ge__": lambda s, tx, a: _by_items(s, tx, ">=", a[0]),
    "__add__": lambda s, tx, a: tx.binary("+", s, a[0]),
    "__mul__": lambda s, tx, a: tx.binary("*", s, a[0]),
    "index": lambda s, tx, a: s.position(tx, a),
    "count": lambda s, tx, a: s.count(tx, a),
}


def sequence_method(
    value: SequenceValue, tx: Tracer, name: str, args: Args, kwargs: Kwargs
) -> Value:
    """Methods that lists, tuples and deques share."""
    if name in SEQUENCE_METHODS and not kwargs:
        result: Value = SEQUENCE_METHODS[name](value, tx, args)
        return result
    try:
        plain = value.as_python()
        found = getattr(plain, name)(
            *(arg.as_python() for arg in args),
            **{key: arg.as_python() for key, arg in kwargs.items()},
        )
    except NotConcrete:
        value.unknown(f"method {name!r}")
    if not value.immutable and name not in _PURE_LIST_METHODS:
        value.unknown(f"method {name!r}")
    return tx.wrap_new(found)


_PURE_LIST_METHODS = frozenset({"__repr__", "__str__", "__format__", "__sizeof__"})


def existing_sequence(
    tx: Any, items: Iterable[Any], source: Source, kind: ItemKind
) -> list[Value | Pending]:
    """The pending items of a sequence of the program; a list's or a tuple's are read as such,
    whatever its class says of subscripts and iteration."""
    own: Any = list.__iter__ if kind == "list" else tuple.__iter__ if kind == "tuple" else iter
    return [
        Pending(item, item_of(items, source, index, kind)) for index, item in enumerate(own(items))
    ]
