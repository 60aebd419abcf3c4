"""Watcher of calls that turns one answered by stale code into a script.

In: a compiled callable and what it was made from. Out: the same, looked at. Invariant: a function
is run a second time only where capture saw that it writes to nothing and that no part of it runs in
Python; what fails here is a warning, and the program goes on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.observe.records import FrameRecord

from flambeau.errors import warn
from flambeau.repro.calls_script import write_calls
from flambeau.repro.function_text import FunctionText, function_of, text_of
from flambeau.repro.stale import RecordedCall, state_of
from flambeau.testing.comparison import difference
from flambeau.testing.isolated_run import modules_of, observe

CALLS = 100
"""Calls of each compiled callable that are looked at."""


def watched_calls(compiled: Any, target: Any, place: Callable[[str], Path]) -> Any:
    """The compiled callable; a call that stale code answers becomes a script at `place(name)`.

    A module is changed in place, its class being its own; of anything else a stand-in is made.
    """
    watch = Calls(compiled, target, place)
    if isinstance(compiled, torch.nn.Module):
        kind: Any = type(compiled)
        own = kind.__call__

        def call_module(self: Any, *args: Any, **kwargs: Any) -> Any:
            return watch(functools.partial(own, self), args, kwargs)

        kind.__call__ = call_module
        return compiled

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        return watch(compiled, args, kwargs)

    return call


class Calls:
    """The calls of one compiled callable: those that compiled something are kept, as copies."""

    def __init__(self, compiled: Any, target: Any, place: Callable[[str], Path]) -> None:
        self.compiled, self.target, self.place = compiled, target, place
        self.left = CALLS
        self.kept: list[RecordedCall] = []
        self._text: FunctionText | None = None
        self._before: tuple[Any, ...] = ()

    def __call__(self, run: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        if self.left <= 0:
            return run(*args, **kwargs)
        self.left -= 1
        call, frames = self._noted(args, kwargs), len(self._frames())
        if call is not None and self.kept:
            self._look(run, call)
        result = run(*args, **kwargs)
        if call is not None and len(self._frames()) > frames:
            self.kept.append(call)
        return result

    def _frames(self) -> list[FrameRecord]:
        compiler = compiler_of(self.compiled)
        return [] if compiler is None else compiler.records.frames

    def _noted(self, args: Sequence[Any], kwargs: Any) -> RecordedCall | None:
        """The call as it is now; None where it has no form that a script could repeat."""
        try:
            function, self._before = function_of(self.target)
            self._text = text_of(function)
            state = state_of(self._text, (*self._before, *args))
            return RecordedCall(tuple(args), dict(kwargs), state).copy()
        except Exception as error:
            self._give_up(f"its calls are not looked at ({error})")
            return None

    def _look(self, run: Callable[..., Any], call: RecordedCall) -> None:
        reason = next(filter(None, map(_effect, self._frames())), None)
        if reason is not None:
            self._give_up(f"calls are not run twice to be compared ({reason}); bisect may")
            return
        try:
            given, modules = (call.args, dict(call.kwargs)), modules_of(self.target)
            expected = observe(self.target, *given, modules)
            found = difference(expected, observe(run, *given, modules))
            if found is None:
                return
            name = getattr(self._text, "name", "function")
            script = write_calls(self.place(f"{name}_calls"), self.target, [*self.kept, call])
            if script is None:
                self._give_up(f"a call is wrong ({found}), but not by the guards alone: bisect it")
            else:
                self._give_up(
                    f"a call is answered by code compiled for another ({found}): see "
                    f"{script.path} ({script.operations} statements)"
                )
        except Exception as error:  # a tool that fails must not end the program it looks at
            self._give_up(f"no script was made of a call: {type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        self.left = 0
        name = getattr(self.target, "__qualname__", type(self.target).__name__)
        warn(f"{name}: {why}")


def _effect(frame: FrameRecord) -> str | None:
    """Why a frame must not be run once more than the program runs it."""
    if frame.changes:
        return f"{frame.function} writes to {', '.join(frame.changes)}"
    if frame.outcome == "graph":
        return None
    return f"parts of {frame.function} run in Python ({frame.outcome})"
