"""Coroutines and asynchronous generators as values, interpreted step by step.

In: the frame of an `async def` function of the program. Out: `CoroutineValue`,
`AsyncGeneratorValue`; `awaited`, what `await` goes over. Invariant: nothing here knows an event
loop: what suspends does so to whoever drives it, and who drives it is the program.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    Tracer,
    Unreconstructible,
    UserError,
    Value,
    suppressed,
)
from flambeau_capture.values.constant import NONE, Constant, is_none
from flambeau_capture.values.iterators.generators import GeneratorValue, Resumable
from flambeau_capture.values.objects.exceptions import new_exception


async def _coroutine() -> None: ...


async def _generator() -> Any:
    yield


def ended(generator: bool) -> Any:
    """A coroutine, or an asynchronous generator, at its end."""
    made: Any = _generator() if generator else _coroutine()
    if generator:
        try:
            made.aclose().send(None)
        except StopIteration:
            pass
    else:
        made.close()
    return made


def class_of_made(made: Any) -> type:
    """The class of what a method has answered, which has no other name."""
    made.close()
    return type(made)


class NotIterable(Resumable):
    """What is advanced by `await` alone."""

    def iterate(self, tx: Tracer) -> IteratorValue:
        tx.raise_error(TypeError, f"'{self.cls.__name__}' object is not iterable")


class CoroutineValue(GeneratorValue, NotIterable):
    """A coroutine whose frame is interpreted step by step."""

    python_class: type = types.CoroutineType
    names = ("__await__", "send", "throw", "close")

    def waits(self) -> bool:
        return super().waits() or not (self.started or self.finished)

    def _again(self, tx: Tracer) -> Value | None:
        tx.raise_error(RuntimeError, "cannot reuse already awaited coroutine")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__await__":
            return CoroutineWrapper(self)
        return super().call_method(tx, name, args, kwargs)

    def drop(self, tx: Tracer) -> None:
        if not self.started:
            raise Break("FB0021", f"{self.describe()} is never awaited, of which Python warns")
        super().drop(tx)

    def reconstruct(self, writer: Any) -> None:
        if self.finished:
            writer.call(ended, [Constant(False)])
        else:
            super().reconstruct(writer)


class CoroutineWrapper(Resumable):
    """What `__await__` of a coroutine answers."""

    cls: type = class_of_made(ended(False).__await__())

    def __init__(self, coroutine: CoroutineValue) -> None:
        self.coroutine = coroutine

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        item = self.coroutine.send(tx, sent)
        self.returned = self.coroutine.returned
        return item

    def throw(self, tx: Tracer, given: Args, exits: bool = True) -> Value | None:
        item = self.coroutine.throw(tx, given, exits)
        self.returned = self.coroutine.returned
        return item

    def close(self, tx: Tracer) -> Value:
        return self.coroutine.close(tx)

    def reconstruct(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(types.CoroutineType.__await__, [self.coroutine])


class YieldedValue(Value):
    """What a `yield` of an asynchronous generator gives, unlike what an `await` in it does."""

    described = "an item of an asynchronous generator"

    def __init__(self, item: Value) -> None:
        self.item = item


class AsyncGeneratorValue(GeneratorValue, NotIterable):
    """An asynchronous generator; `stepping`: one of its steps is under way, `closed`: it ended."""

    python_class: type = types.AsyncGeneratorType
    names = ("__aiter__", "__anext__", "asend", "athrow", "aclose")
    stepping = closed = hooked = False

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name not in self.names:
            return super().call_method(tx, name, args, kwargs)
        if name == "__aiter__":
            return self
        if not self.hooked:
            self.hooked = True
            self._without_hooks(tx)
        if name in ("__anext__", "asend"):
            return AsyncStep(self, *args)
        return AsyncEnd(self, args)

    def is_running(self) -> bool:
        return self.stepping

    def _without_hooks(self, tx: Tracer) -> None:
        """An event loop's hooks are called with the generator itself."""
        if has_hooks():
            raise Break("FB0021", f"{self.describe()} is shown to the hooks of an event loop")
        tx.guard(ConstantSource(has_hooks, "has_hooks"), "ANSWER", False)

    def reconstruct(self, writer: Any) -> None:
        if self.finished:
            writer.call(ended, [Constant(True)])
        elif self.started:
            raise Unreconstructible(self, f"{self.describe()} that has begun")
        else:
            super().reconstruct(writer)


def has_hooks() -> bool:
    """Whether this thread has hooks of asynchronous generators, as an event loop sets them."""
    return any(sys.get_asyncgen_hooks())


