"""Replay of a recorded frame without its program.

In: the path of a record. Out: the result of the frame, captured again. Invariant: a fault of
capture is raised. A record has code and pickles: replay only what you trust.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from flambeau_capture.api import compile
from flambeau_capture.errors import ReplayError
from flambeau_capture.observe.frame_recording import RecordedFrame, load


def replay(path: str, backend: Any = "eager", **choices: Any) -> Any:
    """Capture and run the frame of a record; returns its result.

    A fault of capture is raised, not a fall back to eager. Raises `ReplayError` where
    the record lacks an argument or a closure's variable.
    """
    state = load(path)
    lost = [text for text in state.missing if not text.startswith("global")]
    if lost:
        raise ReplayError(f"{path} cannot be replayed: it lacks {'; '.join(lost)}")
    function = _rebuilt(state)
    args, kwargs = _call_arguments(state)
    run: Callable[..., Any] = compile(function, backend, raise_internal_errors=True, **choices)
    return run(*args, **kwargs)


def _rebuilt(state: RecordedFrame) -> types.FunctionType:
    code = state.code
    scope = dict(state.namespace) | {"__builtins__": __builtins__}
    cells = tuple(
        types.CellType(state.free[name]) if name in state.free else types.CellType()
        for name in code.co_freevars
    )
    return types.FunctionType(code, scope, code.co_name, None, cells)


def _call_arguments(state: RecordedFrame) -> tuple[list[Any], dict[str, Any]]:
    code = state.code
    names: Iterator[str] = iter(code.co_varnames)
    args = [state.arguments[name] for name in islice(names, code.co_argcount)]
    kwargs = {name: state.arguments[name] for name in islice(names, code.co_kwonlyargcount)}
    if code.co_flags & 0x04:  # CO_VARARGS
        args += state.arguments[next(names)]
    if code.co_flags & 0x08:  # CO_VARKEYWORDS
        kwargs |= state.arguments[next(names)]
    return args, kwargs
