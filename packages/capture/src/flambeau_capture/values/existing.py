"""Wrapping of objects that existed before the frame.

In: an object and its source. Out: the value that already stands for it; a guard that it is there.
Invariant: an object has one value, however many places lead to it.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.source import (
    Attr,
    ClosureCell,
    ClosureSource,
    ConstantSource,
    Global,
    GlobalOf,
    InstanceAttr,
    Item,
    ModuleEntry,
    Source,
)
from flambeau_capture.values.base import Tracer, Value


def already_tracked(tx: Tracer, obj: Any, source: Source) -> Value | None:
    """The value of an object that was met by another name; that it still is the same is guarded."""
    known: Value | None = tx.heap.find(obj)
    if known is not None and known.source is not None:
        tx.guard_alias(source, known.source)
    return known


def assume_there(tx: Tracer, source: Source) -> None:
    """A value that is only passed along is not looked at, but it has to be where it was: reading it
    would raise otherwise, before what the program does first and past its handlers."""
    in_globals = isinstance(source, Item) and isinstance(source.base, ConstantSource)
    if in_globals or isinstance(source, _MAY_END):
        tx.guard(source, "EXISTS")


_MAY_END = (Attr, ClosureCell, ClosureSource, Global, GlobalOf, InstanceAttr, ModuleEntry)
