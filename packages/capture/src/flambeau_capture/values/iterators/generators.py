"""Generators as values, interpreted step by step.

In: the frame of a generator function of the program. Out: `GeneratorValue`. Invariant: a generator
that waits when the graph ends is written as a generator that waits at the same place.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import Any

from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    MadeBy,
    Tracer,
    UserError,
    Value,
)
from flambeau_capture.values.constant import NONE, Constant, evaluate, is_none, nameless
from flambeau_capture.values.functions.methods import BoundMethod
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


def _ask_throw(kind: Any, value: Any, trace: Any) -> None:
    """Raise what `throw` refuses of its arguments; what it would raise itself is an Exception."""
    given = [kind] if value is None and trace is None else [kind, value, trace]
    empty: Generator[None, None, None] = (None for _ in ())
    try:
        empty.throw(*given)
    except Exception as error:
        if type(error) is not Exception:
            raise


def of_stop_iteration(tx: Tracer, error: Value) -> Value:
    """What leaves a generator's body with an exception: RuntimeError for StopIteration."""
    if not issubclass(error.cls, StopIteration):
        return error
    made = new_exception(RuntimeError, [Constant("generator raised StopIteration")])
    made.generic_set_attr(tx, "__cause__", error)
    made.generic_set_attr(tx, "__context__", error)
    return made


class GeneratorValue(IteratorValue):
    """A generator whose frame is interpreted step by step."""

    described = "generator {0.frame.code.co_name}"

    def __init__(self, frame: Any, step: int) -> None:
        self.frame = frame
        self.step = step
        self.started = False
        self.rebuilt = False  # whether generated code makes one that waits at the same place
        self.finished = False
        self.running = False
        self.returned: Value = Constant(None)
        self.made_by: MadeBy | None = None  # what of the library it stands for

    @property
    def cls(self) -> type:
        kind = types.GeneratorType
        return kind if self.made_by is None else self.made_by.kind(kind)

    def __del__(self) -> None:
        """Nothing holds it any more: the session ends it, once the instruction is done."""
        if self.waits() and self.frame.tx.has_generators:
            self.frame.tx.unheld.append(self)

    def waits(self) -> bool:
        """Whether there is code left that closing it would run."""
        inside = self.started and not self.finished and not self.frame.finished
        return inside and bool(self.frame.ends_with_code())

    def advance(self, tx: Tracer) -> Value | None:
        return self.send(tx, Constant(None))

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        self._enter(tx)
        if self.finished:
            return None
        if not self.started and not is_none(sent):
            tx.raise_error(TypeError, "can't send non-None value to a just-started generator")
        started, self.started = self.started, True
        return self._advanced(tx, lambda: self.frame.resume(tx, sent, started))

    def _advanced(self, tx: Tracer, run: Callable[[], Value | None]) -> Value | None:
        """The next item. Until 3.12 no bytecode handles the StopIteration that leaves the body."""
        self.running = True
        try:
            item = run()
        except UserError as error:
            self.finished = True
            left = of_stop_iteration(tx, error.value)
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
            tx.raise_error(ValueError, "generator already executing")

    def throw(self, tx: Tracer, error: Value) -> Value | None:
        self._enter(tx)
        if self.finished or not self.started:
            self.finished = True
            raise UserError(error)
        return self._advanced(tx, lambda: self.frame.throw(tx, error))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in ("__next__", "__iter__", "send", "throw", "close"):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "close":
            return self._close(tx)
        if name == "throw":
            item = self.throw(tx, _thrown(tx, *args))
        elif name in ("send", "__next__"):
            item = self.send(tx, args[0] if args else Constant(None))
        else:
            return super().call_method(tx, name, args, kwargs)
        if item is None:
            returned = [] if is_none(self.returned) else [self.returned]
            raise UserError(new_exception(StopIteration, returned))
        return item

    def _close(self, tx: Tracer) -> Value:
        """None; from 3.13 on, what the generator returns where it is closed."""
        left: Value = Constant(None)
        if self.finished:
            return left
        try:
            self.throw(tx, new_exception(GeneratorExit, []))
        except UserError as error:
            if not issubclass(error.value.cls, GeneratorExit | StopIteration):
                raise
        else:
            if not self.finished:
                tx.raise_error(RuntimeError, "generator ignored GeneratorExit")
            if VERSION >= (3, 13):
                left = self.returned
        self.finished = True
        self.frame.let_go()
        return left

    def reconstruct(self, writer: Any) -> None:
        if self.made_by is not None and not self.started and not self.finished:
            self.made_by.write(self, writer)
        elif self.finished or self.frame.finished:
            writer.call(_exhausted, [])
        else:
            writer.load_generator(self, self.frame, self.started)
            self.rebuilt = True


def _exhausted() -> Any:
    made = (item for item in range(0))
    next(made, None)
    return made
