"""Iterators over containers and ranges, and over what gives its items by their places.

In: what is iterated. Out: one class per kind of iterator. Invariant: an iterator's position is part
of the interpreted program's state; `reconstruct` builds one at the same position.
"""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from flambeau_capture.values.base import (
    IteratorValue,
    MadeBy,
    Tracer,
    Unreconstructible,
    Value,
    suppressed,
)
from flambeau_capture.values.constant import Constant


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
        return type(iter(_base_of(self.sequence.cls)()))

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        if self.index is None or self.index >= self.sequence.length(tx):
            self.index = None
            return None
        item = self.sequence.get_item(tx, Constant(self.index))
        self.index += 1
        return item

    def reconstruct(self, writer: Any) -> None:
        if self.made_by is not None and self._is_current(self.made_by):
            self.made_by.write(self, writer)
            if self.index != 0:
                writer.do_with_top(_skip, [Constant(self.index)])
        elif self.index is None:
            writer.call(_ended, [Constant(_base_of(self.sequence.cls))])
        elif self.index == 0:
            writer.call(iter, [self.sequence])
        else:
            writer.call(_iterator_at, [self.sequence, Constant(self.index)])

    def _is_current(self, by: MadeBy) -> bool:
        """Whether the call that it stands for would give these items now."""
        if self.kind is not None:
            return True  # it is of constants
        now: Any = by.args[0]
        then: Any = self.sequence
        items = now.keys() if hasattr(now, "keys") else now.parts()
        before = then.parts()
        return len(items) == len(before) and all(a is b for a, b in zip(reversed(items), before))


def _base_of(kind: type) -> Any:
    """The built-in class whose iterator a sequence has."""
    kinds = (list, tuple, str, bytes, collections.deque)
    return next((base for base in kinds if issubclass(kind, base)), list)


def _skip(iterator: Any, count: int | None) -> None:
    """Take items; None: all, and the end with them."""
    for _ in itertools.islice(iterator, count):
        pass


def _ended(kind: Any) -> Any:
    iterator = iter(kind())
    next(iterator, None)
    return iterator


def _iterator_at(sequence: Any, index: int) -> Any:
    iterator = iter(sequence)
    if hasattr(iterator, "__setstate__"):
        iterator.__setstate__(index)
    else:
        _skip(iterator, index)
    return iterator


class DequeIterator(IteratorValue):
    """Over a deque from either end; it notices whatever moves an item, or adds or takes one."""

    def __init__(self, deque: Any, backwards: bool = False) -> None:
        self.deque, self.state = deque, deque.state
        self.backwards = backwards
        self.left = len(deque.raw())

    @property
    def cls(self) -> type:
        return type(_deque_iterator_at(collections.deque(), self.backwards, 0))

    def holds(self) -> Iterable[Value]:
        return [self.deque]

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        if self.left == 0 and self.backwards:  # which looks at this first
            return None
        if self.deque.state != self.state:
            self.left = 0
            tx.raise_error(RuntimeError, "deque mutated during iteration")
        if self.left == 0:
            return None
        self.left -= 1
        item: Value = self.deque.item(self.left if self.backwards else -1 - self.left)
        return item

    def reconstruct(self, writer: Any) -> None:
        if self.deque.state != self.state:
            given = [Constant(self.backwards), Constant(self.left)]
            writer.call(_iterator_of_changed_deque, given)
            return
        taken = len(self.deque.raw()) - self.left
        given = [self.deque, Constant(self.backwards), Constant(taken)]
        writer.call(_deque_iterator_at, given)


def _deque_iterator_at(deque: Any, backwards: bool, index: int) -> Any:
    iterator = reversed(deque) if backwards else iter(deque)
    _skip(iterator, index)
    return iterator


def _iterator_of_changed_deque(backwards: bool, left: int) -> Any:
    deque = collections.deque([None] * left)
    iterator = _deque_iterator_at(deque, backwards, 0)
    deque.append(None)
    deque.clear()
    return iterator


_SIZE_OF_DICT = "dictionary changed size during iteration"

_SIZE_CHANGED: dict[type, str] = {
    **dict.fromkeys((set, frozenset), "Set changed size during iteration"),
    collections.OrderedDict: "OrderedDict mutated during iteration",
}


