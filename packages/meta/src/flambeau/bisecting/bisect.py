"""Bisection from a wrong answer to the responsible step, in one call.

In: a function and arguments. Out: a `Verdict`. Invariant: layers are tried from the outermost in;
the first that is wrong is to blame, since it was given what the one before it got right. A guard is
blamed only where the same call is right when nothing was compiled before it; a decomposition, by
adding them one by one in the order in which the program needs them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import flambeau_aot
import flambeau_prims
from flambeau_capture.observe.records import EntryRecord
from torch import fx

from flambeau.backends import resolve
from flambeau.backends.composed import AotEngine, as_it_is
from flambeau.backends.fallback import graph_name, with_fallback
from flambeau.backends.request import Backend, Request
from flambeau.bisecting.in_inductor import blame_inductor
from flambeau.bisecting.trials import Call, Check, MakeBackend, TrialProgram, Verdict
from flambeau.events.stage_products import called, user_lines_of
from flambeau.repro.check import GraphCheck, spelled
from flambeau.repro.shrink import shrink
from flambeau.testing.comparison import Difference, copied, copied_graph, first_bad

CALL = re.compile(r"call (\d+), ")


def blame_capture(program: TrialProgram, found: Difference) -> Verdict:
    """A guard, a frame, or capture as a whole."""
    entries: list[EntryRecord] = []
    program.attempt("again, looking at its frames", "eager", capture=_noted_in(entries))
    if len(program.calls) > 1:
        afresh: list[EntryRecord] = []
        right = program.attempt(
            "each call compiled afresh", "eager", afresh=True, capture=_noted_in(afresh)
        )
        if right is None:
            return _guard(entries, afresh, _fewest_calls(program, found))
    names = list(dict.fromkeys(entry.function for entry in entries))
    for name in names if len(names) > 1 else []:
        only = {"debug_function": name}
        wrong = program.attempt(f"only frames of {name}", "eager", capture=only)
        if wrong is not None:
            return Verdict("capture", step="frame", name=name, lines=_places(entries, name))
    name = names[0] if len(names) == 1 else ""
    return Verdict("capture", step="frame", name=name, lines=_places(entries, name))


def _noted_in(entries: list[EntryRecord]) -> dict[str, Any]:
    """Options of capture with which the entries of a run are noted."""

    def watch(kind: str, record: object) -> None:
        if isinstance(record, EntryRecord):
            entries.append(record)

    return {"watch": watch}


def _fewest_calls(program: TrialProgram, found: Difference) -> str:
    """Two of the calls that go wrong alone, if two do: one that compiles, one that it misleads."""
    number = CALL.match(found.place)
    if number is None:
        return ""
    calls, last = program.calls, int(number[1]) - 1
    for first in range(last):
        two = replace(program, calls=[calls[first], calls[last]])
        if two.attempt(f"calls {first + 1} and {last + 1} alone", "eager") is not None:
            program.tried += two.tried
            return f"it takes call {first + 1} and then call {last + 1}"
    return ""


def _guard(entries: list[EntryRecord], afresh: list[EntryRecord], fewest: str) -> Verdict:
    """An entry was used that should not have been: what a new one would have guarded."""
    had = {str(guard) for entry in entries for guard in entry.guards.items}
    lacks = [
        str(guard) for entry in afresh for guard in entry.guards.items if str(guard) not in had
    ]
    used = entries[-1].function if entries else ""
    what = f"of {used}: an entry was used for a call that it does not fit"
    lines = tuple(f"a new entry would also guard {guard}" for guard in dict.fromkeys(lacks))
    lines = (lines or _places(entries, used)) + ((fewest,) if fewest else ())
    note = "a script of the two calls: flambeau.repro.write_calls(path, fn, [Call(args), ...])"
    return Verdict("capture", step="guards", name=what, lines=lines, note=note)


def _places(entries: list[EntryRecord], name: str) -> tuple[str, ...]:
    found = [f"{e.filename}:{e.lineno} {e.function}" for e in entries if e.function == name]
    return tuple(dict.fromkeys(found))


Table = Mapping[Any, Callable[..., Any]]


def through(decompositions: Table, *, simplify: bool = True, **partition: Any) -> MakeBackend:
    """A backend that runs what ahead-of-time autograd makes, with these choices."""

    def make(request: Request) -> Backend:
        aot = replace(request.choices.aot, simplify=simplify)
        own = replace(request, choices=replace(request.choices, aot=aot))
        engine = AotEngine(own, as_it_is, lambda: decompositions, partition)
        return with_fallback(engine, request, "aot")

    return make


def blame_aot(program: TrialProgram, found: Difference) -> Verdict:
    """The pass without which it is right; else tracing itself."""
    ways: tuple[tuple[str, str, MakeBackend], ...] = (
        ("simplify", "without simplifying", through({}, simplify=False)),
        (
            "partition",
            "saving everything for backward",
            through({}, partition=flambeau_aot.save_all),
        ),
    )
    for name, how, backend in ways:
        if program.attempt(how, backend) is None:
            avoid = {"options": {"aot.simplify": False}} if name == "simplify" else {}
            return Verdict("aot", step="pass", name=name, avoid=avoid)
    return Verdict("aot", step="pass", name="trace", avoid={"backend": "eager"})


def blame_prims(program: TrialProgram, found: Difference) -> Verdict:
    """The first decomposition with which it goes wrong."""
    table = flambeau_prims.decompositions()
    used: dict[Any, str] = {}
    program.attempt("again, noting the decompositions", through(_noting(table, used)))
    order = list(used)

    def with_first(count: int) -> bool:
        some = {op: table[op] for op in order[:count]}
        return program.attempt(f"{count} of {len(order)} decompositions", through(some)) is not None

    number = first_bad(len(order), with_first)
    if number is None:
        return Verdict("prims", step="decompositions", name="(only all of them together)")
    op = order[number - 1]
    avoid = {"backend": "aot_eager"}
    return Verdict("prims", step="decomposition", name=str(op), lines=(used[op],), avoid=avoid)


def _noting(table: Table, used: dict[Any, str]) -> Table:
    """The table; what is used of it is noted in order."""

    def noted(op: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            result = rule(*args, **kwargs)
            if result is not NotImplemented:
                module = str(getattr(rule, "__module__", ""))
                used.setdefault(op, f"{module}.{getattr(rule, '__qualname__', rule)}")
            return result

        return run

    return {op: noted(op, rule) for op, rule in table.items()}


Given = str | Callable[..., Any]
Seen = list[tuple[fx.GraphModule, list[Any]]]


def limited(backend: Given, count: int | None, seen: Seen) -> MakeBackend:
    """A backend that compiles the first `count` graphs and runs the others as they are."""

    def make(request: Request) -> Backend:
        inner = resolve(backend, request)
        seen.clear()

        def first(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            seen.append((copied_graph(gm), copied(list(inputs))))
            if count is not None and len(seen) > count:
                return gm.forward
            compiled: Callable[..., Any] = inner(gm, list(inputs))
            return compiled

        return with_fallback(first, request, "backend")

    return make


def blame_backend(backend: Given, seen: Seen, program: TrialProgram, found: Difference) -> Verdict:
    """The first graph with which it goes wrong, shrunk to the operations that it takes."""
    count = len(seen)

    def is_bad(n: int) -> bool:
        how = f"the first {n} of {count} graphs by {spelled(backend)}"
        return program.attempt(how, limited(backend, n, seen)) is not None

    place = first_bad(count, is_bad)
    if place is None:
        return Verdict("backend", step="backend", name=spelled(backend))
    is_bad(place)  # once more, for the graph as it was in this run
    gm, inputs = seen[place - 1]
    verdict = Verdict("backend", step="graph", name=spelled(backend), graph=graph_name(gm),
                      avoid={"backend": "eager"})  # fmt: skip
    left = shrink(gm, inputs, GraphCheck(backend))
    if left is None:  # right alone: it takes the program around it
        return verdict
    nodes = [node for node in left.gm.graph.nodes if node.op.startswith("call")]
    named = ", ".join(called(node.target) for node in nodes)
    lines = (str(left.failure), *dict.fromkeys(user_lines_of(nodes).values()))
    return replace(verdict, step="operations", name=f"{named} by {spelled(backend)}", lines=lines)


Layer = tuple[str, str | MakeBackend, Callable[[TrialProgram, Difference], Verdict]]
LAYERS: tuple[Layer, ...] = (
    ('backend="eager"', "eager", blame_capture),
    ('backend="aot_eager"', "aot_eager", blame_aot),
    ('backend="aot_eager_prims"', "aot_eager_prims", blame_prims),
    ('backend="inductor"', "inductor", blame_inductor),
)
"""What is tried, the backend that ends after each layer, and what finds the step of it to blame."""


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
    a `Difference` or None; by default runs are compared with eager and with double precision.
    options: those of `flambeau.compile`. backend: another one than Flambeau's own: if
    the captured graphs are right, the graph is found that it gets wrong, and what in it.

    The function is run often, each time on copies of its arguments and with the state of the
    modules that it reaches put back. What else it writes to, it writes to each time.
    """
    # a compiler of headers may still be writing there
    cleared = tempfile.TemporaryDirectory(prefix="flambeau-bisect-", ignore_cleanup_errors=True)
    with cleared as folder:
        program = TrialProgram(fn, [(args, kwargs), *also], options or {}, folder, check)
        layers, seen = LAYERS, Seen()
        if backend not in [ends for _, ends, _ in LAYERS]:
            outside = limited(backend, None, seen), partial(blame_backend, backend, seen)
            layers = (LAYERS[0], (f"backend={spelled(backend)}", *outside))
        for how, ends, blame in layers:
            found = program.attempt(how, ends)
            if found is not None:
                verdict = blame(program, found)
                return replace(verdict, difference=found, tried=tuple(program.tried))
            if ends == backend:
                break
        return Verdict("", tried=tuple(program.tried), note=_own_errors(program))


def _own_errors(program: TrialProgram) -> str:
    """What the program raises without being compiled, which no layer is to blame for."""
    for number, observed in enumerate(program.expected, 1):
        if observed.error is not None:
            said = f"{type(observed.error).__name__}: {str(observed.error)[:200]}"
            return f"call {number} raises without compiling, and so it does compiled: {said}"
    return ""
