"""Generators as values, interpreted step by step.

In: the frame of a generator function of the program. Out: `GeneratorValue`. Invariant: a generator
that waits when the graph ends is written as a generator that waits at the same place.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Generator
from typing import Any, TypeGuard

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    MadeBy,
    SharedItems,
    Tracer,
    UserError,
    Value,
    suppressed,
)
from flambeau_capture.values.constant import NONE, Constant, evaluate, is_none, nameless
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.objects.attributes import call_special, find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import new_exception


def _thrown(tx: Tracer, kind: Value, value: Value = NONE, trace: Value = NONE) -> Value:
    """The exception that `throw(kind, value, traceback)` raises."""
    made = isinstance(kind, ClassValue) and issubclass(kind.python_class, BaseException)
    asked = Exception if made else None if not issubclass(kind.cls, BaseException) else Exception()
    within = None if made or is_none(value) else nameless(value)
    placed = None if trace.cls in (type(None), types.TracebackType) else nameless(trace)
    evaluate(tx, _ask_throw, nameless(kind) if asked is None else asked, within, placed)
    if not made or issubclass(value.cls, BaseException):
        return value if made else kind
    parts: list[Value] = value.parts() if value.cls is tuple else [value]  # type: ignore[attr-defined]
    return tx.call(kind, [] if is_none(value) else parts, {})


def _class_thrown(kind: Value) -> type:
    return kind.python_class if isinstance(kind, ClassValue) else kind.cls


def _ask_throw(kind: Any, value: Any, trace: Any) -> None:
    """Raise what `throw` refuses of its arguments; what it would raise itself is an Exception."""
    given = [kind] if value is None and trace is None else [kind, value, trace]
    empty: Generator[None, None, None] = (None for _ in ())
    try:
        empty.throw(*given)
    except Exception as error:
        error.__traceback__ = None  # of frames that hold it: they would last until a collection
        if type(error) is not Exception:
            raise


def kind_of(code: types.CodeType) -> str:
    """What a call of a function makes whose body runs in pieces, in Python's words."""
    if code.co_flags & inspect.CO_COROUTINE:
        return "coroutine"
    return "async generator" if code.co_flags & inspect.CO_ASYNC_GENERATOR else "generator"


def of_stop_iteration(tx: Tracer, code: types.CodeType, error: Value) -> Value:
    """What leaves a generator's body with an exception: RuntimeError for StopIteration."""
    kinds = {StopIteration, StopAsyncIteration if kind_of(code) == "async generator" else None}
    stopped = next((kind for kind in kinds if kind and issubclass(error.cls, kind)), None)
    if stopped is None:
        return error
    said = f"{kind_of(code)} raised {stopped.__name__}"
    made = new_exception(RuntimeError, [Constant(said)])
    made.generic_set_attr(tx, "__cause__", error)
    made.generic_set_attr(tx, "__context__", error)
    return made


