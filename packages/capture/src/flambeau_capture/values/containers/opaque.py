"""Opaque containers: existing dicts and sets too large to guard whole.

In: a container of the program. Out: `LargeDict`, `LargeSet`. Invariant: each key that is asked
about is guarded, and nothing else; what needs all keys (iteration, a change) is a graph break.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Item, Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.hashable_keys import raise_key_error
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.opaque import OpaqueValue

LARGE = 256


class LargeContainer(OpaqueValue):
    contains_guard = ("", "")

    def truth(self, tx: Tracer) -> bool:
        return self.length(tx) > 0

    def length(self, tx: Tracer) -> int:
        tx.guard(self.source, "LENGTH", len(self.real))
        return len(self.real)

    def contains(self, tx: Tracer, item: Value) -> bool:
        key = self.key(item)
        found = key in self.real
        tx.guard(self.source, self.contains_guard[not found], key)
        return found

    def key(self, value: Value) -> Any:
        try:
            found = value.as_python()
            hash(found)
        except (NotConcrete, TypeError):
            self.unknown(f"look-up of {value.describe()}")
        return found

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__contains__":
            return Constant(self.contains(tx, args[0]))
        if name == "__len__":
            return Constant(self.length(tx))
        kind = type(self.real).__name__
        raise Break("FB0009", f"method {name!r} of a {kind} of {len(self.real)} items")


class LargeSet(LargeContainer):
    contains_guard = ("SET_CONTAINS", "SET_NOT_CONTAINS")


class LargeDict(LargeContainer):
    contains_guard = ("DICT_CONTAINS", "DICT_NOT_CONTAINS")

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if not self.contains(tx, key):
            raise_key_error(tx, key)
        plain = self.key(key)
        return tx.wrap(self.real[plain], Item(self._source(), plain, "dict"))

    def _source(self) -> Source:
        assert self.source is not None
        return self.source

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "get":
            if self.contains(tx, args[0]):
                return self.get_item(tx, args[0])
            return args[1] if len(args) > 1 else Constant(None)
        if name == "__getitem__":
            return self.get_item(tx, args[0])
        return super().call_method(tx, name, args, kwargs)
