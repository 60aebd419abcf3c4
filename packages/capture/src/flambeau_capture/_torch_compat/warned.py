"""Warnings that torch gives while an operator is tried on fake tensors.

In: a call that is about to be tried. Out: what it warns of: a warning of a Python function ends the
try (`Warns`), one of C++ is handed over. Invariant: none of this thread's is shown, no registry of
warnings remembers one, and other threads warn as they do.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import torch

_OPERATORS = torch._ops.__file__
_IMPORTS = "<frozen importlib"


class Warns(BaseException):
    """A Python function of torch gives a warning, which is to come at each call.

    No handler of torch's takes it.
    """


class _Collector:
    """What one thread collects; a filter's pattern of any text that this thread warns of."""

    def __init__(self, asker: CodeType) -> None:
        self.asker = asker
        self.thread = threading.get_ident()
        self.filters: list[Any] = warnings.filters  # type: ignore[assignment]
        self.found: list[tuple[str, type[Warning]]] = []

    def match(self, text: str) -> bool:
        return self.is_now()

    def is_now(self) -> bool:
        """Whether this thread tries an operator, and no filters of torch's own are in force."""
        return threading.get_ident() == self.thread and warnings.filters is self.filters


#: by thread; `warnings` is patched while there is one
_collectors: dict[int, _Collector] = {}
_patching = threading.Lock()
_show, _warn = warnings._showwarnmsg, warnings.warn  # type: ignore[attr-defined]


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[tuple[str, type[Warning]]]]:
    """The list holds text and category of what C++ warned of, once the block has ended."""
    own = _Collector(sys._getframe(2).f_code)
    outer = _collectors.get(own.thread)
    rule = ("always", own, Warning, None, 0)
    own.filters.insert(0, rule)
    _collect_for(own.thread, own)
    try:
        yield own.found
    finally:
        _collect_for(own.thread, outer)
        own.filters.remove(rule)


def _collect_for(thread: int, collector: _Collector | None) -> None:
    """The collector of a thread; the first patches `warnings`, and the last puts it back."""
    global _show, _warn
    with _patching:
        if collector is None:
            del _collectors[thread]
            if not _collectors:
                warnings._showwarnmsg, warnings.warn = _show, _warn  # type: ignore[attr-defined]
            return
        if not _collectors:
            _show, _warn = warnings._showwarnmsg, warnings.warn  # type: ignore[attr-defined]
            warnings._showwarnmsg, warnings.warn = _collect, _refuse  # type: ignore[attr-defined]
        _collectors[thread] = collector


def _collector_now() -> _Collector | None:
    collector = _collectors.get(threading.get_ident())
    return collector if collector is not None and collector.is_now() else None


def _collect(message: Any) -> None:
    collector = _collector_now()
    if collector is None:
        _show(message)
    else:
        collector.found.append((str(message.message), message.category))


def _refuse(*args: Any, **kwargs: Any) -> None:
    collector = _collector_now()
    within = [] if collector is None else list(_codes(sys._getframe(1), collector.asker))
    if collector is None or any(code.co_filename.startswith(_IMPORTS) for code in within):
        kwargs["stacklevel"] = _level(args, kwargs) + 1  # by an import once, not at each call
        _warn(*args[:2], **kwargs)
    elif not any(map(_dispatches, within)):
        raise Warns


def _level(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return int(args[2] if len(args) > 2 else kwargs.get("stacklevel", 1))


def _codes(frame: FrameType | None, asker: CodeType) -> Iterator[CodeType]:
    """What runs, from a frame out to where the operator is tried."""
    while frame is not None and frame.f_code is not asker:
        yield frame.f_code
        frame = frame.f_back


def _dispatches(code: CodeType) -> bool:
    """Whether below it kernels of fake tensors run, which no real tensor does."""
    return code.co_name == "__torch_dispatch__" or code.co_filename == _OPERATORS
