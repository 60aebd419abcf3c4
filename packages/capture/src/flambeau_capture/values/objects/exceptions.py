"""Exceptions of the program as values.

In: exception classes and arguments. Out: `ExceptionValue`, `new_exception`. Invariant: an exception
raised under capture is never raised in Python by capture itself except wrapped in a `UserError`.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, Source
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    NotConcrete,
    Tracer,
    UserError,
    Value,
    unpack,
)
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.existing import met_before
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.registry import wraps_if


class ExceptionValue(Value):
    """An exception object: its class, arguments and attributes."""

    def __init__(self, kind: type[BaseException], args: list[Value]) -> None:
        self.kind = kind
        self.args = args
        self.attributes: dict[str, Value] = {}
        self.raised = False
        self.frames: list[Any] = []  # what its traceback holds

    @property
    def cls(self) -> type:
        return self.kind

    def raised_while(self, handled: Value | None) -> None:
        """Note that it is raised, and which exception was being handled then."""
        self.raised = True
        if handled is None or handled is self:
            return
        link: Value | None = handled
        while isinstance(link, ExceptionValue):  # an exception is never in its own chain
            following = link.attributes.get("__context__")
            if following is self:
                del link.attributes["__context__"]
                break
            link = following
        self.attributes["__context__"] = handled

    def special(self, tx: Tracer, name: str) -> bool:
        from flambeau_capture.values.objects.attributes import defines  # which knows of all values

        return defines(tx, self.kind, name)

    def describe(self) -> str:
        return f"{self.kind.__name__}({', '.join(self._shown(arg) for arg in self.args)})"

    @staticmethod
    def _shown(arg: Value) -> str:
        try:
            return repr(arg.as_python())
        except NotConcrete:
            return arg.describe()

    def as_python(self) -> Any:
        made = _make_exception(self.kind, *(arg.as_python() for arg in self.args))
        for name, value in self.attributes.items():
            if name != "__context__":
                setattr(made, name, value.as_python())
        return made

    def text(self, tx: Tracer, method: str) -> Value:
        """str() or repr() of the exception."""
        from flambeau_capture.values.objects.attributes import class_attribute, find_in_class

        found = find_in_class(self.kind, method)
        if found is not None and isinstance(found[1], types.FunctionType):
            return tx.call(class_attribute(tx, self, self.kind, method), [], {})
        try:
            plain = _make_exception(self.kind, *(arg.as_python() for arg in self.args))
        except NotConcrete:
            self.unknown(method)
        return tx.wrap_new(str(plain) if method == "__str__" else repr(plain))

    def truth(self, tx: Tracer) -> bool:
        return True

    def get_attr(self, tx: Tracer, name: str) -> Value:
        from flambeau_capture.values.objects.attributes import call_special

        if self.special(tx, "__getattribute__"):
            return call_special(tx, self, "__getattribute__", [Constant(name)])
        try:
            return self.generic_get_attr(tx, name)
        except UserError as error:
            if not issubclass(error.value.cls, AttributeError):
                raise
            if not self.special(tx, "__getattr__"):
                raise
            return call_special(tx, self, "__getattr__", [Constant(name)])

    def generic_get_attr(self, tx: Tracer, name: str) -> Value:
        """object.__getattribute__."""
        from flambeau_capture.values.containers.dicts import DictValue
        from flambeau_capture.values.containers.tuples import TupleValue
        from flambeau_capture.values.objects.attributes import class_attribute

        if name in self.attributes:
            return self.attributes[name]
        if name == "args":
            return TupleValue(self.args)
        if name == "__class__":
            return tx.wrap_new(self.kind)
        if name == "__traceback__":
            return TracebackValue() if self.raised else Constant(None)
        if name in ("__cause__", "__context__"):
            return Constant(None)
        if name == "__suppress_context__":
            return Constant(False)
        if name == "__dict__":
            own = {**self.existing(tx), **self.attributes}
            return DictValue([(Constant(n), v) for n, v in own.items() if n not in _STATE], tx=tx)
        if name == "add_note":
            return BoundMethod(self, name)
        part = self.group_part(tx, name)
        if part is not None:
            return part
        if name == "value" and issubclass(self.kind, StopIteration):
            return self.args[0] if self.args else Constant(None)
        if name == "with_traceback":
            return BoundMethod(self, name)
        return class_attribute(tx, self, self.kind, name)

    def existing(self, tx: Tracer) -> dict[str, Value]:
        """The attributes that it had before the frame."""
        return {}

    def group_part(self, tx: Tracer, name: str) -> Value | None:
        """`message` and `exceptions` of an exception group."""
        from flambeau_capture.values.containers.tuples import TupleValue

        if not issubclass(self.kind, BaseExceptionGroup) or len(self.args) != 2:
            return None
        if name == "message":
            return self.args[0]
        return TupleValue(unpack(tx, self.args[1])) if name == "exceptions" else None

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        from flambeau_capture.values.objects.attributes import call_special

        if self.special(tx, "__setattr__"):
            call_special(tx, self, "__setattr__", [Constant(name), value])
            return
        self.generic_set_attr(tx, name, value)

    def generic_set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        """object.__setattr__."""
        tx.heap.changed()
        if name == "__traceback__":
            return
        if name == "__cause__":
            self.attributes["__suppress_context__"] = Constant(True)
        if name == "args":
            self.args = unpack(tx, value)
            return
        self.attributes[name] = value

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "with_traceback":
            return self
        if name == "add_note":
            from flambeau_capture.values.containers.lists import ListValue

            tx.heap.changed()
            notes = self.attributes.get("__notes__")
            known = notes.parts() if isinstance(notes, ListValue) else []
            self.attributes["__notes__"] = ListValue([*known, args[0]])
            return Constant(None)
        if name == "__init__":
            tx.heap.changed()
            self.args = list(args)
            return Constant(None)
        if name in ("__str__", "__repr__"):
            return self.text(tx, name)
        if name == "__setattr__":
            self.generic_set_attr(tx, args[0].as_python(), args[1])
            return Constant(None)
        if name == "__getattribute__":
            return self.generic_get_attr(tx, args[0].as_python())
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(_make_exception, [Constant(self.kind), *self.args])
        for name, value in self.attributes.items():
            writer.duplicate_top()
            writer.set_attr_on_top(name, value)


def _make_exception(kind: Any, *args: Any) -> BaseException:
    """An exception with these arguments, made without the code of the program's own classes."""
    base = next(k for k in kind.__mro__ if not k.__flags__ & (1 << 9))
    made: BaseException = base.__new__(kind, *args)
    base.__init__(made, *args)
    return made


