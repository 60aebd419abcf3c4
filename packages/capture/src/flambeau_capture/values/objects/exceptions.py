"""Exceptions as values.

In: exception classes and arguments. Out: `ExceptionValue`, `new_exception`. Invariant: an exception
raised under capture is never raised in Python by capture itself except wrapped in a `UserError`; it
is an instance like any other, but for what BaseException and its like keep of it in C.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterable, Sequence
from typing import Any

from flambeau_capture.breaks import Break, UserLine
from flambeau_capture.identity import is_heap_type, known_in
from flambeau_capture.source import Attr, Source
from flambeau_capture.values.base import (
    Args,
    Kwargs,
    NotConcrete,
    Tracer,
    Unreconstructible,
    Value,
    unpack,
)
from flambeau_capture.values.constant import LITERALS, Constant, evaluate, is_none
from flambeau_capture.values.containers.sequences import SequenceValue, TupleValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import assume_special_methods, find_in_class
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.registry import tracked, trusted_class, wraps_if


class ExceptionValue(ObjectValue):
    """An exception object: its class, arguments, attributes, and the fields that it has in C. Rule:
    where one that was raised is needed as an object, the graph ends before it is raised first."""

    made_in_python = "FB0010"
    step: int
    lines: tuple[UserLine, ...]

    def __init__(self, kind: type[BaseException], args: list[Value]) -> None:
        super().__init__(kind)
        self.args = args
        self.given = args  # what it is made of: not all of it is kept in `args`
        self.fields: dict[str, Value] = {}
        self.raised = False
        self.step, self.lines = -1, ()  # where it was raised first
        self.raised_anew = False  # since it was split off another
        self.part_of: ExceptionValue | None = None
        self.frames: list[Any] = []  # what its traceback holds

    def holds(self) -> Iterable[Value]:
        return [*super().holds(), *self.args, *self.fields.values()]

    def raised_while(self, handled: Value | None, step: int, lines: tuple[UserLine, ...]) -> None:
        """Note that it is raised, where, and which exception was being handled then."""
        if not self.raised:
            self.raised, self.step, self.lines = True, step, lines
        self.raised_anew = True
        if handled is None or handled is self:
            return
        link: Value | None = handled
        while isinstance(link, ExceptionValue):  # an exception is never in its own chain
            following = link.fields.get("__context__")
            if following is self:
                del link.fields["__context__"]
                break
            link = following
        self.fields["__context__"] = handled

    def describe(self) -> str:
        return f"{self.cls.__name__}({', '.join(self._shown(arg) for arg in self.args)})"

    @staticmethod
    def _shown(arg: Value) -> str:
        try:
            return repr(arg.as_python())
        except (NotConcrete, Break):  # the text of an object has its address
            return arg.describe()

    def as_python(self) -> Any:
        if self._runs_code():
            raise NotConcrete(self.describe())
        every = {**self.fields, **self.written}
        every.pop("__context__", None)
        return self._with({n: value.as_python() for n, value in every.items() if value is not None})

    def _with(self, attributes: dict[str, Any]) -> BaseException:
        """The exception as Python makes it of its arguments, with these attributes."""
        made = _make_exception(self.cls, *(arg.as_python() for arg in self.given))
        if self.args is not self.given:
            made.args = tuple(arg.as_python() for arg in self.args)
        for name, value in attributes.items():
            object.__setattr__(made, name, value)
        return made

    def _runs_code(self) -> bool:
        """Whether what Python does with it may run code of the program."""
        return any(
            isinstance(member, types.FunctionType) and name.startswith("__") and name != "__init__"
            for owner in self.cls.__mro__
            if not trusted_class(owner)
            for name, member in vars(owner).items()
        )

    def text(self, tx: Tracer, method: str) -> Value:
        """str() or repr() of the exception."""
        if self.special(tx, method):
            return ask(tx, self, method)
        by = str if method == "__str__" else repr
        fields = [(name, value) for name, value in self.fields.items() if name not in _STATE]
        try:
            # of fields that are not known a text may not depend: it is the same for any two
            texts = [
                by(self._with({name: _known(value, unknown) for name, value in fields}))
                for unknown in ([], [0])
            ]
        except NotConcrete:
            self.unknown(method)
        if texts[0] != texts[1]:
            self.unknown(method)
        return tx.wrap_new(texts[0])

    def find_attr(self, tx: Tracer, name: str) -> Value | None:
        found = self._field(tx, name) if self._is_in_c(name) else None
        return super().find_attr(tx, name) if found is None else found

    def _is_in_c(self, name: str) -> bool:
        found = find_in_class(self.cls, name)
        return found is not None and not is_heap_type(found[0])

    def _field(self, tx: Tracer, name: str) -> Value | None:
        """What a built-in class of exceptions gives under a name, where it is known."""
        if name in self.fields:
            return self.fields[name]
        if name == "args":
            return TupleValue(self.args)
        if name == "__traceback__" and self.raised:
            return TracebackValue(self)
        if name in _STATE:
            return Constant(False if name == "__suppress_context__" else None)
        if name in ("add_note", "with_traceback") or name in tx.group_methods:
            return BoundMethod(self, name)
        found = find_in_class(self.cls, name)
        is_field = found is not None and inspect.isdatadescriptor(found[1]) and name != "__dict__"
        return self.made_by_python(tx, name) if is_field else None

    def made_by_python(self, tx: Tracer, name: str) -> Value | None:
        """What Python keeps under the name of a field, having made it of stand-ins."""
        if self.real is not None:
            return None
        stands = StandIns()
        try:
            made = _make_exception(self.cls, *map(stands.of, self.given))
        except Exception:  # of what an argument is: the stand-in says nothing of that
            return None
        return stands.value(tx, evaluate(tx, getattr, made, name))

    def read_slot(self, tx: Tracer, name: str) -> Value | None:
        if self.real is None and self._is_in_c(name):
            self.unknown(f"field {name!r}")
        return super().read_slot(tx, name)

    def generic_set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        """object.__setattr__."""
        if name == "__class__" or not self._is_in_c(name):
            super().generic_set_attr(tx, name, value)
            return
        tx.heap.changed()
        if name == "__traceback__":
            self._place(value)
            return
        if name == "args":
            self.args = unpack(tx, value)
            return
        if name == "__cause__":
            self.fields["__suppress_context__"] = Constant(True)
        self.fields[name] = value

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "with_traceback":
            self._place(args[0])
            return self
        if name == "add_note":
            from flambeau_capture.values.containers.lists import ListValue

            notes = self.instance_get(tx, "__notes__")
            known = notes.parts() if isinstance(notes, ListValue) else []
            self.write(tx, "__notes__", ListValue([*known, args[0]]))
            return Constant(None)
        if name == "__init__":
            tx.heap.changed()
            self.args = self.given = list(args)
            return Constant(None)
        if name in ("__str__", "__repr__") and not self.special(tx, name):
            return self.text(tx, name)
        if name in tx.group_methods and issubclass(self.cls, BaseExceptionGroup):
            return tx.group_methods[name](tx, self, *args, **kwargs)
        return super().call_method(tx, name, args, kwargs)

    def _place(self, traceback: Value) -> None:
        """Set its traceback: to where it was raised, which it is, or to None before it is."""
        if isinstance(traceback, TracebackValue) or (is_none(traceback) and not self.raised):
            return
        raise Break("FB0019", f"the traceback of {self.describe()} is set")

    def rebuild(self, writer: Any) -> None:
        if self.raised:  # Python alone makes its traceback, where it raises it
            raise Unreconstructible(self, f"{self.describe()}, whose traceback Python makes")
        with writer.building(self):
            writer.call(_make_exception, [Constant(self.cls), *self.given])
        if self.args is not self.given:
            writer.do_with_top(setattr, [Constant("args"), TupleValue(self.args)])
        for name, value in self.fields.items():
            writer.do_with_top(object.__setattr__, [Constant(name), value])
        self.fill(writer)


def _known(value: Value, otherwise: Any) -> Any:
    try:
        return value.as_python()
    except NotConcrete:
        return otherwise


def _make_exception(kind: Any, *args: Any) -> BaseException:
    base = next(k for k in kind.__mro__ if not is_heap_type(k))
    made: BaseException = base.__new__(kind, *args)
    base.__init__(made, *args)
    return made


class StandIns:
    """Python objects for arguments of exceptions, and the values that they stand for."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Any, Value]] = {}

    def of(self, value: Value) -> Any:
        """An object for a value: a constant itself, an exception or a sequence of its kind."""
        made: Any
        if isinstance(value, SequenceValue) and known_in(value.cls, (list, tuple)):
            made = value.cls(map(self.of, value.parts()))
        elif isinstance(value, ExceptionValue) and value.real is None:
            made = _make_exception(value.cls, *map(self.of, value.given))
        else:
            try:
                made = value.as_python()
            except NotConcrete:
                made = object()
        if made is not None and not isinstance(made, bool):
            self._values[id(made)] = (made, value)
        return made

    def value(self, tx: Tracer, made: Any) -> Value:
        """The value of an object that came of them."""
        known = self._values.get(id(made))
        if known is not None:
            return known[1]
        if type(made) is tuple:
            return TupleValue([self.value(tx, item) for item in made])
        return tx.wrap_new(made)


