"""Bisection from a wrong answer to the responsible step, in one call.

In: a function and arguments. Out: a `Verdict`. Invariant: layers are asked from the outermost in;
the first that is wrong is to blame, since it was given what the one before it got right.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flambeau.bisecting.in_aot import blame_aot, blame_prims
from flambeau.bisecting.in_backend import Seen, blame_backend, limited
from flambeau.bisecting.in_capture import blame_capture
from flambeau.bisecting.in_inductor import blame_inductor
from flambeau.bisecting.trials import Call, Check, TrialProgram
from flambeau.bisecting.verdict import Verdict
from flambeau.repro.check import spelled
from flambeau.testing.comparison import Difference

LAYERS: tuple[tuple[str, str], ...] = (
    ("capture", "eager"),
    ("aot", "aot_eager"),
    ("prims", "aot_eager_prims"),
    ("inductor", "inductor"),
)
"""Each layer, with the backend that ends after it."""

BLAME: Mapping[str, Callable[[TrialProgram, Difference], Verdict]] = {
    "capture": blame_capture,
    "aot": blame_aot,
    "prims": blame_prims,
    "inductor": blame_inductor,
}


def bisect(
    fn: Callable[..., Any],
    *args: Any,
    also: Sequence[Call] = (),
    check: Check | None = None,
    options: Mapping[str, object] | None = None,
    backend: str | Callable[..., Any] = "inductor",
    **kwargs: Any,
) -> Verdict:
    """Find the layer, then the pass, decomposition, fusion, kernel or lowering that is wrong.

    also: more calls `((args), {kwargs})` that are made after the first one, where it takes several
    to go wrong (a guard that does not look at what changed). check: `check(expected, got)` returns
    a `Difference` or None; by default runs are held against one without compiling and one in double
    precision. options: those of `flambeau.compile`. backend: another one than Flambeau's own: if
    the captured graphs are right, the graph is found that it gets wrong, and what in it.

    The function is run often, each time on copies of its arguments and with the state of the
    modules that it reaches put back. What else it writes to, it writes to each time.
    """
    with tempfile.TemporaryDirectory(prefix="flambeau-bisect-") as folder:
        program = TrialProgram(fn, [(args, kwargs), *also], options or {}, folder, check)
        outside = backend not in [ends for _, ends in LAYERS]
        for layer, ends in LAYERS[:1] if outside else LAYERS:
            found = program.attempt(f'backend="{ends}"', ends)
            if found is not None:
                verdict = BLAME[layer](program, found)
                return replace(verdict, difference=found, tried=tuple(program.tried))
            if ends == backend:
                break
        if outside:
            seen: Seen = []
            found = program.attempt(f"backend={spelled(backend)}", limited(backend, None, seen))
            if found is not None:
                verdict = blame_backend(program, found, backend, len(seen))
                return replace(verdict, difference=found, tried=tuple(program.tried))
        return Verdict("", tried=tuple(program.tried), note=_own_errors(program))


def _own_errors(program: TrialProgram) -> str:
    """What the program raises without being compiled, which no layer is to blame for."""
    for number, observed in enumerate(program.expected, 1):
        if observed.error is not None:
            said = f"{type(observed.error).__name__}: {str(observed.error)[:200]}"
            return f"call {number} raises without compiling, and so it does compiled: {said}"
    return ""
