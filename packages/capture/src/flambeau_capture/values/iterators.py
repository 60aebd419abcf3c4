"""Iterators: over sequences, ranges, several at once, generators, and those the program made.

In: values to iterate. Out: one class per kind of iterator. Invariant: an iterator's position is
part of the interpreted program's state; `reconstruct` builds an iterator at the same position.
"""

from __future__ import annotations

import collections
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    Tracer,
    UserError,
    Value,
    unpack,
)
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

    @property
    def cls(self) -> type:
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
            writer.call(iter, [Constant(())])
            return
        if self.index == 0:
            writer.call(iter, [self.sequence])
            return
        writer.call(_iterator_at, [self.sequence, Constant(self.index)])


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
    """Over a snapshot of items; the container is asked whether it changed size. `now`: what an item
    of the snapshot, which is a key, stands for when it is its turn."""

    def __init__(
        self,
        container: Value,
        items: list[Value],
        now: Callable[[Any, Value], Value] | None = None,
    ) -> None:
        self.container = container
        self.items = items
        self.now = now
        self.index = 0
        self.ended = False

    @property
    def cls(self) -> type:
        return type(iter({}))

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        if self.ended:
            return None
        after_the_last = self.index >= len(self.items)
        linked = self.container.cls is collections.OrderedDict and after_the_last
        if self.container.length(tx) != len(self.items) and not linked:
            tx.raise_error(RuntimeError, _SIZE_CHANGED.get(self.container.cls, _SIZE_OF_DICT))
        if after_the_last:
            self.ended = True
            return None
        item = self.items[self.index]
        self.index += 1
        return item if self.now is None else self.now(tx, item)

    def reconstruct(self, writer: Any) -> None:
        writer.begin_tuple()
        for item in self.items[self.index :]:
            writer.load(item if self.now is None else self.now(None, item))
        writer.end_tuple(len(self.items) - self.index)
        writer.call_top(iter)


class ZipIterator(IteratorValue):
    def __init__(self, sources: list[IteratorValue], strict: bool = False) -> None:
        self.sources = sources
        self.strict = strict

    @property
    def cls(self) -> type:
        return zip

    def advance(self, tx: Tracer) -> Value | None:
        from flambeau_capture.values.tuples import TupleValue

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

    @property
    def cls(self) -> type:
        return enumerate

    def advance(self, tx: Tracer) -> Value | None:
        from flambeau_capture.values.tuples import TupleValue

        item = self.source_iterator.advance(tx)
        if item is None:
            return None
        self.next += 1
        return TupleValue([Constant(self.next - 1), item])

    def reconstruct(self, writer: Any) -> None:
        writer.call(enumerate, [self.source_iterator, Constant(self.next)])


class MapIterator(IteratorValue):
    def __init__(self, fn: Value, sources: list[IteratorValue]) -> None:
        self.fn = fn
        self.sources = sources

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
        return tx.call(self.fn, items, {})

    def reconstruct(self, writer: Any) -> None:
        writer.call(map, [self.fn, *self.sources])


class FilterIterator(IteratorValue):
    def __init__(self, fn: Value, source: IteratorValue) -> None:
        self.fn = fn
        self.source_iterator = source

    @property
    def cls(self) -> type:
        return filter

    def advance(self, tx: Tracer) -> Value | None:
        while (item := self.source_iterator.advance(tx)) is not None:
            keep = item
            if not is_none(self.fn):
                keep = tx.call(self.fn, [item], {})
            if keep.truth(tx):
                return item
        return None

    def reconstruct(self, writer: Any) -> None:
        writer.call(filter, [self.fn, self.source_iterator])


class ChainIterator(IteratorValue):
    def __init__(self, sources: list[Value]) -> None:
        self.sources = sources
        self.current: IteratorValue | None = None

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


