"""Iterators that existed before the frame, and objects with `__next__`.

In: an iterator of the program. Out: `LiveIterator`, `ForeignIterator`, `CallIterator`.
Invariant: the iterator itself is advanced when the compiled code has run, as far as the program
has; what was taken from it is guarded, and so is that there was more, or no more.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from functools import partial
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.lookahead import ANY_DICT, ANY_SET, advance, remain, twin, underlying
from flambeau_capture.source import NextItem, Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.iterators.builtin import until_stopped
from flambeau_capture.values.objects.attributes import call_special

AHEAD = 16  # items taken by one frame: each is guarded by looking ahead anew


class ExistingIterator(IteratorValue):
    """An iterator that existed before the frame."""

    cls: type

    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.cls = type(real)
        self.source: Source = source


class LiveIterator(ExistingIterator):
    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(real, source)
        self.taken = 0
        self.ended = False
        self._ahead: Iterator[Any] | None = None

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
        more = f"has {'' if self.ended else 'more than '}{self.taken} items"
        tx.guard(self.source, "CALL", partial(remain, self.taken, self.ended), more)
        tx.heap.changed(self)
        if self.ended:
            return None
        self.taken += 1
        return tx.wrap(item, NextItem(self.source, self.taken - 1))

    def replay(self, writer: Any) -> None:
        writer.do(advance, [self, Constant(self.taken), Constant(self.ended)])


def _changed(tx: Tracer, container: Any, effects: list[Any]) -> bool:
    if container is ANY_DICT or container is ANY_SET:
        kind = DictValue if container is ANY_DICT else SetValue
        return any(isinstance(value, kind) for value in effects)
    known = tx.heap.find(container)
    return any(value is known for value in effects)


class CallIterator(IteratorValue):
    """Python-level iterators: objects with `__next__`."""

    cls: type

    def __init__(self, target: Value) -> None:
        self.target = target
        self.cls = target.cls

    def advance(self, tx: Tracer) -> Value | None:
        return until_stopped(lambda: call_special(tx, self.target, "__next__", []))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return tx.get_attr(self.target, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return self.target.call_method(tx, name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.target)


class ForeignIterator(ExistingIterator):
    """One that capture cannot look ahead of: to advance it is a side effect Python must do."""

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