@dataclass(eq=False, repr=False)
class KeysIterator(IteratorValue):
    """Over a snapshot of items; `now` gives what an item represents when it is its turn."""

    container: Value
    items: list[Value]
    now: Callable[[Any, Value], Value] | None = None
    view: str = ""
    backwards: bool = False
    index: int = 0
    ended: bool = False

    @property
    def cls(self) -> type:
        return type(_iterator_of(_built_in(self.container.cls)(), *self._way()))

    def _way(self) -> tuple[str, bool]:
        return self.view, self.backwards

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
        kept = kept[::-1] if self.backwards else kept
        return len(kept) == len(self.items) and all(a is b for a, b in zip(kept, self.items))

    def reconstruct(self, writer: Any) -> None:
        kind, way = _built_in(self.container.cls), [*map(Constant, self._way())]
        rest = self.items[self.index :]
        if self.ended:
            writer.call(_ended_iterator_of, [Constant(kind), *way])
        elif self._is_current() and (not self.index or hasattr(self.container, "keys")):
            writer.call(_iterator_of, [self.container, *way, Constant(self.index)])
        elif self._is_lost(getattr(self.container, "_tx", None)):
            writer.call(_iterator_of_another_size, [Constant(kind)])
        elif not hasattr(self.container, "keys") and self._is_current():
            writer.call(_iterator_over, [self.container, Constant(self.index), *rest])
        else:
            for item in rest:
                writer.load(item if self.now is None else self.now(None, item))
            writer.build_tuple(len(rest))
            writer.call_top(iter)


def _built_in(kind: type) -> Any:
    kinds = (collections.OrderedDict, dict, set, frozenset)
    return next(one for one in kinds if issubclass(kind, one))


def _iterator_of(container: Any, view: str, backwards: bool, index: int = 0) -> Any:
    """An iterator over what a built-in container has, whatever its class says of iteration."""
    kind = _built_in(type(container))
    if view:
        seen = getattr(kind, view)(container)
        iterator = reversed(seen) if backwards else iter(seen)
    else:
        iterator = (kind.__reversed__ if backwards else kind.__iter__)(container)
    for _ in range(index):
        next(iterator)
    return iterator


def _ended_iterator_of(kind: Any, view: str, backwards: bool) -> Any:
    iterator = _iterator_of(kind(), view, backwards)
    next(iterator, None)
    return iterator


def _iterator_over(items: Any, index: int, *rest: Any) -> Any:
    """An iterator over a set at its place, if what is left is `rest`: its order is its own."""
    kind = _built_in(type(items))
    left = [*itertools.islice(kind.__iter__(items), index, None)]
    if all(map(operator.is_, left, rest)):
        return _iterator_of(items, "", False, index)
    return iter(rest)


def _iterator_of_another_size(kind: Any) -> Any:
    """An iterator whose container has changed its size since."""
    container = kind.fromkeys([1, 2]) if hasattr(kind, "fromkeys") else kind([1, 2])
    iterator = iter(container)
    container.pop() if kind is set else container.popitem()
    return iterator


T = TypeVar("T")


def until_stopped(step: Callable[[], T], *ends: type[BaseException]) -> T | None:
    """A step of an iterator made in C; what ends it, whoever raises it, is the iterator's end."""
    with suppressed(StopIteration, *ends):
        return step()
    return None


class _Indexed:
    def __getitem__(self, index: int) -> NoReturn:
        raise IndexError(index)


class IndexIterator(IteratorValue):
    """The old protocol: `__getitem__` with 0, 1, 2, ... until IndexError."""

    cls: type = type(iter(_Indexed()))  # which has no other name

    def __init__(self, target: Value) -> None:
        self.target = target
        self.index = 0

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        read = partial(self.target.get_item, tx, Constant(self.index))
        item = until_stopped(read, IndexError)
        if item is not None:
            self.index += 1
        return item


class ReversedIterator(IteratorValue):
    """From the last item to the first, each read when it is its turn: a list's, or those that a
    class gives by `__getitem__`."""

    def __init__(self, target: Value, length: int) -> None:
        self.target = target
        self.index = length - 1

    @property
    def cls(self) -> type:
        return type(reversed([])) if issubclass(self.target.cls, list) else reversed

    def holds(self) -> Iterable[Value]:
        return [self.target]

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        if self.index < 0:
            return None
        read = partial(self.target.get_item, tx, Constant(self.index))
        item = until_stopped(read, IndexError)
        self.index = -1 if item is None else self.index - 1
        return item

    def reconstruct(self, writer: Any) -> None:
        if not issubclass(self.target.cls, list):
            raise Unreconstructible(self, "reversed by __len__ and __getitem__")
        writer.call(_reversed_at, [self.target, Constant(self.index)])


def _reversed_at(items: list[Any], index: int) -> Any:
    iterator: Any = list.__reversed__(items)
    iterator.__setstate__(index)
    return iterator