class AsyncStep(Resumable):
    """What `asend` and `__anext__` of an asynchronous generator answer."""

    cls: type = class_of_made(ended(True).__anext__())
    names = (*Resumable.names, "__await__")
    reused = "cannot reuse already awaited __anext__()/asend()"
    called = "anext"

    def __init__(self, made: AsyncGeneratorValue, sent: Value = NONE) -> None:
        self.made = made
        self.step = made.step
        self.sent = sent
        self.begun = self.ended = False

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__await__":
            return self
        return super().call_method(tx, name, args, kwargs)

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        self._enter(tx)
        if not self.begun:
            self._begin(tx)
            sent = self.sent if is_none(sent) else sent
        return self._item(tx, partial(self.made.send, tx, sent))

    def throw(self, tx: Tracer, given: Args, exits: bool = True) -> Value | None:
        self._enter(tx)
        if not self.begun and VERSION >= (3, 13):
            self._begin(tx)
        return self._item(tx, partial(self.made.throw, tx, given))

    def close(self, tx: Tracer) -> Value:
        tx.heap.changed()
        if self.ended or VERSION < (3, 13):
            self.ended = True
            return NONE
        item = None
        with suppressed(StopAsyncIteration, GeneratorExit):
            item = self.throw(tx, [new_exception(GeneratorExit, [])])
        if item is not None:
            tx.raise_error(RuntimeError, "coroutine ignored GeneratorExit")
        return NONE

    def _enter(self, tx: Tracer) -> None:
        tx.heap.changed()
        if self.ended:
            tx.raise_error(RuntimeError, self.reused)

    def _begin(self, tx: Tracer) -> None:
        if self.made.stepping:
            self.ended = True
            said = f"{self.called}(): asynchronous generator is already running"
            tx.raise_error(RuntimeError, said)
        self.begun = self.made.stepping = True

    def _item(self, tx: Tracer, run: Callable[[], Value | None]) -> Value | None:
        """What is awaited next; None where the generator has given its next item, `returned`."""
        try:
            item = run()
            if item is None:
                tx.raise_error(StopAsyncIteration)
        except UserError as error:
            self._end()
            if issubclass(error.value.cls, StopAsyncIteration | GeneratorExit):
                self.made.closed = True
                return self._stopped(error)
            raise
        if isinstance(item, YieldedValue):
            self._end()
            return self._given(tx, item.item)
        return item

    def _end(self) -> None:
        self.made.stepping, self.ended = False, True

    def _stopped(self, error: UserError) -> Value | None:
        raise error

    def _given(self, tx: Tracer, item: Value) -> Value | None:
        self.returned = item
        return None

    def reconstruct(self, writer: Any) -> None:
        if self.begun or self.ended:
            raise Unreconstructible(self, f"a step of {self.made.describe()} that has begun")
        with writer.building(self):
            writer.call(types.AsyncGeneratorType.asend, [self.made, self.sent])


class AsyncEnd(AsyncStep):
    """What `athrow` and, with no arguments, `aclose` answer."""

    cls: type = class_of_made(ended(True).aclose())
    reused = "cannot reuse already awaited aclose()/athrow()"

    def __init__(self, made: AsyncGeneratorValue, given: Args) -> None:
        super().__init__(made)
        self.given = given
        self.called = "athrow" if given else "aclose"

    def send(self, tx: Tracer, sent: Value) -> Value | None:
        self._enter(tx)
        if self.made.finished:
            self.ended = True
            return None
        if self.begun:
            return self._item(tx, partial(self.made.send, tx, sent))
        self._begin(tx)
        if self.made.closed or not is_none(sent):
            self._end()
            if self.made.closed:
                tx.raise_error(StopAsyncIteration)
            tx.raise_error(RuntimeError, "can't send non-None value to a just-started coroutine")
        given = self.given
        if not given:
            self.made.closed = True
            given = [new_exception(GeneratorExit, [])]
        return self._item(tx, partial(self.made.throw, tx, given, False))

    def _stopped(self, error: UserError) -> Value | None:
        if self.given:
            raise error
        return None

    def _given(self, tx: Tracer, item: Value) -> Value | None:
        if self.given:
            return super()._given(tx, item)
        tx.raise_error(RuntimeError, "async generator ignored GeneratorExit")

    def reconstruct(self, writer: Any) -> None:
        if self.begun or self.ended:
            super().reconstruct(writer)
        method = types.AsyncGeneratorType.athrow if self.given else types.AsyncGeneratorType.aclose
        with writer.building(self):
            writer.call(method, [self.made, *self.given])


def generator_of(frame: Any, step: int) -> GeneratorValue:
    """What a call makes whose frame runs in pieces."""
    flags = frame.code.co_flags
    if flags & inspect.CO_COROUTINE:
        return CoroutineValue(frame, step)
    return (AsyncGeneratorValue if flags & inspect.CO_ASYNC_GENERATOR else GeneratorValue)(
        frame, step
    )
