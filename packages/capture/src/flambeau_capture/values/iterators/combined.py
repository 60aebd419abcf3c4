"""Iterator adaptors: `zip`, `map`, `enumerate`, `filter`, itertools.

In: iterators, a function. Out: one class per kind. Invariant: each takes an item from those below
it when it is asked for one, and not before.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NoReturn, TypeVar

from flambeau_capture.values.base import IteratorValue, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.containers.tuples import TupleValue

T = TypeVar("T")


class ZipIterator(IteratorValue):
    def __init__(self, sources: list[IteratorValue], strict: bool = False) -> None:
        self.sources = sources
        self.strict = strict

    def holds(self) -> Iterable[Value]:
        return self.sources

    @property
    def cls(self) -> type:
        return zip

    def advance(self, tx: Tracer) -> Value | None:
        items: list[Value] = []
        for position, source in enumerate(self.sources):
            item = source.advance(tx)
            if item is None:
                if self.strict:
                    self._check_lengths(tx, position)
                return None
            items.append(item)
        return TupleValue(items) if items else None

    def _check_lengths(self, tx: Tracer, ended: int) -> None:
        """Raise if the argument that has ended is not as long as the others."""
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
    def __init__(self, source: IteratorValue, start: int) -> None:
        self.source_iterator = source
        self.next = start

    def holds(self) -> Iterable[Value]:
        return [self.source_iterator]

    @property
    def cls(self) -> type:
        return enumerate

    def advance(self, tx: Tracer) -> Value | None:
        item = self.source_iterator.advance(tx)
        if item is None:
            return None
        self.next += 1
        return TupleValue([Constant(self.next - 1), item])

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
    def __init__(self, fn: Value, sources: list[IteratorValue]) -> None:
        self.fn = fn
        self.sources = sources

    def holds(self) -> Iterable[Value]:
        return [self.fn, *self.sources]

    @property
    def cls(self) -> type:
        return map

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

    def __init__(self, fn: Value, sentinel: Value) -> None:
        self.fn = fn
        self.sentinel = sentinel
        self.ended = False

    def holds(self) -> Iterable[Value]:
        return [self.fn, self.sentinel]

    @property
    def cls(self) -> type:
        return type(iter(int, 0))

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
    def __init__(self, fn: Value, source: IteratorValue) -> None:
        self.fn = fn
        self.source_iterator = source

    def holds(self) -> Iterable[Value]:
        return [self.fn, self.source_iterator]

    @property
    def cls(self) -> type:
        return filter

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
    def __init__(self, sources: list[Value]) -> None:
        self.sources = sources
        self.current: IteratorValue | None = None

    def holds(self) -> Iterable[Value]:
        return self.sources if self.current is None else [self.current, *self.sources]

    @property
    def cls(self) -> type:
        return itertools.chain

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
