"""Exceptions of the program as values.

In: exception classes and arguments. Out: `ExceptionValue`, `new_exception`. Invariant: an exception
raised under capture is never raised in Python by capture itself except wrapped in a `UserError`.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.methods import BoundMethod


class ExceptionValue(Value):
    """An exception object: its class, arguments and attributes."""

    def __init__(self, kind: type[BaseException], args: list[Value]) -> None:
        self.kind = kind
        self.args = args
        self.attributes: dict[str, Value] = {}

    @property
    def cls(self) -> type:
        return self.kind

    def describe(self) -> str:
        return f"{self.kind.__name__}({', '.join(self._shown(arg) for arg in self.args)})"

    @staticmethod
    def _shown(arg: Value) -> str:
        try:
            return repr(arg.as_python())
        except NotConcrete:
            return arg.describe()

    def as_python(self) -> Any:
        if self.attributes:
            raise NotConcrete(self.describe())
        return self.kind(*(arg.as_python() for arg in self.args))

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        from flambeau_capture.values.objects import class_attribute
        from flambeau_capture.values.sequences import TupleValue

        if name in self.attributes:
            return self.attributes[name]
        if name == "args":
            return TupleValue(self.args)
        if name == "__class__":
            return tx.wrap_new(self.kind)
        if name in ("__cause__", "__context__", "__traceback__"):
            return Constant(None)
        if name == "value" and issubclass(self.kind, StopIteration):
            return self.args[0] if self.args else Constant(None)
        if name == "with_traceback":
            return BoundMethod(self, name)
        return class_attribute(tx, self, self.kind, name)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        tx.heap.changed()
        if name in ("__traceback__", "__suppress_context__"):
            return
        if name == "args":
            from flambeau_capture.values.base import unpack

            self.args = unpack(tx, value)
            return
        self.attributes[name] = value

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "with_traceback":
            return self
        if name == "__init__":
            tx.heap.changed()
            self.args = list(args)
            return Constant(None)
        if name in ("__str__", "__repr__"):
            try:
                return tx.wrap_new(getattr(self.as_python(), name)())
            except NotConcrete:
                self.unknown(f"method {name!r}")
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(self.kind, self.args)
        for name, value in self.attributes.items():
            writer.duplicate_top()
            writer.set_attr_on_top(name, value)


def new_exception(kind: type[BaseException], args: list[Value]) -> ExceptionValue:
    """An exception whose class has no `__init__` of its own."""
    return ExceptionValue(kind, list(args))
