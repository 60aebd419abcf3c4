"""Enum members as values.

In: a member. Out: its value, the same for each place that it is found in. Invariant: a member is
guarded by identity.
"""

from __future__ import annotations

import enum
import types
from typing import Any

from flambeau_capture.source import ConstantSource, InstanceAttr, Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import evaluate
from flambeau_capture.values.objects.attributes import (
    assume_entry,
    assume_special_methods,
    class_attribute,
    find_in_class,
)
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.objects.reconstruction import instance_dict
from flambeau_capture.values.registry import wraps_if
from flambeau_capture.values.stable_modules import trusted_callable, trusted_class


@wraps_if(lambda obj: isinstance(obj, enum.Enum), 5)
def wrap_enum(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    if not trusted_class(type(obj)):  # a program may set `__class__`
        tx.guard(source, "TYPE_MATCH", type(obj))
    assume_special_methods(tx, type(obj))
    known: Value | None = tx.heap.find(obj)
    if known is None:
        name = instance_dict(obj).get("_name_")  # none yet, of one that is being made
        known = EnumMember(obj, ConstantSource(obj, f"{type(obj).__name__}.{name}"))
        tx.heap.know(obj, known)
    return known


class EnumMember(FrozenValue):
    """A member of an enum; one that is also a string or a number behaves as such."""

    def length(self, tx: Tracer) -> int:
        return int(evaluate(tx, len, self.real))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        found = find_in_class(type(self.real), name)
        if found is not None and isinstance(found[1], types.FunctionType | property):
            if not trusted_callable(found[0]):
                return class_attribute(tx, self, type(self.real), name)
        if found is None and not name.startswith("_"):  # what a program sets on a member
            assert self.source is not None
            assume_entry(tx, type(self.real), name)
            own = instance_dict(self.real)
            if name in own:
                return tx.wrap(own[name], InstanceAttr(self.source, name))
            tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
        return super().get_attr(tx, name)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found = find_in_class(type(self.real), "__call__")
        if found is None or not isinstance(found[1], types.FunctionType):
            return super().call(tx, args, kwargs)
        return tx.call(class_attribute(tx, self, type(self.real), "__call__"), args, kwargs)

    def graph_argument(self) -> Any:
        if isinstance(self.real, str | int | float):
            plain: Any = self.real
            return plain.value
        raise NotConcrete(self.describe())

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.real)
