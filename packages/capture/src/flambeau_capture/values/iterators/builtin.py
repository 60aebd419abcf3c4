"""Iterators: over containers and ranges, and combined ones.

In: what is iterated. Out: one class per kind of iterator. Invariant: an iterator's position is part
of the interpreted program's state; `reconstruct` builds one at the same position.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn, TypeVar

from flambeau_capture.values.base import IteratorValue, MadeBy, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, is_none


class RangeIterator(IteratorValue):
    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    @property
    def cls(self) -> type:
        return type(iter(self.numbers))

    def advance(self, tx: Tracer) -> Value | None:
        if not self.numbers:
            return None
        tx.heap.changed()
        first, self.numbers = self.numbers[0], self.numbers[1:]
        return Constant(first)

    def reconstruct(self, writer: Any) -> None:
        writer.call(iter, [Constant(self.numbers)])


class SequenceIterator(IteratorValue):
    """Over a list, tuple or string: by index, so it sees what is appended on the way."""

    def __init__(self, sequence: Value, index: int = 0) -> None:
        self.sequence = sequence
        self.index: int | None = index
        self.made_by: MadeBy | None = None  # `reversed`, over items in reverse order
        self.kind: type | None = None  # of what a pure function has made

    @property
    def cls(self) -> type:
        if self.kind is not None:
            return self.kind
        if self.made_by is not None:
            made: Any = self.made_by.args[0].cls
            return type(reversed(made(0) if made is range else made()))
        kind = self.sequence.cls
        return type(iter(kind())) if kind in (list, tuple, str) else type(iter([]))

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        if self.index is None or self.index >= self.sequence.length(tx):
            self.index = None
            return None
        item = self.sequence.get_item(tx, Constant(self.index))
        self.index += 1
        return item

    def reconstruct(self, writer: Any) -> None:
        if self.index is None:
            writer.call(_ended, [Constant(self.sequence.cls)])
            return
        if self.index == 0 and self.made_by is not None:
            self.made_by.write(self, writer)
            return
        if self.index == 0:
            writer.call(iter, [self.sequence])
            return
        writer.call(_iterator_at, [self.sequence, Constant(self.index)])


def _ended(kind: type) -> Any:
    iterator = iter(kind() if kind in (list, tuple, str) else ())
    next(iterator, None)
    return iterator


def _iterator_at(sequence: Any, index: int) -> Any:
    iterator = iter(sequence)
    iterator.__setstate__(index)
    return iterator


_SIZE_OF_DICT = "dictionary changed size during iteration"

_SIZE_CHANGED: dict[type, str] = {
    **dict.fromkeys((set, frozenset), "Set changed size during iteration"),
    collections.OrderedDict: "OrderedDict mutated during iteration",
}


class KeysIterator(IteratorValue):
    """Over a snapshot of items; `now` gives what an item represents when it is its turn."""

    def __init__(
        self,
        container: Value,
        items: list[Value],
        now: Callable[[Any, Value], Value] | None = None,
        view: str = "",
    ) -> None:
        self.view = view
        self.container = container
        self.items = items
        self.now = now
        self.index = 0
        self.ended = False

    @property
    def cls(self) -> type:
        return type(_iterator_of(_built_in(self.container.cls)(), self.view, 0))

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        if self.ended:
            return None
        if self._is_lost(tx):
            tx.raise_error(RuntimeError, _SIZE_CHANGED.get(self.container.cls, _SIZE_OF_DICT))
        if self.index >= len(self.items):
            self.ended = True
            return None
        item = self.items[self.index]
        self.index += 1
        return item if self.now is None else self.now(tx, item)

    def _is_lost(self, tx: Any) -> bool:
        """Whether the container has changed its size: a linked one notices on its way alone."""
        linked = self.container.cls is collections.OrderedDict and self.index >= len(self.items)
        return self.container.length(tx) != len(self.items) and not linked

    def _is_current(self) -> bool:
        """Whether the container still has the items that it had: then it gives the others."""
        container: Any = self.container
        kept = container.keys() if hasattr(container, "keys") else container.parts()
        ordered = not self.index or hasattr(container, "keys")
        same = len(kept) == len(self.items) and all(a is b for a, b in zip(kept, self.items))
        return ordered and same and not self.ended

    def reconstruct(self, writer: Any) -> None:
        if self._is_current():
            given = [self.container, Constant(self.view), Constant(self.index)]
            writer.call(_iterator_of, given)
            return
        if not self.ended and self._is_lost(getattr(self.container, "_tx", None)):
            writer.call(_iterator_of_another_size, [Constant(_built_in(self.container.cls))])
            return
        writer.begin_tuple()
        for item in self.items[self.index :]:
            writer.load(item if self.now is None else self.now(None, item))
        writer.end_tuple(len(self.items) - self.index)
        writer.call_top(iter)


def _built_in(kind: type) -> Any:
    kinds = (collections.OrderedDict, dict, set, frozenset)
    return next(one for one in kinds if issubclass(kind, one))


def _iterator_of(container: Any, view: str, index: int) -> Any:
    """An iterator over what a built-in container has, whatever its class says of iteration."""
    kind = _built_in(type(container))
    iterator = iter(getattr(kind, view)(container)) if view else kind.__iter__(container)
    for _ in range(index):
        next(iterator)
    return iterator


def _iterator_of_another_size(kind: Any) -> Any:
    """An iterator whose container has changed its size since."""
    container = kind.fromkeys([1, 2]) if hasattr(kind, "fromkeys") else kind([1, 2])
    iterator = iter(container)
    container.pop() if kind is set else container.popitem()
    return iterator


class IndexIterator(IteratorValue):
    """The old protocol: `__getitem__` with 0, 1, 2, ... until IndexError."""

    cls: type = type(iter([]))

    def __init__(self, target: Value) -> None:
        self.target = target
        self.index = 0

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        try:
            item = self.target.get_item(tx, Constant(self.index))
        except UserError as error:
            if issubclass(error.value.cls, IndexError | StopIteration):
                return None
            raise
        self.index += 1
        return item


T = TypeVar("T")


class ZipIterator(IteratorValue):
    cls: type = zip

    def __init__(self, sources: list[IteratorValue], strict: bool = False) -> None:
        self.sources = sources
        self.strict = strict

    def holds(self) -> Iterable[Value]:
        return self.sources

    def advance(self, tx: Tracer) -> Value | None:
        items: list[Value] = []
        for position, source in enumerate(self.sources):
            item = source.advance(tx)
            if item is None:
                if self.strict:
                    self._check_lengths(tx, position)
                return None
            items.append(item)
        return tx.new_tuple(items) if items else None

    def _check_lengths(self, tx: Tracer, ended: int) -> None:
        if ended:
            self._refuse(tx, ended, "shorter", ended)
        for place, source in enumerate(self.sources[1:], start=1):
            if source.advance(tx) is not None:
                self._refuse(tx, place, "longer", place)

    def _refuse(self, tx: Tracer, place: int, how: str, before: int) -> NoReturn:
        others = "argument 1" if before == 1 else f"arguments 1-{before}"
        tx.raise_error(ValueError, f"zip() argument {place + 1} is {how} than {others}")

    def reconstruct(self, writer: Any) -> None:
        writer.call(_zip_strict if self.strict else zip, self.sources)


def _zip_strict(*iterators: Any) -> Any:
    return zip(*iterators, strict=True)


class EnumerateIterator(IteratorValue):
    cls: type = enumerate

    def __init__(self, source: IteratorValue, start: int) -> None:
        self.source_iterator = source
        self.next = start

    def holds(self) -> Iterable[Value]:
        return [self.source_iterator]

    def advance(self, tx: Tracer) -> Value | None:
        item = self.source_iterator.advance(tx)
        if item is None:
            return None
        self.next += 1
        return tx.new_tuple([Constant(self.next - 1), item])

    def reconstruct(self, writer: Any) -> None:
        writer.call(enumerate, [self.source_iterator, Constant(self.next)])


def _until_stopped(step: Callable[[], T]) -> T | None:
    """A step of an iterator made in C; StopIteration, whoever raises it, is the iterator's end."""
    try:
        return step()
    except UserError as error:
        if issubclass(error.value.cls, StopIteration):
            return None
        raise


