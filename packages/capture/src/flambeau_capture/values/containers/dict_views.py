"""Dictionary views: `keys()`, `values()`, `items()`.

In: a `DictValue`. Out: `DictView`. Invariant: a view holds nothing; it asks the dict each time.
"""

from __future__ import annotations

import collections
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sequences import tx_equal
from flambeau_capture.values.containers.tuples import TupleValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.iterators.builtin import KeysIterator, SequenceIterator


class DictView(Value):
    """dict.keys(), values() and items(): they follow the dict."""

    built_once = True

    def __init__(self, target: DictValue, kind: str) -> None:
        self.target = target
        self.kind = kind

    @property
    def cls(self) -> type:
        ordered = self.target.cls is collections.OrderedDict
        return type(getattr(collections.OrderedDict() if ordered else {}, self.kind)())

    def parts(self) -> list[Value]:
        if self.kind == "keys":
            return self.target.keys()
        if self.kind == "values":
            return self.target.values()
        return [TupleValue([key, value]) for key, value in self.target.entries()]

    def as_python(self) -> Any:
        return getattr(self.target.as_python(), self.kind)()

    def truth(self, tx: Tracer) -> bool:
        return self.target.truth(tx)

    def length(self, tx: Tracer) -> int:
        return self.target.length(tx)

    def iterate(self, tx: Tracer) -> IteratorValue:
        if self.kind == "keys":
            return KeysIterator(self.target, self.target.keys())
        return KeysIterator(self.target, self.target.keys(), self._now, self.kind)

    def _now(self, tx: Any, key: Value) -> Value:
        """The value or the item of a key when an iterator comes to it."""
        value = self.target.lookup(tx or self.target._tx, key)
        if value is None:
            raise Break("FB0014", "iteration over a dict whose keys have changed on the way")
        return value if self.kind == "values" else TupleValue([key, value])

    def contains(self, tx: Tracer, item: Value) -> bool:
        if self.kind == "keys":
            return self.target.contains(tx, item)
        return any(tx_equal(tx, part, item) for part in self.parts())

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__iter__":
            return self.iterate(tx)
        if name == "__len__":
            return Constant(self.length(tx))
        if name == "__contains__":
            return Constant(self.contains(tx, args[0]))
        if name == "__reversed__":
            return SequenceIterator(TupleValue(self.parts()[::-1]))
        if self.kind == "keys":
            from flambeau_capture.values.containers.sets import SetValue  # sets are made of keys

            if name in _ANY_ITERABLE and not isinstance(args[0], SetValue | DictView):
                args = [SetValue(unpack(tx, args[0]), tx=tx)]
            return SetValue(self.parts(), tx=tx).call_method(tx, name, args, kwargs)
        self.unknown(f"method {name!r}")

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.target)
        writer.call_method_top(self.kind)


_ANY_ITERABLE = frozenset({"__and__", "__or__", "__sub__", "__xor__"})
