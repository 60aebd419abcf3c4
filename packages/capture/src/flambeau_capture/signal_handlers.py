"""Exceptions that the program's signal handlers raise while a frame is compiled.

In: an exception that ended a stage. Out: the one below it that a handler raised, if any. Invariant:
such an exception is the program's (a timeout, a request to stop), and no fault of whoever it ended.

Python runs a handler between any two instructions of the main thread, so that its exception comes
out of whatever is being executed; it differs from any other by the handler's frame. Out of Python
that torch calls where C++ may not throw, it would end the process: there, handlers wait.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class Postponing:
    """Handlers of the main thread, which wait in all of `during` but what runs in `within`, and
    there in `postponed`. An exception of one can come between any two instructions: there is none
    where something is begun or ended, and what ends it is run again if one came first."""

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: list[Callable[[], Any]] = []
        self._replaced: dict[int, _Postponed] = {}
        self._raised: BaseException | None = None

    def during(self, run: Callable[[], T]) -> T:
        """What it returns; each handler is replaced by one that may postpone it. What one that
        has waited raises comes out of here, whoever took it for a fault."""
        if self._replaced or threading.current_thread() is not threading.main_thread():
            return run()
        try:
            self._begin()
            result = run()
            if self._raised is not None:
                raise self._raised
            return result
        finally:
            try:
                self._end()
            finally:
                self._end()

    def within(self, run: Callable[[], T]) -> T:
        """What it returns; handlers run as they are called."""
        if not self._in_force():
            return run()
        depth, self._depth = self._depth, 0
        try:
            self._handle()
            return run()
        finally:
            self._depth = depth

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """A block at whose end those handlers run that were called within."""
        if not self._in_force():
            yield
            return
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._handle()

    def called(self, handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
        """Run it, or have it wait."""
        if self._depth:
            self._waiting.append(lambda: handler(number, frame))
        else:
            handler(number, frame)

    def _in_force(self) -> bool:
        return bool(self._replaced) and threading.current_thread() is threading.main_thread()

    def _begin(self) -> None:
        self._depth = 1
        for number in _NUMBERS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._replaced[number] = _Postponed(self, handler)
                signal.signal(number, self._replaced[number])

    def _end(self) -> None:
        self._depth = 1
        while self._replaced:
            number, own = self._replaced.popitem()
            now: Any = signal.getsignal(number)
            if now is own:  # else the program has put another
                signal.signal(number, own.theirs)
        self._depth, self._raised = 0, None
        while self._waiting:
            self._waiting.pop(0)()

    def _handle(self) -> None:
        while self._waiting and not self._depth:
            try:
                self._waiting.pop(0)()
            except BaseException as error:
                self._raised = error
                raise


class _Postponed:
    """A signal handler in the place of the program's."""

    def __init__(self, postponing: Postponing, theirs: Callable[..., Any]) -> None:
        self.theirs = theirs
        self._postponing = postponing

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._postponing.called(self.theirs, number, frame)


#: of the one thread that runs handlers
HANDLERS = Postponing()
_NUMBERS = tuple(sorted(signal.valid_signals()))


def raised_by_handler(error: BaseException) -> BaseException | None:
    """The exception among `error` and those it was raised from that came out of a handler."""
    chain = [*_raised_from(error)]
    codes = {*_handlers()}
    for each in reversed(chain):
        if codes & {*_frames(each.__traceback__)}:
            return each
    return None


def _raised_from(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _handlers() -> Iterator[CodeType]:
    """The code of the functions that are installed."""
    for number in _NUMBERS:
        handler: Any = signal.getsignal(number)
        if isinstance(handler, _Postponed):
            handler = handler.theirs
        if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
            handler = inspect.getattr_static(type(handler), "__call__", None)
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _frames(traceback: TracebackType | None) -> Iterator[CodeType]:
    while traceback is not None:
        yield traceback.tb_frame.f_code
        traceback = traceback.tb_next