class MapIterator(IteratorValue):
    cls: type = map

    def __init__(self, fn: Value, sources: list[IteratorValue]) -> None:
        self.fn = fn
        self.sources = sources

    def holds(self) -> Iterable[Value]:
        return [self.fn, *self.sources]

    def advance(self, tx: Tracer) -> Value | None:
        items = []
        for source in self.sources:
            item = source.advance(tx)
            if item is None:
                return None
            items.append(item)
        return _until_stopped(partial(tx.call, self.fn, items, {}))

    def reconstruct(self, writer: Any) -> None:
        writer.call(map, [self.fn, *self.sources])


class UntilIterator(IteratorValue):
    """`iter(fn, sentinel)`: what a function answers, until it answers the sentinel."""

    cls: type = type(iter(int, 0))

    def __init__(self, fn: Value, sentinel: Value) -> None:
        self.fn = fn
        self.sentinel = sentinel
        self.ended = False

    def holds(self) -> Iterable[Value]:
        return [self.fn, self.sentinel]

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        item = None if self.ended else _until_stopped(partial(tx.call, self.fn, [], {}))
        if item is None or item is self.sentinel or tx.binary("==", self.sentinel, item).truth(tx):
            self.ended = True
            return None
        return item

    def reconstruct(self, writer: Any) -> None:
        writer.call(_until, [self.fn, self.sentinel, Constant(self.ended)])


