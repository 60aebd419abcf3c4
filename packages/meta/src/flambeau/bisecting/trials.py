"""Trials of a bisection: compile under restrictions, run, compare with eager; and its verdict.

In: a program with its calls, a backend. Out: the difference from the program as it is. Invariant:
every trial compiles from nothing, in a cache folder of its own, and leaves no trace in the program;
a verdict names what was tried, so that any step can be repeated.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import flambeau_capture
import torch
from flambeau_capture import CaptureWarning
from flambeau_capture.api import uncompiled

from flambeau.backends import resolve
from flambeau.backends.request import Backend, Request
from flambeau.choices import choose
from flambeau.errors import FlambeauWarning
from flambeau.events.bus import Listener
from flambeau.events.records import RecordCollector
from flambeau.shown import Shown
from flambeau.testing.comparison import (
    Difference,
    Observed,
    difference,
    in_double,
    modules_of,
    observe,
)


@dataclass(frozen=True)
class Tried:
    """One compile of the program, and whether it was right."""

    how: str
    difference: Difference | None

    def __str__(self) -> str:
        return f"{self.how}: {'right' if self.difference is None else self.difference}"


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """Where it goes wrong; `layer` is empty where nothing does.

    layer: `capture`, `aot`, `prims`, `inductor`, or `backend` for one from outside. step: what in
    it: a frame, a guard, a pass, a decomposition, a fusion, a kernel, a lowering, operations.
    name: of that step. graph, half, lines: where it is in the program. avoid: arguments of
    `flambeau.compile` without which it goes wrong. note: what else whoever reads it should know.
    """

    layer: str
    difference: Difference | None = None
    step: str = ""
    name: str = ""
    graph: str = ""
    half: str = ""
    lines: tuple[str, ...] = ()
    avoid: dict[str, Any] = field(default_factory=dict)
    tried: tuple[Tried, ...] = ()
    note: str = ""

    def __bool__(self) -> bool:
        return bool(self.layer)

    def __str__(self) -> str:
        if not self.layer:
            text = [f"nothing is wrong in any layer ({len(self.tried)} compiles)"]
            return "\n  ".join([*text, *filter(None, [self.note])])
        where = f" in {self.graph}" if self.graph else ""
        half = f" ({self.half})" if self.half else ""
        text = [f"{self.layer}: {self.step} {self.name}".rstrip() + where + half]
        text.append(f"  {self.difference}")
        text += [f"  {line}" for line in self.lines]
        if self.avoid:
            given = ", ".join(f"{key}={value!r}" for key, value in self.avoid.items())
            text.append(f"  until it is fixed: flambeau.compile(..., {given})")
            if "Fuel(" in given:
                text.append("    (from flambeau_inductor import Fuel)")
        if self.note:
            text.append(f"  {self.note}")
        text += ["  tried:", *(f"    {each}" for each in self.tried)]
        return "\n".join(text)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            **{key: getattr(self, key) for key in ("layer", "step", "name", "graph", "half")},
            "lines": list(self.lines),
            "difference": None if self.difference is None else str(self.difference),
            "avoid": {key: repr(value) for key, value in self.avoid.items()},
            "tried": [str(each) for each in self.tried],
            "note": self.note,
        }


Call = tuple[tuple[Any, ...], dict[str, Any]]
Check = Callable[[Observed, Observed], Difference | None]
MakeBackend = Callable[[Request], Backend]


@dataclass
class TrialProgram:
    """A function with the calls that are made of it, and what they give without compiling."""

    fn: Callable[..., Any]
    calls: Sequence[Call]
    options: Mapping[str, object]
    cache_dir: str
    check: Check | None = None
    modules: list[torch.nn.Module] = field(init=False)
    expected: list[Observed] = field(init=False)
    exact: list[Observed | None] = field(init=False)
    tried: list[Tried] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.fn = uncompiled(self.fn)
        self.modules = modules_of(self.fn)
        with flambeau_capture.set_stance("eager"):  # what it calls may be compiled as well
            self.expected = [observe(self.fn, *each, self.modules) for each in self.calls]
            self.exact = [in_double(self.fn, *each, self.modules) for each in self.calls]

    def attempt(
        self,
        how: str,
        backend: str | MakeBackend,
        *,
        listener: Listener | None = None,
        tailor: Callable[..., Any] | None = None,
        capture: Mapping[str, Any] | None = None,
        inductor: Mapping[str, Any] | None = None,
        afresh: bool = False,
    ) -> Difference | None:
        """Compile, with eager's random numbers, make every call, and return the first difference.

        listener, tailor: see `EventBus`. afresh: forget what was compiled before each call.
        capture, inductor: options of theirs. A graph that a stage could not compile counts as a
        difference.
        """
        recorder = RecordCollector()
        recorder.watch.tailor = tailor
        if listener is not None:
            recorder.watch.own.add(listener)
        choices = choose(None, self.options).comparable()
        own = {"cache_dir": self.cache_dir, **(inductor or {})}
        request = Request(replace(choices, inductor=replace(choices.inductor, **own)), recorder)
        made = resolve(backend, request) if isinstance(backend, str) else backend(request)
        options = replace(choices.capture, **(capture or {}))
        compiled = flambeau_capture.optimize(made, options=options)(self.fn)
        found = None
        for place, (args, kwargs) in enumerate(self.calls):
            if afresh:
                flambeau_capture.reset()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FlambeauWarning)
                warnings.simplefilter("ignore", CaptureWarning)
                got = observe(compiled, args, kwargs, self.modules)
            check = self.check or partial(difference, exact=self.exact[place])
            found = check(self.expected[place], got)
            if found is not None and len(self.calls) > 1:
                found = replace(found, place=f"call {place + 1}, {found.place}")
            found = found or _failure(recorder)
            if found is not None:
                break
        self.tried.append(Tried(how, found))
        return found


def _failure(recorder: RecordCollector) -> Difference | None:
    """The first failure to compile, with where it was raised, for whoever mends it."""
    for failure in recorder.report().fallbacks:
        error = failure.error
        place = f" ({failure.raised_at})" if failure.raised_at else ""
        said = f"{type(error).__name__}: {str(error)[:300]}{place}"
        return Difference(f"compiling {failure.graph}", "a compiled graph", said)
    return None
