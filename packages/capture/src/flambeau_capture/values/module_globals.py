"""The global variables that code sees, as names and as the dict that `globals()` gives.

In: the dict of a module. Out: `GlobalsScope`, `GlobalsDict`. Invariant: what is read is guarded,
what is written waits for the end of the graph.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Global, Held, Item, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.methods import BoundMethod


class GlobalsScope:
    """The global variables that code sees: reads are guarded, writes kept for replay."""

    def __init__(self, namespace: dict[str, Any], own: bool = False) -> None:
        self.namespace = namespace
        self.own = own  # whether they are the globals of the frame under capture
        self.written: dict[str, Value | None] = {}
        self.source = Held(namespace, f"globals of {namespace.get('__name__')}")

    def source_of(self, name: str) -> Source:
        return Global(name) if self.own else Item(self.source, name, "dict")

    def load(self, tx: Tracer, name: str) -> Value | None:
        if name in self.written:
            return self.written[name]
        if name not in self.namespace:
            return None
        return tx.wrap(self.namespace[name], self.source_of(name))

    def store(self, tx: Tracer, name: str, value: Value | None) -> None:
        self.written[name] = value
        tx.heap.log(self)

    def replay(self, writer: Any) -> None:
        for name, value in self.written.items():
            if value is None:
                writer.delete_global(self, name)
            else:
                writer.load(value)
                writer.store_global(self, name)


class GlobalsDict(Value):
    """`globals()`: names of a module as items."""

    def __init__(self, scope: GlobalsScope) -> None:
        self.scope = scope

    @property
    def cls(self) -> type:
        return dict

    def describe(self) -> str:
        return "globals()"

    def truth(self, tx: Tracer) -> bool:
        return True

    def contains(self, tx: Tracer, item: Value) -> bool:
        name = item.as_python()
        if name in self.scope.written:
            return self.scope.written[name] is not None
        found = name in self.scope.namespace
        tx.guard(self.scope.source, "DICT_CONTAINS" if found else "DICT_NOT_CONTAINS", name)
        return found

    def get_item(self, tx: Tracer, key: Value) -> Value:
        from flambeau_capture.values.keys import raise_key_error

        found = self.scope.load(tx, key.as_python()) if self.contains(tx, key) else None
        if found is None:
            raise_key_error(tx, key)
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        self.scope.store(tx, key.as_python(), value)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "get":
            if self.contains(tx, args[0]):
                return self.get_item(tx, args[0])
            return args[1] if len(args) > 1 else Constant(None)
        raise Break("FB0009", f"{name} of globals()")

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.scope.namespace)