def raised_by_python(tx: Tracer, error: BaseException) -> ExceptionValue:
    """The program's exception for one that CPython raised, with all that it says of it."""
    kind: Any = type(error)
    made = new_exception(kind, [tx.wrap_new(arg) for arg in error.args])
    for name in _own_fields(kind):
        told = getattr(error, name, None)
        if type(told) in LITERALS and told is not None:
            made.fields[name] = tx.wrap_new(told)
    if hasattr(error, "__notes__"):
        made.generic_set_attr(tx, "__notes__", tx.wrap_new(error.__notes__))
    return made


@functools.cache
def _own_fields(kind: type) -> tuple[str, ...]:
    """The fields that a class of exceptions has in C, besides those of BaseException."""
    return tuple(
        name
        for owner in kind.__mro__
        if not is_heap_type(owner) and owner not in (BaseException, object)
        for name, member in vars(owner).items()
        if isinstance(member, types.MemberDescriptorType) and name != "characters_written"
    )


def new_exception(kind: type[BaseException], args: Sequence[Value]) -> ExceptionValue:
    """An exception whose class has no `__init__` of its own."""
    return ExceptionValue(kind, list(args))


class TracebackValue(Value):
    """Where an exception has been: as no bytecode makes the value, the graph ends before the
    exception is raised for a program that requests more than whether there is one."""

    cls: type = types.TracebackType
    made_in_python = ExceptionValue.made_in_python

    def __init__(self, error: Value) -> None:
        self.step = getattr(error, "step", -1)
        self.lines = getattr(error, "lines", ())


