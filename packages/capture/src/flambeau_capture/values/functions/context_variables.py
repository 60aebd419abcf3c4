"""Context variables as values.

In: `contextvars.ContextVar` objects. Out: their values. Invariant: what a variable holds is guarded
when it is read; what is set is set by the generated code, and a token that is used up under capture
leaves the variable as it was.
"""

from __future__ import annotations

import contextvars
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import LITERALS, Constant
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import wraps_type
from flambeau_capture.values.tensors.tensor import TensorValue

_NOTHING = object()


class _Holds:
    """A guard's question: a variable holds an object, or nothing."""

    def __init__(self, expected: Any) -> None:
        self.expected = expected

    def __call__(self, variable: Any) -> bool:
        found = variable.get(_NOTHING)
        if type(self.expected) in LITERALS:
            return type(found) is type(self.expected) and bool(found == self.expected)
        return found is self.expected


class ContextVariable(OpaqueValue):
    """`now` is what the program has set under capture; None: nothing."""

    def __init__(self, real: contextvars.ContextVar[Any], source: Source) -> None:
        super().__init__(real, source)
        self.now: Value | None = None

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "get" and not kwargs:
            return self._get(tx, args)
        if name == "set" and len(args) == 1:
            token = Token(self, self.now)
            self._write(tx, args[0])
            return token
        if name == "reset" and len(args) == 1 and isinstance(args[0], Token):
            token = args[0]
            if token.variable is self and not token.used:
                token.used = True
                self._write(tx, token.before)
                return Constant(None)
        return super().call_method(tx, name, args, kwargs)

    def _get(self, tx: Tracer, args: Args) -> Value:
        if self.now is not None:
            return self.now
        found = self.real.get(_NOTHING)
        tx.guard(
            ConstantSource(self.real, self.real.name), "CALL", _Holds(found), f"holds {found!r}"
        )
        if found is _NOTHING:
            if args:
                return args[0]
            try:
                found = self.real.get()  # what it was made with, for ever
            except LookupError:
                tx.raise_error(LookupError, self.real)
        value = tx.wrap(found, ConstantSource(found, self.real.name))
        if isinstance(value, TensorValue):
            raise Break("FB0009", f"a tensor of the context variable {self.real.name!r}")
        return value

    def _write(self, tx: Tracer, value: Value | None) -> None:
        self.now = value
        tx.heap.log(self)

    def replay(self, writer: Any) -> None:
        if self.now is not None:
            writer.call(_set, [self, self.now])
            writer.pop_top()


class Token(Value):
    """What `set` answers, for a `reset` under capture."""

    def __init__(self, variable: ContextVariable, before: Value | None) -> None:
        self.variable = variable
        self.before = before
        self.used = False

    @property
    def cls(self) -> type:
        return contextvars.Token

    def truth(self, tx: Tracer) -> bool:
        return True


def _set(variable: contextvars.ContextVar[Any], value: Any) -> None:
    variable.set(value)


@wraps_type(contextvars.ContextVar)
def wrap_variable(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    known: Value | None = tx.heap.find(obj)
    if known is None:
        known = ContextVariable(obj, ConstantSource(obj, obj.name))
        tx.heap.know(obj, known)
    return known
