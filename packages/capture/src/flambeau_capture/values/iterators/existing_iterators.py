"""Iterators that existed before the frame, and objects with `__next__`.

In: an iterator of the program. Out: `LiveIterator`, `ForeignIterator`, `CallIterator`.
Invariant: the iterator itself is advanced when the compiled code has run, as far as the program
has; what was taken from it is guarded, and so is that there was more, or no more.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.lookahead import ANY_DICT, Remaining, advance, twin, underlying
from flambeau_capture.source import NextItem, Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attributes import call_special

AHEAD = 16  # items taken by one frame: each is guarded by looking ahead anew


class LiveIterator(IteratorValue):
    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.source: Source = source
        self.taken = 0
        self.ended = False
        self._ahead: Iterator[Any] | None = None

    @property
    def cls(self) -> type:
        return type(self.real)

    def advance(self, tx: Tracer) -> Value | None:
        if self.ended:
            return None
        if self.taken >= AHEAD:
            raise Break("FB0014", f"item {AHEAD} of an existing {self.cls.__name__}")
        effects = [value for value in tx.heap.effects() if value is not self]
        if effects and any(_changed(tx, one, effects) for one in underlying(self.real)):
            raise Break("FB0014", f"{self.cls.__name__} over what has changed on the way")
        if self._ahead is None:
            self._ahead = twin(self.real)
        try:
            item = next(self._ahead)
        except StopIteration:
            self.ended = True
        tx.guard(self.source, "CALL", Remaining(self.taken, self.ended), self._state())
        tx.heap.changed(self)
        if self.ended:
            return None
        self.taken += 1
        return tx.wrap(item, NextItem(self.source, self.taken - 1))

    def _state(self) -> str:
        return f"has {self.taken} items" if self.ended else f"has more than {self.taken} items"

    def replay(self, writer: Any) -> None:
        writer.call(advance, [self, Constant(self.taken), Constant(self.ended)])
        writer.pop_top()


def _changed(tx: Tracer, container: Any, effects: list[Any]) -> bool:
    if container is ANY_DICT:
        return any(isinstance(value, DictValue) for value in effects)
    known = tx.heap.find(container)
    return any(value is known for value in effects)


class CallIterator(IteratorValue):
    """Python-level iterators: objects with `__next__`."""

    def __init__(self, target: Value) -> None:
        self.target = target

    @property
    def cls(self) -> type:
        return self.target.cls

    def advance(self, tx: Tracer) -> Value | None:
        try:
            return call_special(tx, self.target, "__next__", [])
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
        found = getattr(self.cls, name, None)
        if isinstance(found, types.MethodDescriptorType | types.WrapperDescriptorType):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("__iter__", "__next__"):
            return super().call_method(tx, name, args, kwargs)
        raise Break("FB0014", f"method {name!r} of an existing {self.cls.__name__}")
