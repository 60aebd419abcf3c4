"""Lists, deques and sorting.

In: lists of the program or new ones. Out: `ListValue`, `DequeValue`, `sort_values`.
Invariant: a list that existed before the frame is written back where it was changed.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.source import Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value, unpack
from flambeau_capture.values.constant import NONE, Constant, constant_of, evaluate, is_none
from flambeau_capture.values.containers.sequences import (
    SEQUENCE_METHODS,
    Pending,
    SequenceValue,
    TupleValue,
    index_of,
    tx_equal,
)
from flambeau_capture.values.functions.methods import PROTOCOL, Handler
from flambeau_capture.values.iterators.builtin import DequeIterator, ReversedIterator
from flambeau_capture.values.objects.attributes import call_special, is_iterable


@dataclass(eq=False)
class _ByComparison:
    """A sort key that the program's own `<` compares: first `__lt__` alone, then the operator."""

    tx: Tracer
    value: Value
    alike: bool

    def __lt__(self, other: _ByComparison) -> bool:
        if self.alike and self.value.special(self.tx, "__lt__"):
            found = call_special(self.tx, self.value, "__lt__", [other.value])
            if not (isinstance(found, Constant) and found.value is NotImplemented):
                return found.truth(self.tx)
        return self.tx.binary("<", self.value, other.value).truth(self.tx)


def sort_values(tx: Tracer, items: list[Value], kwargs: Kwargs) -> list[Value]:
    key, reverse = kwargs.get("key", NONE), kwargs.get("reverse")
    keys = items if is_none(key) else [tx.call(key, [item], {}) for item in items]
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

    def as_python(self) -> Any:
        return [part.as_python() for part in self.parts()]

    def like(self, items: list[Value]) -> Value:
        return ListValue(items)

    def replace(self, tx: Tracer, items: Sequence[Value | Pending]) -> None:
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
        where: Any = self.where(tx, key)
        items = self.raw()
        if isinstance(where, slice) and not is_iterable(value):
            evaluate(tx, operator.setitem, items, where, None)  # in the words of such assignments
        given: Any = value
        if isinstance(where, slice):
            given = self.parts() if _is_of(value, self) else unpack(tx, value, hint=True)
        evaluate(tx, operator.setitem, items, where, given)
        if list(map(id, items)) != list(map(id, self.raw())):  # `list[0] += 1` sets what is there
            self.replace(tx, items)

    def del_item(self, tx: Tracer, key: Value) -> None:
        where = self.where(tx, key)
        items = self.raw()
        evaluate(tx, operator.delitem, items, where)
        self.replace(tx, items)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            self.write_items(writer)
            writer.build_list(len(self._items))

    def replay(self, writer: Any) -> None:
        """Write the items back into the object, past what a subclass of list defines."""
        whole = Constant(slice(None))
        writer.do(list.__setitem__, [self, whole, ListValue(self.parts())])


def _is_of(given: Value, part: ListValue) -> bool:
    """Whether a value is a list or deque, or the instance that it is the built-in part of."""
    return given is part or getattr(given, "payload", None) is part


