"""Weak references and context variables as values.

In: objects of those types. Out: their values. Invariant: what a reference or a variable refers to
is guarded when it is read; what a variable is set to is set by the generated code.
"""

from __future__ import annotations

import contextvars
import operator
import types
import weakref
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break, RunsAsItIs, SkipFrame
from flambeau_capture.source import Called, ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, UserError, Value
from flambeau_capture.values.constant import LITERALS, Constant, constant_of, is_none
from flambeau_capture.values.functions.call_rules import (
    RULES,
    Action,
    CallRule,
    describe_call,
    handles,
)
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import tracked, wraps_type
from flambeau_capture.values.stand_ins import name_in_errors
from flambeau_capture.values.tensors.tensor import TensorValue


class WeakReference(OpaqueValue):
    """weakref.ref."""

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        target = self.real()
        if target is not None and tx.has_let_go(target):
            raise SkipFrame(f"it asks a weak reference to a {type(target).__name__} it has let go")
        tx.guard(self.source, "CALL", _Refers(target), "refers to the same object")
        if target is None or self.source is None:
            return Constant(None) if target is None else tx.wrap_new(target)
        return tx.wrap(target, Called(self.source, operator.call))


def _is_kept(tx: Tracer, value: Value) -> bool:
    """Whether a variable has a value, or something that a variable has: it has not ended."""
    seen: set[int] = set()
    pending: list[Value] = []
    for frame in tx.frames:
        held = (*frame.variables.values(), *frame.contents())
        pending += [each for each in held if each is not None]
    while pending:
        each = pending.pop()
        if each is value:
            return True
        if id(each) not in seen:
            seen.add(id(each))
            pending += each.holds()
    return False


class NewReference(Value):
    """A weak reference that the program makes under capture."""

    cls: type = weakref.ReferenceType

    def __init__(self, target: Value) -> None:
        self.target = target

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """The object of the program; whether a new one is still alive, only Python knows."""
        real = getattr(self.target, "real", None)
        if real is not None and tx.has_let_go(real):
            raise SkipFrame(f"it asks a weak reference to a {type(real).__name__} it has let go")
        new = self.target.place() is None and not isinstance(self.target, ClassValue)
        if new and not _is_kept(tx, self.target):
            raise SkipFrame(f"it asks a weak reference to a new {self.target.cls.__name__}")
        return self.target

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(weakref.ref, [self.target])


