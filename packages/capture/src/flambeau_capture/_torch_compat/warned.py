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


class Warns(BaseException):
    """A Python function of torch gives a warning, which is to come at each call; no handler takes it."""


class _OfThisThread:
    """A filter's pattern of any text: that of what one thread warns of."""

    def __init__(self, filters: list[Any]) -> None:
        self.thread = threading.get_ident()
        self.filters = filters

    def match(self, text: str) -> bool:
        return self.is_now()

    def is_now(self) -> bool:
        """Whether this thread tries an operator, and no filters of torch's own are in force."""
        return threading.get_ident() == self.thread and warnings.filters is self.filters


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[tuple[str, type[Warning]]]]:
    """The list holds text and category of what C++ warned of, once the block has ended."""
    own = _OfThisThread(warnings.filters)  # type: ignore[arg-type]
    asker = sys._getframe(2).f_code
    found: list[tuple[str, type[Warning]]] = []
    rule = ("always", own, Warning, None, 0)
    show, warn = warnings._showwarnmsg, warnings.warn  # type: ignore[attr-defined]

    def collect(message: Any) -> None:
        if own.is_now():
            found.append((str(message.message), message.category))
        else:
            show(message)

    def refuse(*args: Any, **kwargs: Any) -> None:
        if not own.is_now():
            kwargs["stacklevel"] = _level(args, kwargs) + 1
            warn(*args[:2], **kwargs)
        elif not _below_dispatch(sys._getframe(1), asker):
            raise Warns

    own.filters.insert(0, rule)
    warnings._showwarnmsg, warnings.warn = collect, refuse  # type: ignore[attr-defined]
    try:
        yield found
    finally:
        warnings._showwarnmsg, warnings.warn = show, warn  # type: ignore[attr-defined]
        own.filters.remove(rule)


def _level(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return int(args[2] if len(args) > 2 else kwargs.get("stacklevel", 1))


def _below_dispatch(frame: FrameType | None, asker: CodeType) -> bool:
    """Whether kernels of fake tensors warn, which no real tensor runs."""
    while frame is not None and frame.f_code is not asker:
        code, frame = frame.f_code, frame.f_back
        if code.co_name == "__torch_dispatch__" or code.co_filename == _OPERATORS:
            return True
    return False