def _extend(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    given = args[0]
    if _is_of(given, self):
        direct = given is self or VERSION >= (3, 13)
        added = self.parts() if direct else unpack(tx, given.iterate(tx), hint=True)
        self.replace(tx, [*self.raw(), *added])
        return
    if given.cls is list or given.cls is tuple:
        self.add(tx, unpack(tx, given, hint=True))
        return
    items = given.iterate(tx)
    tx.ask_length_hint(given)
    for item in items.drain(tx):  # which may read the list: each is there before the next is made
        self.add(tx, [item])


def _init(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    if kwargs:
        raise Break("FB0005", f"list.__init__ with {', '.join(kwargs)}")
    self.replace(tx, [])
    if args:
        _extend(self, tx, args, kwargs)


def _iadd(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _extend(self, tx, args, kwargs)
    return self


def _insert(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    index = index_of(tx, args[0], lambda place: self.empty().insert(place, None))
    items = self.raw()
    evaluate(tx, items.insert, index, args[1])
    self.replace(tx, items)


def _pop(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    index = index_of(tx, args[0], self.empty().pop) if args else -1
    items = self.raw()
    evaluate(tx, items.pop, index)
    popped = self.item(index)
    self.replace(tx, items)
    return popped


def _remove(self: ListValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    index = next((i for i, one in enumerate(self.parts()) if tx_equal(tx, one, args[0])), None)
    if index is None:
        self.absent(tx, "remove", args[0])
    items = self.raw()
    del items[index]
    self.replace(tx, items)


ListValue.methods = {
    **SEQUENCE_METHODS,
    "append": lambda s, tx, a, k: s.add(tx, [a[0]]),
    "extend": _extend,
    "__iadd__": _iadd,
    "insert": _insert,
    "pop": _pop,
    "remove": _remove,
    "clear": lambda s, tx, a, k: s.replace(tx, []),
    "copy": lambda s, tx, a, k: s.like(s.parts()),
    "reverse": lambda s, tx, a, k: s.replace(tx, s.raw()[::-1]),
    "sort": lambda s, tx, a, k: s.replace(tx, sort_values(tx, s.parts(), k)),
    "__init__": _init,
    "__reversed__": lambda s, tx, a, k: ReversedIterator(s, s.length(tx)),
}


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
        self.state = 0  # how often what iterators go by has changed

    def as_python(self) -> Any:
        return collections.deque((part.as_python() for part in self.parts()), self.maxlen)

    def graph_argument(self) -> Any:
        raise Break("FB0015", self.describe())  # which is no list for torch's functions

    def like(self, items: list[Value]) -> Value:
        return DequeValue(items, self.maxlen)

    def where(self, tx: Tracer, key: Value) -> int:
        return index_of(tx, key, partial(operator.getitem, self.empty()))

    def replace(self, tx: Tracer, items: Sequence[Value | Pending]) -> None:
        more = 0 if self.maxlen is None else max(len(items) - self.maxlen, 0)
        self.state += bool(items or self._items)
        super().replace(tx, items[more:])

    def in_place(self, tx: Tracer, items: Sequence[Value | Pending]) -> None:
        """Change the contents as iterators do not notice: what is at each place."""
        super().replace(tx, items)

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        items = collections.deque(self.raw())
        evaluate(tx, operator.setitem, items, self.where(tx, key), value)
        self.in_place(tx, [*items])

    def del_item(self, tx: Tracer, key: Value) -> None:
        items = collections.deque(self.raw())
        evaluate(tx, operator.delitem, items, self.where(tx, key))
        self.replace(tx, [*items])

    def iterate(self, tx: Tracer) -> DequeIterator:
        return DequeIterator(self)

    def add_left(self, tx: Tracer, items: list[Value]) -> None:
        """Put items in front, the last first."""
        self.replace(tx, [*reversed(items), *self.raw()][: self.maxlen])

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return Constant(self.maxlen) if name == "maxlen" else super().get_attr(tx, name)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(collections.deque, [TupleValue(self.parts()), Constant(self.maxlen)])

    def replay(self, writer: Any) -> None:
        if not self.state:
            for place, part in enumerate(self.parts()):
                writer.do(collections.deque.__setitem__, [self, Constant(place), part])
            return
        writer.load(self)
        writer.call_method_top("clear", [])
        writer.pop_top()
        writer.load(self)
        writer.call_method_top("extend", [TupleValue(self.parts())])
        writer.pop_top()


def _deque_init(self: DequeValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    given = dict(zip(("iterable", "maxlen"), args)) | dict(kwargs)
    limit = constant_of(given.get("maxlen", NONE))
    evaluate(tx, collections.deque, (), limit)  # no negative one
    if self.source is not None and limit != self.maxlen:
        self.unknown("__init__ with another maxlen")
    self.maxlen = limit
    self.replace(tx, [])
    if "iterable" in given:
        _extend_deque(self, tx, [given["iterable"]], {})


def _added(self: DequeValue, tx: Tracer, given: Value) -> Value:
    """What a deque is extended by: of itself, a copy."""
    return TupleValue(unpack(tx, given, hint=True)) if _is_of(given, self) else given


def _extend_deque(self: DequeValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    for item in _added(self, tx, args[0]).iterate(tx).drain(tx):
        self.add(tx, [item])


def _iadd_to_deque(self: DequeValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    _extend_deque(self, tx, args, kwargs)
    return self


def _extend_left(self: DequeValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    for item in _added(self, tx, args[0]).iterate(tx).drain(tx):
        self.add_left(tx, [item])


def _pop_end(self: DequeValue, tx: Tracer, end: int) -> Value:
    if not self.raw():
        tx.raise_error(IndexError, "pop from an empty deque")
    return _pop(self, tx, [Constant(end)], {})


def _insert_bounded(self: DequeValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    index = Constant(index_of(tx, args[0], lambda place: self.empty().insert(place, None)))
    if len(self.raw()) == self.maxlen:
        tx.raise_error(IndexError, "deque already at its maximum size")
    _insert(self, tx, [index, *args[1:]], kwargs)


def _rotate(self: DequeValue, tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    items = self.raw()
    steps = index_of(tx, args[0], collections.deque().rotate) if args else 1
    evaluate(tx, collections.deque().rotate, steps)
    if len(items) < 2:
        return
    shift = steps % len(items)
    self.replace(tx, [*items[len(items) - shift :], *items[: len(items) - shift]])


def _by_name(name: str) -> Handler:
    """A method of subscripts, which has other words for a wrong index than a subscript."""

    def call(self: DequeValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
        ask, rest = getattr(self.empty(), name), [None] * (len(args) - 1)
        place = Constant(index_of(tx, args[0], lambda key: ask(key, *rest)))
        return PROTOCOL[name](self, tx, [place, *args[1:]], kwargs)

    return call


DequeValue.methods = {
    **ListValue.methods,
    "__init__": _deque_init,
    **{name: _by_name(name) for name in ("__getitem__", "__setitem__", "__delitem__")},
    "appendleft": lambda s, tx, a, k: s.add_left(tx, [a[0]]),
    "extend": _extend_deque,
    "extendleft": _extend_left,
    "__iadd__": _iadd_to_deque,
    "insert": _insert_bounded,
    "reverse": lambda s, tx, a, k: s.in_place(tx, s.raw()[::-1]),
    "__reversed__": lambda s, tx, a, k: DequeIterator(s, backwards=True),
    "pop": lambda s, tx, a, k: _pop_end(s, tx, -1),
    "popleft": lambda s, tx, a, k: _pop_end(s, tx, 0),
    "rotate": _rotate,
}