def _calls_back(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> NoReturn:
    """Code of the program runs where an object ends, which compiled code would do later."""
    raise RunsAsItIs(f"it is to be called when a {args[0].cls.__name__} ends")


def _refuse(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> NoReturn:
    """End the graph where an object gets what notices its end, or is looked at for that. If it is
    new, all of its life is Python's: compiled code would keep it for longer."""
    target = args[1 if called.fn is weakref.ref.__new__ else 0]
    if target.place() is None and not isinstance(target, ClassValue | Constant):
        raise RunsAsItIs(f"the end of a new {target.cls.__name__} is to be noticed")
    raise Break("FB0005", f"call_function {describe_call(called.fn, args)}")


@handles(weakref.ref)
def _new_reference(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], Constant):
        raise Break("FB0005", "weakref.ref of a constant")
    if kwargs or any(not is_none(arg) for arg in args[1:]):
        _calls_back(tx, None, args, kwargs)
    if not args[0].cls.__weakrefoffset__:
        shown = name_in_errors(args[0].cls)
        tx.raise_error(TypeError, f"cannot create weak reference to '{shown}' object")
    return NewReference(args[0])


for _fn in (weakref.ref.__new__, weakref.proxy, weakref.getweakrefcount, weakref.getweakrefs):
    RULES[_fn] = CallRule(Action.ANSWER, handler=_refuse, of_called=True)
RULES[weakref.finalize] = CallRule(Action.ANSWER, handler=_calls_back, of_called=True)


def _refuse_after_writes(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> None:
    """A weak container is counted or gone through: what this frame has dropped may be in it."""
    if tx.heap.writes() or tx.has_let_go_some():
        raise Break("FB0005", f"{fn.qualname}: what it refers to may have ended")


_CONTAINERS = (weakref.WeakValueDictionary, weakref.WeakKeyDictionary, weakref.WeakSet)
_THROUGH = "__len__ __iter__ __contains__ keys values items keyrefs valuerefs itervaluerefs copy"
for _method in (getattr(kind, name, None) for kind in _CONTAINERS for name in _THROUGH.split()):
    if isinstance(_method, types.FunctionType):
        RULES[_method] = CallRule(Action.INLINE, handler=_refuse_after_writes, of_called=True)


class _Refers:
    """A guard's question: does a weak reference still refer to an object?"""

    def __init__(self, target: Any) -> None:
        self._target = None if target is None else weakref.ref(target)

    def __call__(self, reference: Any) -> bool:
        expected = None if self._target is None else self._target()
        return reference() is expected and (expected is not None or self._target is None)

    def __eq__(self, other: object) -> bool:  # one guard, however often it is called
        return isinstance(other, _Refers) and other._target is self._target

    def __hash__(self) -> int:
        return id(self._target)


@wraps_type(weakref.ReferenceType)
@tracked
def wrap_reference(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", weakref.ReferenceType)
    return WeakReference(obj, source)


@wraps_type(torch.jit.ScriptFunction)
def wrap_scripted(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    original = compat.scripted_from(obj)
    if original is None:
        return OpaqueValue(obj, source)
    return tx.wrap(original, ConstantSource(original, original.__name__))


_NOTHING = object()


@dataclass(frozen=True, eq=False)
class _Holds:
    """A guard's question: a variable holds an object, or nothing."""

    expected: Any

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

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return Constant(self.real.name) if name == "name" else super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "get" and not kwargs:
            return self._get(tx, args)
        if name == "set" and len(args) == 1:
            token = Token(self, self.now, tx.heap.context)
            self._write(tx, args[0])
            return token
        if name == "reset" and len(args) == 1 and isinstance(args[0], Token):
            token = args[0]
            own = token.variable is self and token.context is tx.heap.context
            if own and not token.used:
                token.used = True
                self._write(tx, token.before)
                return Constant(None)
        return super().call_method(tx, name, args, kwargs)

    def _get(self, tx: Tracer, args: Args) -> Value:
        found = self.now or self.outside(tx)
        return found or (args[0] if args else self._default(tx))

    def outside(self, tx: Tracer) -> Value | None:
        """What the frame is called with in it."""
        found = self.real.get(_NOTHING)
        assert self.source is not None
        tx.guard(self.source, "CALL", _Holds(found), f"holds {found!r}")
        return None if found is _NOTHING else self._wrapped(tx, found)

    def _default(self, tx: Tracer) -> Value:
        """What it was made with, for ever."""
        try:
            return self._wrapped(tx, self.real.get())
        except LookupError:
            tx.raise_error(LookupError, self.real)

    def _wrapped(self, tx: Tracer, found: Any) -> Value:
        value = tx.wrap(found, ConstantSource(found, self.real.name))
        if isinstance(value, TensorValue):
            raise Break("FB0009", f"a tensor of the context variable {self.real.name!r}")
        return value

    def _write(self, tx: Tracer, value: Value | None) -> None:
        self.now = value
        tx.heap.log(self)

    def replay(self, writer: Any) -> None:
        if self.now is not None:
            writer.do(contextvars.ContextVar.set, [self, self.now])


class NewVariable(ContextVariable):
    """A variable that the program makes under capture: nobody else has set it."""

    described = "context variable {0.real.name!r}"
    built_once = True

    def __init__(self, name: str, default: Value | None) -> None:
        super().__init__(contextvars.ContextVar(name), None)  # type: ignore[arg-type]
        self.default = default

    def own_object(self) -> Any:
        raise NotConcrete(self.describe())

    def outside(self, tx: Tracer) -> Value | None:
        return None

    def _default(self, tx: Tracer) -> Value:
        if self.default is None:
            raise UserError(tx.new_exception(LookupError, [self]))
        return self.default

    def rebuild(self, writer: Any) -> None:
        named = {} if self.default is None else {"default": self.default}
        with writer.building(self):
            writer.call(contextvars.ContextVar, [Constant(self.real.name)], named)


@handles(contextvars.ContextVar)
def _new_variable(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args[0].cls is not str:
        tx.raise_error(TypeError, "context variable name must be a str")
    return NewVariable(constant_of(args[0]), kwargs.get("default"))


class Token(Value):
    """What `set` answers, for a `reset` under capture."""

    described = "token of {0.variable}"
    cls: type = contextvars.Token

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "var":
            return self.variable
        if name == "old_value" and isinstance(self.variable, NewVariable):
            missing = contextvars.Token.MISSING
            return self.before or tx.wrap(missing, ConstantSource(missing, "MISSING"))
        self.unknown(f"attribute {name!r}")

    def __init__(self, variable: ContextVariable, before: Value | None, context: Any) -> None:
        self.variable = variable
        self.before = before
        self.context = context
        self.used = False


class CopiedContext(Value):
    """What `copy_context()` answers: the variables that the frame has set, as they are in it."""

    described = "a copy of the context"
    cls: type = contextvars.Context

    def __init__(self, tx: Tracer) -> None:
        self._now = _now(tx)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return tx.bound_method(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "run" and args:
            return self._run(tx, args, kwargs)
        if name == "copy" and self is not tx.heap.context:
            made = CopiedContext(tx)
            made._now = dict(self._now)
            return made
        if name in ("get", "__getitem__", "__contains__") and isinstance(args[0], ContextVariable):
            found = self._kept(tx, args[0])
            if name == "__contains__":
                return Constant(found is not None)
            if found is None and name == "__getitem__":
                raise UserError(tx.new_exception(KeyError, [args[0]]))
            return found or next(iter(args[1:]), Constant(None))
        self.unknown(f"method {name!r}")

    def get_item(self, tx: Tracer, key: Value) -> Value:
        return self.call_method(tx, "__getitem__", [key], {})

    def contains(self, tx: Tracer, item: Value) -> bool:
        return self.call_method(tx, "__contains__", [item], {}).truth(tx)

    def _kept(self, tx: Tracer, variable: ContextVariable) -> Value | None:
        now = variable.now if self is tx.heap.context else self._now.get(variable)
        return now or variable.outside(tx)

    def _run(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        outer, before = tx.heap.context, _now(tx)
        if outer is not None:
            self.unknown("a context inside of one")
        tx.heap.context = self
        _enter(tx, self._now)
        try:
            return tx.call(args[0], args[1:], kwargs)
        finally:
            self._now = _now(tx)
            tx.heap.context = outer
            _enter(tx, before)


def _now(tx: Tracer) -> dict[ContextVariable, Value | None]:
    """What the frame has set."""
    return {each: each.now for each in tx.heap.effects() if isinstance(each, ContextVariable)}


def _enter(tx: Tracer, values: dict[ContextVariable, Value | None]) -> None:
    for variable in _now(tx):
        variable.now = values.get(variable)


@handles(contextvars.copy_context)
def _copy_context(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return CopiedContext(tx)


@wraps_type(contextvars.ContextVar)
def wrap_variable(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return tx.heap.value_of(obj, lambda: ContextVariable(obj, ConstantSource(obj, obj.name)))