class Resumable(IteratorValue):
    """What is advanced by `send`, `throw` and `close`; `returned`: the value at its end."""

    names: tuple[str, ...] = ("__next__", "__iter__", "send", "throw", "close")
    made_by: MadeBy | None = None  # what of the library it stands for
    returned: Value = NONE

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        raise NotImplementedError

    def throw(self, tx: Tracer, given: Args, exits: bool = True) -> Value | None:
        """The next item after `throw(*given)`; exits: a GeneratorExit closes what it waits for."""
        raise NotImplementedError

    def close(self, tx: Tracer) -> Value:
        raise NotImplementedError

    def advance(self, tx: Tracer) -> Value | None:
        return self.send(tx, NONE)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in self.names:
            return BoundMethod(self, name)
        if find_in_class(self.cls, name) is None:
            self.lacks(tx, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in self.names or name == "__iter__":
            return super().call_method(tx, name, args, kwargs)
        if name == "close":
            return self.close(tx)
        item = self.throw(tx, args) if name == "throw" else self.send(tx, *(args or [NONE]))
        if item is None:
            returned = [] if is_none(self.returned) else [self.returned]
            raise UserError(new_exception(StopIteration, returned))
        return item


def _is_resumed(target: Value) -> TypeGuard[Resumable]:
    """Whether it is a generator or a coroutine: a polyfill's generator that stands for an iterator
    of the library has no `send`."""
    return isinstance(target, Resumable) and target.made_by is None


def send_to(tx: Tracer, target: Value, sent: Value) -> tuple[Value | None, Value]:
    """The next item of what `yield from` goes over, or None, and then what it returned."""
    if _is_resumed(target):
        item = target.send(tx, sent)
        return item, target.returned
    if not isinstance(target, IteratorValue):
        raise Break("FB0021", f"yield from {target.describe()}")
    if not is_none(sent):
        return _until_stopped(tx, lambda: tx.call(tx.get_attr(target, "send"), [sent], {}))
    if isinstance(target, CallIterator):
        return _until_stopped(tx, lambda: call_special(tx, target.target, "__next__", []))
    return _until_stopped(tx, lambda: target.advance(tx))


def throw_into(
    tx: Tracer, target: Value, given: Args, exits: bool
) -> tuple[Value | None, Value] | None:
    """The same of `throw`; None if the target has no such method."""
    if _is_resumed(target):
        item = target.throw(tx, given, exits)
        return item, target.returned
    method = _optional(tx, target, "throw")
    return None if method is None else _until_stopped(tx, lambda: tx.call(method, given, {}))


def close(tx: Tracer, target: Value) -> None:
    """Close what a generator waits for, as the generator is closed."""
    if _is_resumed(target):
        target.close(tx)
    elif (method := _optional(tx, target, "close")) is not None:
        tx.call(method, [], {})


def _optional(tx: Tracer, target: Value, name: str) -> Value | None:
    if not isinstance(target, CallIterator) and find_in_class(target.cls, name) is None:
        return None
    with suppressed(AttributeError):
        return tx.get_attr(target, name)
    return None


def _until_stopped(tx: Tracer, run: Callable[[], Value | None]) -> tuple[Value | None, Value]:
    try:
        return run(), NONE
    except UserError as error:
        if not issubclass(error.value.cls, StopIteration):
            raise
        return None, tx.get_attr(error.value, "value")


class GeneratorValue(Resumable):
    """A generator whose frame is interpreted step by step."""

    described = "{0.kind} {0.frame.code.co_name}"
    python_class: type = types.GeneratorType

    def __init__(self, frame: Any, step: int) -> None:
        self.frame = frame
        self.made_by = frame.tx.made_inside.get(frame.code)
        self.step = step
        self.kind = kind_of(frame.code)
        self.started = False
        self.rebuilt = False  # whether generated code makes one that waits at the same place
        self.finished = False
        self.running = False

    @property
    def cls(self) -> type:
        kind = self.python_class
        return kind if self.made_by is None else self.made_by.kind(kind)

    def __del__(self) -> None:
        """Nothing holds it any more: the session ends it, once the instruction is done."""
        if self.waits() and self.frame.tx.has_generators:
            self.frame.tx.unheld.append(self)

    def waits(self) -> bool:
        """Whether there is code left that closing it would run."""
        inside = self.started and not self.finished and not self.frame.finished
        return inside and bool(self.frame.ends_with_code())

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        self._enter(tx)
        if self.finished:
            return self._again(tx)
        if not self.started and not is_none(sent):
            said = f"can't send non-None value to a just-started {self.kind}"
            tx.raise_error(TypeError, said)
        started, self.started = self.started, True
        return self._advanced(tx, lambda: self.frame.resume(tx, sent, started))

    def _again(self, tx: Tracer) -> Value | None:
        """What it answers after its end."""
        self.returned = NONE
        return None

    def _advanced(self, tx: Tracer, run: Callable[[], Value | None]) -> Value | None:
        """The next item. Until 3.12 no bytecode handles the StopIteration that leaves the body."""
        self.running = True
        try:
            item = run()
        except UserError as error:
            self.finished = True
            left = of_stop_iteration(tx, self.frame.code, error.value)
            if left is error.value:
                raise
            raise UserError(left, error.step, again=True) from None
        finally:
            self.running = False
        if item is None:
            self.finished = True
            self.returned = self.frame.returned
        return item

    def _enter(self, tx: Tracer) -> None:
        tx.heap.changed()
        if self.running:
            tx.raise_error(ValueError, f"{self.kind} already executing")

    def throw(self, tx: Tracer, given: Args, exits: bool = True) -> Value | None:
        self._enter(tx)
        if self.finished or not self.started:
            again = self.finished
            self.finished = True
            error = _thrown(tx, *given)
            if again:
                self._again(tx)
            raise UserError(error)
        return self._advanced(tx, lambda: self._thrown(tx, given, exits))

    def _thrown(self, tx: Tracer, given: Args, exits: bool) -> Value | None:
        """What it waits for is thrown into first; else, or where that raises, the frame is."""
        inner = self.frame.awaited()
        item: Value | None
        found: tuple[Value | None, Value] | None = None
        try:
            if inner is None:
                pass
            elif exits and issubclass(_class_thrown(given[0]), GeneratorExit):
                close(tx, inner)
            else:
                found = throw_into(tx, inner, given, exits)
        except UserError as error:
            item = self.frame.throw(tx, error.value)
            return item
        if found is None:
            item = self.frame.throw(tx, _thrown(tx, *given))
        else:
            item = self.frame.go_on(found[1]) if found[0] is None else found[0]
        return item

    def close(self, tx: Tracer) -> Value:
        """None; from 3.13 on, what the generator returns where it is closed."""
        left: Value = NONE
        if self.finished:
            return left
        try:
            self.throw(tx, [new_exception(GeneratorExit, [])])
        except UserError as error:
            if not issubclass(error.value.cls, GeneratorExit | StopIteration):
                raise
        else:
            if not self.finished:
                tx.raise_error(RuntimeError, f"{self.kind} ignored GeneratorExit")
            if VERSION >= (3, 13):
                left = self.returned
        self.finished = True
        self.frame.let_go()
        return left

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if self.made_by is None and name in ("__name__", "__qualname__"):
            return tx.wrap_new(getattr(self.frame.function, name.strip("_")))
        prefix, _, part = name.partition("_")
        if self.made_by is not None or (prefix, part) not in _parts(self.cls):
            return super().get_attr(tx, name)
        if part == "frame":
            return NONE if self.finished else FrameValue(self, tx.step())
        if part == "code":
            return tx.wrap_new(self.frame.code)
        if part in ("yieldfrom", "await"):
            return self.waits_for() or NONE
        return Constant(self._suspended() if part == "suspended" else self.is_running())

    def _suspended(self) -> bool:
        return self.started and not self.finished and not self.running

    def waits_for(self) -> Value | None:
        """What it waits for in a `yield from` or an `await`."""
        found: Value | None = self.frame.awaited() if self._suspended() else None
        return found

    def is_running(self) -> bool:
        return self.running

    def drop(self, tx: Tracer) -> None:
        """End it, as nothing holds it any more."""
        self.close(tx)

    def reconstruct(self, writer: Any) -> None:
        anew = not self.started and not self.finished
        if self.made_by is not None and (anew or isinstance(self.made_by, SharedItems)):
            self.made_by.write(self, writer)
        elif self.finished or self.frame.finished:
            writer.call(_exhausted, [])
        else:
            writer.load_generator(self, self.frame, self.started)
            self.rebuilt = True


class FrameValue(Value):
    """The frame of a generator: a program that requests more than whether there is one is left to
    Python, as no bytecode makes the value."""

    described = "the frame of {0.of}"
    cls: type = types.FrameType

    def __init__(self, of: GeneratorValue, step: int) -> None:
        self.of = of
        self.step = step


@functools.cache
def _parts(kind: type) -> frozenset[tuple[str, str]]:
    """The attributes `gi_code` and so on that generators of a kind have, and that are known."""
    known = ("frame", "code", "running", "suspended", "yieldfrom", "await")
    pairs = ((prefix, part) for prefix in ("gi", "cr", "ag") for part in known)
    return frozenset(pair for pair in pairs if "_".join(pair) in vars(kind))


def _exhausted() -> Any:
    made = (item for item in range(0))
    next(made, None)
    return made
