"""Calls that stale code answers, found while the program runs, as a script.

In: a compiled callable and what it was made from; or a function and calls of which the last goes
wrong. Out: a file, with tensors and modules next to it where text does not do. Invariant: what a
script shows was seen to fail with the very values that it makes; a function is run a second time
only where capture saw that it writes to nothing, and what fails here is a warning.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flambeau_capture.api import compiler_of
from flambeau_capture.observe.records import FrameRecord

from flambeau._torch_compat import pytree
from flambeau.errors import warn
from flambeau.repro.check import GraphFailure
from flambeau.repro.function_text import (
    CannotWrite,
    FunctionText,
    function_of,
    is_constant,
    text_of,
)
from flambeau.repro.script import Script, drawing_of, drawn_like, quoted, save_script
from flambeau.repro.stale import RecordedCall, ShortFunction, shorten, stale, state_of
from flambeau.testing.comparison import difference, modules_of, observe

STALE = "stale"


def write_calls(
    path: Path, target: Callable[..., Any], calls: Sequence[RecordedCall]
) -> Script | None:
    """Find two of the calls that go wrong, shorten the function, write the script.

    None where no two of them do: the last is right after each of the others, or wrong alone.
    Raises CannotWrite for a function without source, or that reads what a script cannot make.
    """
    function, before = function_of(target)
    text = text_of(function)
    *earlier, last = (replace(call, args=(*before, *call.args)) for call in calls)
    try:
        made = text.function()
        misleading = (call for call in reversed(earlier) if stale(made, [call, last]) is not None)
        first = next(misleading, None)
    except Exception as error:  # the text alone does not run: a default that is computed, say
        raise CannotWrite(f"{text.name} does not run by its text alone: {error}") from error
    short = None if first is None else shorten(text, [first, last])
    return None if short is None else _write(path, _with_bare_modules(short))


def _write(path: Path, short: ShortFunction) -> Script:
    text, held = short.text, dict(short.text.held)
    drawn = [_with_drawn(call) for call in short.calls]
    found = stale(text.function(), drawn)
    failure = GraphFailure(STALE, str(found or short.difference))
    calls = short.calls if found is None else drawn
    texts = [_call_text(call, held, found is None) for call in calls]
    bare = [name for name, value in held.items() if type(value) is torch.nn.Module]
    kept = {name: value for name, value in held.items() if name not in bare}
    for name, value in kept.items():
        for inner in value.modules() if isinstance(value, torch.nn.Module) else ():
            if type(inner).__module__ == "__main__":  # a script would not find it
                own = f"{name} is a {type(inner).__qualname__}"
                raise CannotWrite(f"{own}: put its class into a file that can be imported")
    body = [f"{name} = HELD[{name!r}]" for name in text.held if name in kept]
    body += [f"{name} = torch.nn.Module()" for name in bare]
    body += [*text.lines(), "", "", "CALLS = [", *(f"    {each}," for each in texts), "]"]
    about = ["A call that is answered by code compiled for another: a guard is missing.", ""]
    about += [*quoted(str(failure)), ""]
    about += ["Run it to see: it exits with 1 while the last call goes wrong, with 0 once it does"]
    about += ["not. Each call: its arguments, and what the function finds around it."]
    imports = [line for line in text.imports if line != "import torch"]
    imports += ["", "from flambeau.repro import RecordedCall, drawn, run_calls"]
    beside = {"HELD": kept} if kept else {}
    save_script(path, about, imports, beside, body, f"run_calls({text.name}, CALLS)")
    return Script(path, failure, text.statements, found is None)


def run_calls(function: Callable[..., Any], calls: Sequence[RecordedCall]) -> int:
    """What a script does: 1 and the failure while the last call goes wrong, 0 once it does not."""
    found = stale(function, calls)
    print("it does not fail any more" if found is None else f"{STALE}: {found}")
    return 0 if found is None else 1


def _with_bare_modules(short: ShortFunction) -> ShortFunction:
    """Modules without anything but plain values in place of arguments, where that still fails."""
    kept = short.calls[-1].args
    for at, module in enumerate(kept):
        if not isinstance(module, torch.nn.Module):
            continue
        bare = torch.nn.Module()
        calls = [
            replace(call, args=(*call.args[:at], bare, *call.args[at + 1 :]))
            for call in short.calls
            if len(call.args) > at and call.args[at] is module
        ]
        if len(calls) < len(short.calls):
            continue
        try:
            found = stale(short.text.function(), calls)
        except (AttributeError, TypeError):  # more of the module is needed than plain values
            continue
        if found is not None:
            short = replace(short, calls=tuple(calls), difference=found)
    return short


def _with_drawn(call: RecordedCall) -> RecordedCall:
    """The call with numbers from a seed in place of its tensors."""
    numbers = itertools.count()
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda value: drawn_like(value, next(numbers)), (call.args, dict(call.kwargs))
    )
    return replace(call, args=args, kwargs=kwargs)


@dataclass
class _Spelling:
    """Arguments of a call as source; what has no text goes into `held`, once."""

    held: dict[str, Any]
    saved: bool
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def spelled(self, value: Any) -> str:
        if is_constant(value):
            return repr(value)
        if isinstance(value, torch.Tensor) and not self.saved:
            return drawing_of(value, next(self.numbers))
        if isinstance(value, torch.Tensor | torch.nn.Module):
            bare = type(value) is torch.nn.Module
            same = (name for name, each in self.held.items() if each is value)
            name = next(same, f"MODULE_{len(self.held)}" if bare else f"value {len(self.held)}")
            self.held[name] = value
            return name if bare else f"HELD[{name!r}]"
        if type(value) in (list, tuple):
            inside = ", ".join(map(self.spelled, value))
            comma = "," if type(value) is tuple and len(value) == 1 else ""
            return f"[{inside}]" if type(value) is list else f"({inside}{comma})"
        if type(value) is dict and all(map(is_constant, value)):
            return "{" + ", ".join(f"{k!r}: {self.spelled(v)}" for k, v in value.items()) + "}"
        raise CannotWrite(f"an argument is a {type(value).__name__}")


def _call_text(call: RecordedCall, held: dict[str, Any], saved: bool) -> str:
    """A call as source; what has no text goes into `held`, once."""
    spelled = _Spelling(held, saved).spelled
    parts = [spelled(tuple(call.args))]
    if call.kwargs:
        parts.append(f"kwargs={spelled(dict(call.kwargs))}")
    if call.state:
        parts.append(f"state={call.state!r}")
    return f"RecordedCall({', '.join(parts)})"


CALLS = 100
"""Calls of each compiled callable that are looked at."""


def watched_calls(compiled: Any, target: Any, place: Callable[[str], Path]) -> Any:
    """The compiled callable; a call that stale code answers becomes a script at `place(name)`.

    A module is changed in place, its call being its own; of anything else a stand-in is made.
    """
    watch = Calls(compiled, target, place)
    is_module = isinstance(compiled, torch.nn.Module)
    own = compiled.__call__ if is_module else compiled

    @functools.wraps(own)
    def call(*args: Any, **kwargs: Any) -> Any:
        return watch(own, args, kwargs)

    if not is_module:
        return call
    object.__setattr__(compiled, "__call__", call)
    return compiled


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
