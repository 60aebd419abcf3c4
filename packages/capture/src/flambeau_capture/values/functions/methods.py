"""Bound methods of built-in kinds and of Python classes, and the kinds that have a table of them.

In: a receiver and a name, or a receiver and a function. Out: `BoundMethod`, `MethodValue`;
`BuiltinKind`. Invariant: calling one is the same as calling the function with the receiver in
front.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from flambeau_capture.source import Source
from flambeau_capture.values.argument_errors import check_method
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value, needing
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.stand_ins import name_in_errors

#: what a method does; one that returns nothing returns None to the program
Handler = Callable[[Any, Any, Args, Kwargs], Value | None]


class BoundMethod(Value):
    """A method of a built-in kind: the receiver itself knows how to run it."""

    described = "method {0.name!r} of {0.receiver}"
    built_once = True
    called_where_found = False  # by the call that it was looked up for

    def __init__(self, receiver: Value, name: str) -> None:
        self.receiver = receiver
        self.name = name

    @property
    def cls(self) -> type:
        wrapper = isinstance(self._in_class(), types.WrapperDescriptorType)
        return types.MethodWrapperType if wrapper else types.BuiltinMethodType

    def _in_class(self) -> Any:
        owners = (vars(kind) for kind in self.receiver.cls.__mro__)
        return next((owner[self.name] for owner in owners if self.name in owner), None)

    def unbound(self) -> Any:
        """The class's descriptor, which CPython calls where a method is looked up to be called:
        what it refuses it refuses in the name of the class that defines it."""
        found = self._in_class()
        return found if isinstance(found, types.MethodDescriptorType) else None

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.receiver
        if name == "__name__":
            return tx.wrap_new(self.name)
        self.unknown(f"attribute {name!r}")

    def as_python(self) -> Any:
        return getattr(self.receiver.as_python(), self.name)

    def as_key(self) -> Any:
        if not isinstance(self.receiver, Constant):
            raise NotConcrete("a method of what is no constant")
        return self.as_python()

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        check_method(tx, self.receiver, self.name, args, kwargs)
        with needing("FB0009", lambda error: f"{self.describe()}: {error} is not known"):
            return self.receiver.call_method(tx, self.name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.receiver)
        writer.load_attr(self.name)


class MethodValue(Value):
    """A Python function (or any callable) bound to a receiver."""

    described = "method {0.function} of {0.receiver}"
    cls: type = types.MethodType
    built_once = True

    def __init__(self, receiver: Value, function: Value, source: Source | None = None) -> None:
        self.receiver = receiver
        self.function = function
        self.source = source

    def as_python(self) -> Any:
        try:
            return types.MethodType(self.function.as_python(), self.receiver.as_python())
        except TypeError:
            raise NotConcrete(self.describe()) from None

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.receiver
        if name == "__func__":
            return self.function
        return tx.get_attr(self.function, name)

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs]:
        return self.function, [self.receiver, *args], kwargs

    def reconstruct(self, writer: Any) -> None:
        writer.call(types.MethodType, [self.function, self.receiver])


class BuiltinKind(Value):
    """A value of a built-in class. `methods` has what its methods do."""

    methods: Mapping[str, Handler] = {}

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.wrap_new(self.cls)
        owner = next((k for k in self.cls.__mro__ if name in vars(k)), None)
        if owner is None:
            self.lacks(tx, name, name_in_errors(self.cls))
        found = vars(owner)[name]
        if found is None or isinstance(found, str):  # `__hash__` of lists, `__doc__`
            return Constant(found)
        if isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType):
            self.unknown(f"attribute {name!r}")
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        handler = self.methods.get(name) or PROTOCOL.get(name)
        if handler is None:
            self.unknown(f"method {name!r}")
        return handler(self, tx, args, kwargs) or Constant(None)


#: what every container does that has the method at all
PROTOCOL: dict[str, Handler] = {
    "__len__": lambda s, tx, a, k: s.count(tx),
    "__contains__": lambda s, tx, a, k: Constant(s.contains(tx, a[0])),
    "__iter__": lambda s, tx, a, k: s.iterate(tx),
    "__getitem__": lambda s, tx, a, k: s.get_item(tx, a[0]),
    "__setitem__": lambda s, tx, a, k: s.set_item(tx, a[0], a[1]),
    "__delitem__": lambda s, tx, a, k: s.del_item(tx, a[0]),
}
