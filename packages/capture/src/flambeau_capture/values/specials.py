"""What Python does with an instance by the special methods of its class.

In: an instance's class and its built-in part. Out: `SpecialMethods`, a part of `ObjectValue`:
truth, length, subscripts, containment, iteration, calls. Invariant: a method that the class defines
in Python comes before what the built-in part does.
"""

from __future__ import annotations

import operator

from flambeau_capture.values.answers import ask
from flambeau_capture.values.attributes import SLOT_TYPES, class_attribute, find_in_class
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, UserError, Value
from flambeau_capture.values.constant import constant_of, evaluate


class SpecialMethods(Value):
    """An instance of `python_class`; `payload` is its built-in part."""

    python_class: type
    payload: Value | None

    def special(self, name: str) -> bool:
        """Whether the class defines a special method in Python."""
        found = find_in_class(self.python_class, name)
        return found is not None and not isinstance(found[1], SLOT_TYPES) and found[1] is not None

    def _special_or_payload(self, tx: Tracer, name: str, args: list[Value]) -> Value | None:
        if self.special(name):
            return self._call_class(tx, name, args)
        if self.payload is not None:
            return self.payload.call_method(tx, name, args, {})
        return None

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            if self.special(name):
                return ask(tx, self, name).truth(tx)
        return self.payload.truth(tx) if self.payload is not None else True

    def length(self, tx: Tracer) -> int:
        if self.special("__len__"):
            return int(constant_of(ask(tx, self, "__len__")))
        if self.payload is None:
            tx.raise_error(TypeError, f"object of type '{self.python_class.__name__}' has no len()")
        return self.payload.length(tx)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if self.payload is not None and not self.special("__getitem__"):
            if self.special("__missing__") and not self.payload.contains(tx, key):
                return self._call_class(tx, "__missing__", [key])
            return self.payload.get_item(tx, key)
        found = self._special_or_payload(tx, "__getitem__", [key])
        if found is None:
            tx.raise_error(TypeError, f"'{self.python_class.__name__}' object is not subscriptable")
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        if self._special_or_payload(tx, "__setitem__", [key, value]) is None:
            self.unknown("assignment to a subscript")

    def del_item(self, tx: Tracer, key: Value) -> None:
        if self._special_or_payload(tx, "__delitem__", [key]) is None:
            self.unknown("deletion of a subscript")

    def contains(self, tx: Tracer, item: Value) -> bool:
        if self.payload is not None and not self.special("__contains__"):
            return self.payload.contains(tx, item)
        if self.special("__contains__"):
            return self._call_class(tx, "__contains__", [item]).truth(tx)
        from flambeau_capture.values.sequences import tx_equal

        try:
            parts = self.iterate(tx)
        except UserError as error:
            if not issubclass(error.value.cls, TypeError):
                raise
            stand_in = type(self.python_class.__name__, (), {})()
            evaluate(tx, operator.contains, stand_in, None)  # raises, in Python's own words
            raise
        return any(tx_equal(tx, part, item) for part in parts.drain(tx))

    def iterate(self, tx: Tracer) -> IteratorValue:
        from flambeau_capture.values.foreign_iterators import CallIterator
        from flambeau_capture.values.iterators import IndexIterator

        if self.special("__iter__"):
            made = self._call_class(tx, "__iter__", [])
            if isinstance(made, IteratorValue):
                return made
            if find_in_class(made.cls, "__next__") is None:
                shown = made.cls.__name__
                tx.raise_error(TypeError, f"iter() returned non-iterator of type '{shown}'")
            return CallIterator(made)
        if self.special("__getitem__") and self.payload is None:
            return IndexIterator(self)
        if find_in_class(self.python_class, "__iter__") is None:
            tx.raise_error(TypeError, f"'{self.python_class.__name__}' object is not iterable")
        if self.payload is not None:
            return self.payload.iterate(tx)
        return super().iterate(tx)

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs]:
        if find_in_class(self.python_class, "__call__") is None:
            tx.raise_error(TypeError, f"'{self.python_class.__name__}' object is not callable")
        return class_attribute(tx, self, self.python_class, "__call__"), args, kwargs

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        fn, args, kwargs = self.forwards(tx, args, kwargs)
        return tx.call(fn, args, kwargs)

    def _call_class(self, tx: Tracer, name: str, args: list[Value]) -> Value:
        return tx.call(class_attribute(tx, self, self.python_class, name), args, {})