class CallIterator(IteratorValue):
    """Python-level iterators: objects with `__next__`."""

    def __init__(self, target: Value) -> None:
        self.target = target

    @property
    def cls(self) -> type:
        return self.target.cls

    def advance(self, tx: Tracer) -> Value | None:
        try:
            return tx.call(tx.get_attr(self.target, "__next__"), [], {})
        except UserError as error:
            if issubclass(error.value.cls, StopIteration):
                return None
            raise

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return tx.get_attr(self.target, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.target.call_method(tx, name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.target)


class ForeignIterator(IteratorValue):
    """An iterator that existed before the frame: to advance it is a side effect Python must do."""

    def __init__(self, real: Any, source: Any) -> None:
        self.real = real
        self.source = source

    @property
    def cls(self) -> type:
        return type(self.real)

    def advance(self, tx: Tracer) -> Value | None:
        raise Break("FB0014", f"next item of an existing {self.cls.__name__}")

    def get_attr(self, tx: Tracer, name: str) -> Value:
        from flambeau_capture.values.methods import BoundMethod

        found = getattr(self.cls, name, None)
        if isinstance(found, types.MethodDescriptorType | types.WrapperDescriptorType):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("__iter__", "__next__"):
            return super().call_method(tx, name, args, kwargs)
        raise Break("FB0014", f"method {name!r} of an existing {self.cls.__name__}")

    def reconstruct(self, writer: Any) -> None:
        writer.load_source(self.source)


def _given(args: Args) -> list[Value]:
    """What `throw(kind, value)` makes the exception of."""
    if len(args) < 2 or is_none(args[1]):
        return []
    return args[1].parts() if args[1].cls is tuple else [args[1]]  # type: ignore[attr-defined,no-any-return]


class GeneratorValue(IteratorValue):
    """A generator whose frame is interpreted step by step."""

    def __init__(self, frame: Any, step: int) -> None:
        self.frame = frame
        self.step = step
        self.started = False
        self.finished = False
        self.returned: Value = Constant(None)

    @property
    def cls(self) -> type:
        return types.GeneratorType

    def describe(self) -> str:
        return f"generator {self.frame.code.co_name}"

    def waits(self) -> bool:
        """Whether there is code left that closing it would run."""
        return self.started and not self.finished and not self.frame.finished

    def advance(self, tx: Tracer) -> Value | None:
        return self.send(tx, Constant(None))

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        tx.heap.changed()
        if self.finished:
            return None
        if not self.started and not is_none(sent):
            tx.raise_error(TypeError, "can't send non-None value to a just-started generator")
        item: Value | None = self.frame.resume(tx, sent, self.started)
        self.started = True
        if item is None:
            self.finished = True
            self.returned = self.frame.returned
        return item

    def throw(self, tx: Tracer, error: Value) -> Value | None:
        tx.heap.changed()
        if self.finished or not self.started:
            self.finished = True
            raise UserError(error)
        try:
            item: Value | None = self.frame.throw(tx, error)
        except UserError:
            self.finished = True
            raise
        if item is None:
            self.finished = True
            self.returned = self.frame.returned
        return item

    def get_attr(self, tx: Tracer, name: str) -> Value:
        from flambeau_capture.values.methods import BoundMethod

        if name in ("__next__", "__iter__", "send", "throw", "close"):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("send", "__next__", "throw"):
            if name == "throw":
                error = args[0]
                if len(args) > 2 and args[2].cls not in (type(None), types.TracebackType):
                    tx.raise_error(TypeError, "throw() third argument must be a traceback object")
                given = args[1] if len(args) > 1 else error
                if issubclass(error.cls, type) and issubclass(given.cls, BaseException):
                    error = given  # the type, the exception, its traceback
                if issubclass(error.cls, type):
                    error = tx.call(error, _given(args), {})
                if not issubclass(error.cls, BaseException):
                    tx.raise_error(
                        TypeError,
                        "exceptions must be classes or instances deriving from BaseException, "
                        f"not {error.cls.__name__}",
                    )
                item = self.throw(tx, error)
            else:
                item = self.send(tx, args[0] if args else Constant(None))
            if item is None:
                returned = self.returned
                nothing = is_none(returned)
                from flambeau_capture.values.exceptions import new_exception

                raise UserError(new_exception(StopIteration, [] if nothing else [returned]))
            return item
        if name == "close":
            self._close(tx)
            return Constant(None)
        if name == "__iter__":
            return self
        self.unknown(f"method {name!r}")

    def _close(self, tx: Tracer) -> None:
        from flambeau_capture.values.exceptions import new_exception

        if self.finished:
            return
        try:
            self.throw(tx, new_exception(GeneratorExit, []))
        except UserError as error:
            if not issubclass(error.value.cls, GeneratorExit | StopIteration):
                raise
        else:
            if not self.finished:
                tx.raise_error(RuntimeError, "generator ignored GeneratorExit")
        self.finished = True
        self.frame.tx.close_generators(self.frame)  # what it iterated over

    def reconstruct(self, writer: Any) -> None:
        if self.finished or self.frame.finished:
            writer.call(_exhausted, [])
        else:
            writer.load_generator(self, self.frame, self.started)


def iter_nothing() -> Iterator[Any]:
    yield from ()


def _exhausted() -> Any:
    """A generator that has nothing more to give."""
    made = iter_nothing()
    next(made, None)
    return made


def rest(tx: Tracer, iterator: IteratorValue) -> list[Value]:
    """What is left of an iterator."""
    return unpack(tx, iterator)


class IndexIterator(IteratorValue):
    """The old protocol: `__getitem__` with 0, 1, 2, ... until IndexError."""

    def __init__(self, target: Value) -> None:
        self.target = target
        self.index = 0

    @property
    def cls(self) -> type:
        return type(iter([]))

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


def iterated_by(value: Value) -> list[Value]:
    """The iterators that an iterator takes its items from, in a new list."""
    if isinstance(value, ZipIterator | MapIterator):
        return list(value.sources)
    if isinstance(value, EnumerateIterator | FilterIterator):
        return [value.source_iterator]
    return []
