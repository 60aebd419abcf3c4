"""Special-method protocol of instances.

In: an instance's class and its built-in part. Out: `SpecialMethods`, a part of `ObjectValue`:
truth, length, subscripts, containment, iteration, calls. Invariant: a method that the class defines
in Python comes before what the built-in part does.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any

from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, constant_of, refuse
from flambeau_capture.values.containers.sequences import index_of, tx_equal
from flambeau_capture.values.iterators.builtin import IndexIterator
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import (
    call_special,
    class_attribute,
    defines,
    find_in_class,
)
from flambeau_capture.values.stand_ins import name_in_errors


class SpecialMethods(Value):
    """An object of a class of the program, a class among them; `payload` is its built-in part."""

    payload: Value | None = None

    def special(self, tx: Tracer, name: str) -> bool:
        """Whether the class defines a special method in Python, None included."""
        return defines(tx, self.cls, name)

    def _special_or_payload(self, tx: Tracer, name: str, args: list[Value]) -> Value | None:
        if self.special(tx, name):
            return self._call_class(tx, name, args)
        if self.payload is not None and not self._lacks(name):
            return self.payload.call_method(tx, name, args, {})
        return None

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            if self.special(tx, name):
                return ask(tx, self, name).truth(tx)
            if find_in_class(self.cls, name) is not None:
                break
        return self.payload.truth(tx) if self.payload is not None else True

    def length(self, tx: Tracer) -> int:
        if self.special(tx, "__len__"):
            return int(constant_of(ask(tx, self, "__len__")))
        if self.payload is None or self._lacks("__len__"):
            refuse(tx, len, self)
            raise AssertionError(self.describe())
        return self.payload.length(tx)

    def count(self, tx: Tracer) -> Value:
        own = self.payload is None or self.special(tx, "__len__") or self._lacks("__len__")
        return super().count(tx) if own or self.payload is None else self.payload.count(tx)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        built_in = not self.special(tx, "__getitem__") and not self._lacks("__getitem__")
        if self.payload is not None and built_in:
            asked = issubclass(self.cls, dict) and self.special(tx, "__missing__")
            if asked and not self.payload.contains(tx, key):
                return self._call_class(tx, "__missing__", [key])
            return self.payload.get_item(tx, self._subscript(tx, operator.getitem, key))
        found = self._special_or_payload(tx, "__getitem__", [key])
        return refuse(tx, operator.getitem, self, key) if found is None else found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        place = self._subscript(tx, operator.setitem, key, None)
        if self._special_or_payload(tx, "__setitem__", [place, value]) is None:
            refuse(tx, operator.setitem, self, key, value)

    def del_item(self, tx: Tracer, key: Value) -> None:
        place = self._subscript(tx, operator.delitem, key)
        if self._special_or_payload(tx, "__delitem__", [place]) is None:
            refuse(tx, operator.delitem, self, key)

    def _subscript(self, tx: Tracer, ask: Callable[..., Any], key: Value, *given: Any) -> Value:
        """A subscript. A deque's class that has lost a method of its own says other words of a
        wrong one than deques do, as one that never had any does not: the class says."""
        name = ask.__name__.join(("__", "__"))
        if self.payload is None or self.payload.cls is not deque or self.special(tx, name):
            return key
        return Constant(index_of(tx, key, lambda key: ask(deque.__new__(self.cls), key, *given)))

    def contains(self, tx: Tracer, item: Value) -> bool:
        known = find_in_class(self.cls, "__contains__") is not None
        if self.payload is not None and known and not self.special(tx, "__contains__"):
            return self.payload.contains(tx, item)
        if self._is_none("__contains__"):
            refuse(tx, operator.contains, self, item, __contains__=None)
        if self.special(tx, "__contains__"):
            return self._call_class(tx, "__contains__", [item]).truth(tx)
        try:
            parts = self.iterate(tx)
        except UserError as error:
            if not issubclass(error.value.cls, TypeError):
                raise
            refuse(tx, operator.contains, self, item)
            raise
        return any(tx_equal(tx, part, item) for part in parts.drain(tx))

    def iterate(self, tx: Tracer) -> IteratorValue:
        if self._is_none("__iter__"):
            refuse(tx, iter, self, __iter__=None)
        if self.special(tx, "__iter__"):
            made = self._call_class(tx, "__iter__", [])
            if isinstance(made, IteratorValue):
                return made
            if find_in_class(made.cls, "__next__") is None:
                shown = name_in_errors(made.cls)
                tx.raise_error(TypeError, f"iter() returned non-iterator of type '{shown}'")
            return CallIterator(made)
        if find_in_class(self.cls, "__iter__") is None:
            if find_in_class(self.cls, "__getitem__") is None:
                refuse(tx, iter, self)
            return IndexIterator(self)
        if self.payload is not None:
            return self.payload.iterate(tx)
        return super().iterate(tx)

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs] | None:
        if find_in_class(self.cls, "__call__") is None:
            refuse(tx, operator.call, self)
        return class_attribute(tx, self, self.cls, "__call__"), args, kwargs

    def _call_class(self, tx: Tracer, name: str, args: list[Value]) -> Value:
        return call_special(tx, self, name, args)

    def _lacks(self, name: str) -> bool:
        """Whether no class has it: what is refused names the object's class, not its base."""
        return find_in_class(self.cls, name) is None

    def _is_none(self, name: str) -> bool:
        found = find_in_class(self.cls, name)
        return found is not None and found[1] is None
