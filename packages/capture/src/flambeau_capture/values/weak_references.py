"""Weak references as values; functions scripted by torch.jit.

In: objects of those types. Out: their values. Invariant: what a weak reference answers is guarded;
a scripted function is the Python function that it was made from.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break, SkipFrame
from flambeau_capture.source import Called, ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.callables import handles
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import wraps_type
from flambeau_capture.values.stand_ins import name_in_errors


class WeakReference(OpaqueValue):
    """weakref.ref."""

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        target = self.real()
        tx.guard(self.source, "CALL", _Refers(target), "refers to the same object")
        if target is None or self.source is None:
            return Constant(None) if target is None else tx.wrap_new(target)
        return tx.wrap(target, Called(self.source, _referent))


def _referent(reference: Any) -> Any:
    return reference()


class NewReference(Value):
    """A weak reference that the program makes under capture."""

    def __init__(self, target: Value) -> None:
        self.target = target

    @property
    def cls(self) -> type:
        return weakref.ReferenceType

    def truth(self, tx: Tracer) -> bool:
        return True

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """An object that the program had before lives on; whether a new one does, Python knows,
        and a frame that goes on after a break would keep it alive."""
        if self.target.place() is None and not isinstance(self.target, ClassValue):
            raise SkipFrame(f"it asks a weak reference to a new {self.target.cls.__name__}")
        return self.target

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(weakref.ref, [self.target])


@handles(weakref.ref)
def _new_reference(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 1 or kwargs or isinstance(args[0], Constant):
        raise Break("FB0005", "weakref.ref with a callback, or of a constant")
    if not args[0].cls.__weakrefoffset__:
        shown = name_in_errors(args[0].cls)
        tx.raise_error(TypeError, f"cannot create weak reference to '{shown}' object")
    return NewReference(args[0])


class _Refers:
    """A guard's question: does a weak reference still refer to an object?"""

    def __init__(self, target: Any) -> None:
        self._target = None if target is None else weakref.ref(target)

    def __call__(self, reference: Any) -> bool:
        expected = None if self._target is None else self._target()
        return reference() is expected and (expected is not None or self._target is None)

    def __eq__(self, other: object) -> bool:  # one guard, however often it is asked
        return isinstance(other, _Refers) and other._target is self._target

    def __hash__(self) -> int:
        return id(self._target)


@wraps_type(weakref.ReferenceType)
def wrap_reference(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", weakref.ReferenceType)
    return WeakReference(obj, source)


@wraps_type(torch.jit.ScriptFunction)
def wrap_scripted(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    original = compat.scripted_from(obj)
    if original is None:
        return OpaqueValue(obj, source)
    return tx.wrap(original, ConstantSource(original, original.__name__))