def new_exception(kind: type[BaseException], args: list[Value]) -> ExceptionValue:
    """An exception whose class has no `__init__` of its own."""
    return ExceptionValue(kind, list(args))


class TracebackValue(Value):
    """Where an exception has been: a program may ask whether there is one, and no more."""

    @property
    def cls(self) -> type:
        return types.TracebackType

    def truth(self, tx: Tracer) -> bool:
        return True


class ExistingException(ExceptionValue):
    """An exception object that existed before the frame."""

    def __init__(self, real: BaseException, source: Source, tx: Tracer) -> None:
        super().__init__(type(real), [])
        self.real = real
        self.source: Source = source
        self._tx = tx
        self._given: list[Value] | None = None

    @property
    def args(self) -> list[Value]:
        if self._given is None:
            made = self._tx.wrap(self.real.args, Attr(self.source, "args"))
            self._given = unpack(self._tx, made)
        return self._given

    @args.setter
    def args(self, given: list[Value]) -> None:
        self._given = given or None

    def describe(self) -> str:
        return f"{self.kind.__name__} object"

    def generic_get_attr(self, tx: Tracer, name: str) -> Value:
        if name in _STATE or name in self.real.__dict__:
            return tx.wrap(getattr(self.real, name), Attr(self.source, name))
        if name == "value" and isinstance(self.real, StopIteration):
            return tx.wrap(self.real.value, Attr(self.source, name))
        return super().generic_get_attr(tx, name)

    def existing(self, tx: Tracer) -> dict[str, Value]:
        tx.guard(Attr(self.source, "__dict__"), "DICT_KEYS", tuple(self.real.__dict__), True)
        return {name: self.generic_get_attr(tx, name) for name in self.real.__dict__}

    def raised_while(self, handled: Value | None) -> None:
        if handled is not None and handled is not self:
            raise Break("FB0019", f"the context of an existing {self.kind.__name__} is set")

    def generic_set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        raise Break("FB0019", f"attribute {name!r} of an existing {self.kind.__name__} is set")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("with_traceback", "__init__", "add_note"):
            raise Break("FB0019", f"{name} of an existing {self.kind.__name__}")
        return super().call_method(tx, name, args, kwargs)

    def as_python(self) -> Any:
        return self.real

    def reconstruct(self, writer: Any) -> None:
        writer.load_source(self.source)


_STATE = ("__cause__", "__context__", "__traceback__", "__suppress_context__", "__notes__")


@wraps_if(lambda obj: isinstance(obj, BaseException), 30)
def wrap_exception(tx: Tracer, obj: BaseException, source: Source) -> Value:
    from flambeau_capture.values.objects.attributes import (
        assume_special_methods,  # built on this one
    )

    known = met_before(tx, obj, source)
    if known is not None:
        return known
    tx.guard(source, "TYPE_MATCH", type(obj))
    assume_special_methods(tx, type(obj))
    made = ExistingException(obj, source, tx)
    tx.heap.know(obj, made)
    return made