def _until(fn: Any, sentinel: Any, ended: bool) -> Any:
    if not ended:
        return iter(fn, sentinel)
    iterator = iter(int, 0)
    next(iterator, None)
    return iterator


class FilterIterator(IteratorValue):
    cls: type = filter

    def __init__(self, fn: Value, source: IteratorValue) -> None:
        self.fn = fn
        self.source_iterator = source

    def holds(self) -> Iterable[Value]:
        return [self.fn, self.source_iterator]

    def advance(self, tx: Tracer) -> Value | None:
        while (item := self.source_iterator.advance(tx)) is not None:
            kept = _until_stopped(partial(self._keep, tx, item))
            if kept is None:
                return None
            if kept:
                return item
        return None

    def _keep(self, tx: Tracer, item: Value) -> bool:
        asked = item if is_none(self.fn) else tx.call(self.fn, [item], {})
        return asked.truth(tx)

    def reconstruct(self, writer: Any) -> None:
        writer.call(filter, [self.fn, self.source_iterator])


class ChainIterator(IteratorValue):
    cls: type = itertools.chain

    def __init__(self, sources: list[Value]) -> None:
        self.sources = sources
        self.current: IteratorValue | None = None

    def holds(self) -> Iterable[Value]:
        return self.sources if self.current is None else [self.current, *self.sources]

    def advance(self, tx: Tracer) -> Value | None:
        while True:
            tx.heap.changed()
            if self.current is None:
                if not self.sources:
                    return None
                self.current = self.sources.pop(0).iterate(tx)
            item = self.current.advance(tx)
            if item is not None:
                return item
            self.current = None

    def reconstruct(self, writer: Any) -> None:
        rest = [*([self.current] if self.current is not None else []), *self.sources]
        writer.call(itertools.chain, rest)


class CountIterator(IteratorValue):
    """itertools.count and itertools.repeat: `step` None repeats."""

    def __init__(self, value: Value, step: Value | None, times: int | None = None) -> None:
        self.value = value
        self.step_value = step
        self.times = times

    @property
    def cls(self) -> type:
        return itertools.repeat if self.step_value is None else itertools.count

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        if self.times is not None:
            if self.times <= 0:
                return None
            self.times -= 1
        current = self.value
        if self.step_value is not None:
            self.value = tx.binary("+", self.value, self.step_value)
        return current

    def reconstruct(self, writer: Any) -> None:
        if self.step_value is not None:
            writer.call(itertools.count, [self.value, self.step_value])
        elif self.times is None:
            writer.call(itertools.repeat, [self.value])
        else:
            writer.call(itertools.repeat, [self.value, Constant(self.times)])
