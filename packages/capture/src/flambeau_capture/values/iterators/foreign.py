"""Iterators of the program's own classes.

In: an object with `__next__`, or one that existed before the frame. Out: a value that advances it.
Invariant: what existed before the frame is advanced by Python, never under capture.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, UserError, Value
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attributes import call_special


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

    def reconstruct(self, writer: Any) -> None:
        writer.load_source(self.source)