class ExistingException(ExceptionValue):
    """An exception object that existed before the frame."""

    def __init__(self, real: BaseException, source: Source, tx: Tracer) -> None:
        super().__init__(type(real), [])
        del self.args, self.given  # they are read when they are needed
        self.real = real
        self.source: Source = source
        self._tx = tx

    @functools.cached_property
    def args(self) -> list[Value]:  # type: ignore[override]
        return unpack(self._tx, self._tx.wrap(self.real.args, Attr(self.source, "args")))

    @functools.cached_property
    def given(self) -> list[Value]:  # type: ignore[override]
        return self.args

    def describe(self) -> str:
        return f"{self.cls.__name__} object"

    def holds(self) -> Iterable[Value]:
        return ()

    def _field(self, tx: Tracer, name: str) -> Value | None:
        if name in _STATE or (name == "value" and isinstance(self.real, StopIteration)):
            return tx.wrap(getattr(self.real, name), Attr(self.source, name))
        return super()._field(tx, name)

    def raised_while(self, handled: Value | None, step: int, lines: tuple[UserLine, ...]) -> None:
        if handled is not None and handled is not self:
            raise Break("FB0019", f"the context of an existing {self.cls.__name__} is set")

    def generic_set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if self._is_in_c(name):
            raise Break("FB0019", f"attribute {name!r} of an existing {self.cls.__name__} is set")
        super().generic_set_attr(tx, name, value)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("with_traceback", "__init__", "add_note"):
            raise Break("FB0019", f"{name} of an existing {self.cls.__name__}")
        return super().call_method(tx, name, args, kwargs)

    def as_python(self) -> Any:
        if self._runs_code() or self.written:
            raise NotConcrete(self.describe())
        return self.real


_STATE = ("__cause__", "__context__", "__traceback__", "__suppress_context__")


@wraps_if(lambda obj: issubclass(type(obj), BaseException), 30)
@tracked
def wrap_exception(tx: Tracer, obj: BaseException, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    assume_special_methods(tx, type(obj))
    return ExistingException(obj, source, tx)
