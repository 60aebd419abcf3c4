"""Instance dictionaries: `obj.__dict__`.

In: an instance's value. Out: `InstanceDict`. Invariant: it is a view: what is written to it is an
attribute of the instance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flambeau_capture.breaks import Break
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue, pairs_of
from flambeau_capture.values.containers.hashable_keys import raise_key_error
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attributes import assume_entry

if TYPE_CHECKING:
    from flambeau_capture.values.objects.instances import ObjectValue


class InstanceDict(Value):
    """`obj.__dict__`: a view of the instance's attributes."""

    def __init__(self, owner: ObjectValue) -> None:
        self.owner = owner

    @property
    def cls(self) -> type:
        return dict

    def truth(self, tx: Tracer) -> bool:
        return bool(list(self.owner.own_entries(tx)))

    def length(self, tx: Tracer) -> int:
        return len(list(self.owner.own_entries(tx)))

    def contains(self, tx: Tracer, item: Value) -> bool:
        name = item.as_python()
        found = self.owner.instance_get(tx, name) is not None
        if found and self.owner.source is not None and name not in self.owner.written:
            tx.guard(self.owner.source, "HASATTR", name)
        return found

    def get_item(self, tx: Tracer, key: Value) -> Value:
        found = self.owner.instance_get(tx, key.as_python())
        if found is None:
            raise_key_error(tx, key)
            raise AssertionError
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        self._write(tx, key, value)

    def _write(self, tx: Tracer, key: Value, value: Value | None) -> None:
        """Write past the class. What is replayed depends on what it has under the name."""
        name = key.as_python()
        if not isinstance(name, str):
            raise Break("FB0019", f"__dict__[{name!r}] is set")
        assume_entry(tx, self.owner.cls, name)
        self.owner.write(tx, name, value)

    def del_item(self, tx: Tracer, key: Value) -> None:
        self.get_item(tx, key)
        self._write(tx, key, None)

    def entries(self, tx: Tracer) -> Iterator[tuple[Value, Value]]:
        for name, value in self.owner.own_entries(tx):
            yield Constant(name), value

    def iterate(self, tx: Tracer) -> IteratorValue:
        return DictValue(self.entries(tx)).iterate(tx)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "get":
            found = self.owner.instance_get(tx, args[0].as_python())
            if found is not None:
                return found
            return args[1] if len(args) > 1 else Constant(None)
        if name == "__contains__":
            return Constant(self.contains(tx, args[0]))
        if name == "__getitem__":
            return self.get_item(tx, args[0])
        if name == "__setitem__":
            self.set_item(tx, args[0], args[1])
            return Constant(None)
        if name == "update":
            pairs = [pair for given in args for pair in pairs_of(tx, given)]
            for key, value in [*pairs, *((Constant(k), v) for k, v in kwargs.items())]:
                self.set_item(tx, key, value)
            return Constant(None)
        if name == "setdefault":
            found = self.owner.instance_get(tx, args[0].as_python())
            if found is None:
                found = args[1] if len(args) > 1 else Constant(None)
                self.set_item(tx, args[0], found)
            return found
        if name == "pop":
            found = self.owner.instance_get(tx, args[0].as_python())
            if found is not None:
                self._write(tx, args[0], None)
                return found
            if len(args) > 1:
                return args[1]
        if name in ("keys", "values", "items", "copy", "__iter__", "__len__"):
            return DictValue(self.entries(tx), tx=tx).call_method(tx, name, args, kwargs)
        self.unknown(f"method {name!r} of __dict__")

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.owner)
        writer.load_attr("__dict__")
