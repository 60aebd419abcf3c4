"""Exceptions that the program's signal handlers raise while a frame is compiled.

In: an exception that ended a stage. Out: the one below it that a handler raised, if any. Invariant:
such an exception is the program's (a timeout, a request to stop), and no fault of whoever it ended.

Python runs a handler between any two instructions of the main thread, so that its exception comes
out of whatever is being executed; it differs from any other by the handler's frame.
"""

from __future__ import annotations

import inspect
import signal
from collections.abc import Iterator
from types import CodeType, TracebackType


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
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
            handler = inspect.getattr_static(type(handler), "__call__", None)
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _frames(traceback: TracebackType | None) -> Iterator[CodeType]:
    while traceback is not None:
        yield traceback.tb_frame.f_code
        traceback = traceback.tb_next
