"""Combined iterators: of the items of others, or of what a function answers.

In: iterators, a function, a number. Out: one class per kind of iterator. Invariant: an
iterator's position is part of the interpreted program's state; `reconstruct` builds one at the same
position, mostly by calling its class with what it is made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any, NoReturn

from flambeau_capture.values.base import IteratorValue, Tracer, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.iterators.builtin import until_stopped


class MadeAgain(IteratorValue):
    """An iterator that calling its class with its parts makes again where it is."""

    named: Mapping[str, Value] = {}

    def __init__(self, *parts: Value) -> None:
        self.made_of = [*parts]

    def holds(self) -> Iterable[Value]:
        return self.made_of

    def reconstruct(self, writer: Any) -> None:
        asked = tuple(
            place
            for place, part in enumerate(self.made_of)
            if isinstance(part, IteratorValue)
            and isinstance(getattr(part.cls, "__iter__", None), FunctionType)
        )
        if asked:  # its `__iter__` has been called already
            writer.call(_around, [Constant(self.cls), Constant(asked), *self.made_of], self.named)
        else:
            writer.call(self.cls, self.made_of, self.named)


@dataclass(frozen=True)
class _Taken:
    """Gives an iterator, of which no `__iter__` is called."""

    iterator: Any

    def __iter__(self) -> Any:
        return self.iterator


def _around(kind: Callable[..., Any], asked: Sequence[int], *parts: Any, **named: Any) -> Any:
    given = (_Taken(part) if place in asked else part for place, part in enumerate(parts))
    return kind(*given, **named)


def _next_of_each(tx: Tracer, sources: Iterable[Any]) -> list[Value] | int:
    """The next items of iterators; which of them ended, if one did."""
    items: list[Value] = []
    for source in sources:
        item = source.advance(tx)
        if item is None:
            return len(items)
        items.append(item)
    return items


class ZipIterator(MadeAgain):
    cls: type = zip

    def __init__(self, sources: list[IteratorValue], strict: bool = False) -> None:
        super().__init__(*sources)
        self.strict = strict
        self.named = {"strict": Constant(True)} if strict else {}

    def advance(self, tx: Tracer) -> Value | None:
        items = _next_of_each(tx, self.made_of)
        if isinstance(items, list):
            return tx.new_tuple(items) if items else None
        if self.strict:
            self._check_lengths(tx, items)
        return None

    def _check_lengths(self, tx: Tracer, ended: int) -> None:
        if ended:
            self._refuse(tx, ended, "shorter")
        longer: Any
        for place, longer in enumerate(self.made_of[1:], start=1):
            if longer.advance(tx) is not None:
                self._refuse(tx, place, "longer")

    def _refuse(self, tx: Tracer, place: int, how: str) -> NoReturn:
        others = "argument 1" if place == 1 else f"arguments 1-{place}"
        tx.raise_error(ValueError, f"zip() argument {place + 1} is {how} than {others}")


class EnumerateIterator(MadeAgain):
    cls: type = enumerate

    def __init__(self, source: IteratorValue, start: int) -> None:
        super().__init__(source, Constant(start))
        self._source = source

    def advance(self, tx: Tracer) -> Value | None:
        item = self._source.advance(tx)
        if item is None:
            return None
        number = self.made_of[1]
        self.made_of[1] = Constant(number.as_python() + 1)
        return tx.new_tuple([number, item])


class MapIterator(MadeAgain):
    cls: type = map

    def __init__(self, fn: Value, sources: list[IteratorValue]) -> None:
        super().__init__(fn, *sources)

    def advance(self, tx: Tracer) -> Value | None:
        fn, *sources = self.made_of
        items = _next_of_each(tx, sources)
        return until_stopped(partial(tx.call, fn, items, {})) if isinstance(items, list) else None


class UntilIterator(MadeAgain):
    """`iter(fn, sentinel)`: what a function answers, until it answers the sentinel."""

    cls: type = type(iter(int, 0))

    def __init__(self, fn: Value, sentinel: Value) -> None:
        super().__init__(fn, sentinel)
        self.ended = False

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        fn, sentinel = self.made_of
        item = None if self.ended else until_stopped(partial(tx.call, fn, [], {}))
        if item is None or item is sentinel or tx.binary("==", sentinel, item).truth(tx):
            self.ended = True
            return None
        return item

    def reconstruct(self, writer: Any) -> None:
        writer.call(_calls, [*self.made_of, Constant(self.ended)])


def _calls(fn: Any, sentinel: Any, ended: bool) -> Any:
    iterator = iter(int, 0) if ended else iter(fn, sentinel)
    if ended:
        next(iterator, None)
    return iterator


class FilterIterator(MadeAgain):
    cls: type = filter

    def __init__(self, fn: Value, source: IteratorValue) -> None:
        super().__init__(fn, source)
        self._source = source

    def advance(self, tx: Tracer) -> Value | None:
        for item in self._source.drain(tx):
            kept = until_stopped(partial(self._keep, tx, item))
            if kept is not False:
                return item if kept else None
        return None

    def _keep(self, tx: Tracer, item: Value) -> bool:
        fn = self.made_of[0]
        return (item if is_none(fn) else tx.call(fn, [item], {})).truth(tx)


class ChainIterator(MadeAgain):
    """Its first part is the iterator that is read, once one is."""

    cls: type = itertools.chain

    def __init__(self, sources: list[Value]) -> None:
        super().__init__(*sources)
        self._reading = False

    def advance(self, tx: Tracer) -> Value | None:
        while self.made_of:
            tx.heap.changed()
            first: Any = self.made_of[0]
            if not self._reading:
                del self.made_of[0]
                first = first.iterate(tx)
                self.made_of.insert(0, first)
                self._reading = True
            item: Value | None = first.advance(tx)
            if item is not None:
                return item
            del self.made_of[0]
            self._reading = False
        tx.heap.changed()
        return None


class CountIterator(MadeAgain):
    """itertools.count and itertools.repeat: `step` None repeats."""

    cls: type

    def __init__(self, value: Value, step: Value | None, times: int | None = None) -> None:
        more = [Constant(times)] if step is None and times is not None else [step] if step else []
        super().__init__(value, *more)
        self.cls = itertools.repeat if step is None else itertools.count

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        value, *more = self.made_of
        if self.cls is itertools.count:
            self.made_of[0] = tx.binary("+", value, more[0])
        elif more:
            times = more[0].as_python()
            if times <= 0:
                return None
            self.made_of[1] = Constant(times - 1)
        return value
