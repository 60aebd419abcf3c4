"""`explain`: one compiled run, and everything that was learnt from it: text, dictionary, page.

In: a function or a compiled callable, and arguments. Out: an `Explanation`. Invariant: the function
runs once; the facts are of that run, and of what came before it if it was compiled already. Breaks
are sorted by what they cost; every part of the program that did not become a kernel is in
`kept_in_eager`, with the reason; the text has no control character, so that it may go into a log.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import inf
from typing import Any

import flambeau_capture
from flambeau_capture.api import compiler_of
from flambeau_capture.observe.explanation import Explanation as Captured
from flambeau_capture.observe.explanation import explanation_of
from flambeau_capture.observe.records import RecompileRecord, Records
from rich.console import Console
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from flambeau import _torch_compat as compat
from flambeau.backends import resolve
from flambeau.backends.request import Request
from flambeau.choices import choose
from flambeau.events.bus import GraphRun, Listener, StageProduct
from flambeau.events.records import GraphRecord, RecordCollector, Report, recorder_of
from flambeau.events.stage_products import HalfFacts, called, facts_of, in_bytes
from flambeau.explaining.costs import ConvertedFrame, Figures, Line
from flambeau.shown import Shown, counted


@dataclass(frozen=True)
class GraphFacts:
    """One captured graph and what became of it.

    operations: its calls by name, in order. kind: `training`, `inference`, or `eager`.
    seconds: of compiling it, by phase. halves: kernels, memory, fusions.
    """

    name: str
    function: str
    inputs: tuple[str, ...]
    operations: tuple[str, ...]
    kind: str
    kernels: int = 0
    fused_ops: int = 0
    library_calls: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""
    halves: tuple[HalfFacts, ...] = ()


@dataclass(frozen=True)
class BreakFacts:
    """A graph break and what it cost in the run that was explained.

    edit: the smallest change that removes it. run_ms: in Python between two graphs. capture_ms:
    converting what is around it. bytes: of tensors that left one graph only to enter a later one,
    which a single graph might have kept in registers; None where it was not measured.
    """

    id: str
    title: str
    met: str
    line: str
    edit: str
    function: str
    capture_ms: float | None
    run_ms: float | None
    bytes: int | None


@dataclass(frozen=True)
class RecompileFacts:
    """A call that no entry fitted: the guard that failed, with both values."""

    function: str
    line: str
    guard: str
    expected: str
    got: str


@dataclass(frozen=True)
class KeptInEager:
    """A part of the program that runs as it did before, and why."""

    what: str
    why: str


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """Also unpacks as (summary, out_guards, graphs, ops_per_graph, break_reasons, verbose).

    `capture` is capture's own explanation, with the graphs themselves.
    """

    result: Any
    backend: str
    graphs: tuple[GraphFacts, ...]
    breaks: tuple[BreakFacts, ...]
    guards: tuple[str, ...]
    recompiles: tuple[RecompileFacts, ...]
    kept_in_eager: tuple[KeptInEager, ...]
    seconds: Mapping[str, float]
    capture: Captured = field(repr=False)

    @property
    def op_count(self) -> int:
        """Operations in all graphs."""
        return sum(len(graph.operations) for graph in self.graphs)

    @property
    def kernels(self) -> int:
        """Generated kernels in all graphs."""
        return sum(graph.kernels for graph in self.graphs)

    @property
    def summary(self) -> str:
        """The counts, and the reason of each break."""
        return self.capture.summary

    @property
    def verbose(self) -> str:
        """All of it as text."""
        return show(self)

    @property
    def out_guards(self) -> tuple[Any, ...]:
        """The guards as objects."""
        return self.capture.out_guards

    @property
    def ops_per_graph(self) -> tuple[tuple[Any, ...], ...]:
        """The calls of each graph, by target."""
        return self.capture.ops_per_graph

    @property
    def break_reasons(self) -> tuple[Any, ...]:
        """The breaks as capture reports them, in the order of the program."""
        return self.capture.break_reasons

    def __iter__(self) -> Iterator[Any]:
        yield self.summary
        yield self.out_guards
        yield self.capture.graphs
        yield self.ops_per_graph
        yield self.break_reasons
        yield self.verbose

    def __str__(self) -> str:
        return self.verbose

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: all but the result and the graphs themselves."""
        lists = ("graphs", "breaks", "recompiles", "kept_in_eager")
        made = {name: [asdict(each) for each in getattr(self, name)] for name in lists}
        made |= {name: getattr(self, name) for name in ("backend", "kernels", "guards", "seconds")}
        plain: dict[str, Any] = json.loads(json.dumps(made | {"operations": self.op_count}))
        return plain

    def to_html(self) -> str:
        """One page that needs nothing else."""
        from flambeau.page import explanation_page  # jinja2, for pages alone

        return explanation_page(self)


WIDTH = 110
GUARDS_SHOWN = 40


def show(explanation: Explanation) -> str:
    """The explanation as plain text."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=WIDTH,
        force_terminal=False,
        color_system=None,
        force_jupyter=False,  # there it would show what it is given, and write nothing
    )
    for part in _parts(explanation):
        console.print(Text(part) if isinstance(part, str) else part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _parts(found: Explanation) -> Iterator[str | Rule | Table]:
    yield found.summary
    if found.breaks:
        yield Rule("Breaks, the most expensive first")
    for each in found.breaks:
        yield f"{each.id} {each.title}: {each.met}\n  {each.line}"
        if each.run_ms is not None and each.capture_ms is not None:
            crossing = "" if each.bytes is None else f", {in_bytes(each.bytes)} through memory"
            cost = f"{each.run_ms:.2f} ms in Python, {each.capture_ms:.1f} ms to capture"
            yield f"  cost: {cost}{crossing}"
        yield f"  try: {each.edit}"
    for graph in found.graphs:
        yield Rule(f"{graph.name} of {graph.function} ({graph.kind})")
        yield f"inputs: {', '.join(graph.inputs) or 'none'}"
        yield f"{counted(len(graph.operations), 'operation')}: {', '.join(graph.operations)}"
        if graph.failure:
            yield f"runs eagerly: {graph.failure}"
        for half in graph.halves:
            yield _steps(half)
            yield from (f"chosen for {name}: {what}" for name, what in half.chosen)
    if found.recompiles:
        yield Rule("Compiled again")
    for again in found.recompiles:
        place = f"{again.function} ({again.line})"
        yield f"{place}: {again.guard} expected {again.expected}, got {again.got}"
    if found.kept_in_eager:
        yield Rule("Kept in eager")
        yield from (f"{kept.what}: {kept.why}" for kept in found.kept_in_eager)
    if found.guards:
        yield Rule(counted(len(found.guards), "guard"))
        yield from (f"- {guard}" for guard in found.guards[:GUARDS_SHOWN])
    if len(found.guards) > GUARDS_SHOWN:
        yield f"  ... {len(found.guards) - GUARDS_SHOWN} more in .guards"
    yield Rule()
    times = Table(Column("phase"), Column("ms", justify="right"), title="Compile time by phase")
    for phase, seconds in sorted(found.seconds.items(), key=lambda item: -item[1]):
        times.add_row(phase, f"{1e3 * seconds:.1f}")
    yield times


def _steps(half: HalfFacts) -> Table:
    title = f"{half.half}: peak {in_bytes(half.memory.peak)} beyond its inputs"
    table = Table("step", "what", "operations", "touches", title=title)
    for number, step in enumerate(half.steps):
        what = f"{step.kind} {step.name}"
        table.add_row(str(number), what, ", ".join(step.origins), in_bytes(step.bytes))
    return table


class Collector(Listener):
    """A listener that keeps the facts of each half, and when graphs run."""

    every_stage = True

    def __init__(self, runs: float) -> None:
        self.runs = runs
        self.halves: list[HalfFacts] = []
        self.seen: list[GraphRun] = []

    def __call__(self, kind: str, product: object, owner: int) -> None:
        if isinstance(product, GraphRun):
            self.seen.append(product)
        elif isinstance(product, StageProduct) and product.stage == "wrap":
            self.halves.append(facts_of(product.work, product.graph, product.half))


def explain(
    fn: Callable[..., Any],
    *args: Any,
    backend: str | Callable[..., Any] = "inductor",
    **kwargs: Any,
) -> Any:
    """`explain(fn)(*args, **kwargs)`, or `explain(fn, *args, **kwargs)`: an `Explanation`.

    fn: a function, method or module; or what `flambeau.compile` returned, explained with
    all its calls so far, this one included. backend: for what is not compiled yet.
    """
    explainer = Explainer(fn, backend)
    return explainer(*args, **kwargs) if args or kwargs else explainer


@dataclass(frozen=True, repr=False)
class Explainer(Shown):
    """`explain(fn)`: explains a call of `fn` with the arguments that it is called with."""

    fn: Callable[..., Any]
    backend: str | Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        return _explain(self.fn, self.backend, args, kwargs)

    def __str__(self) -> str:
        name = getattr(self.fn, "__qualname__", None) or type(self.fn).__name__
        return f"nothing is explained yet: call flambeau.explain({name})(...) with its arguments"


def _explain(
    fn: Callable[..., Any],
    backend: str | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Explanation:
    fn = compat.compiled_form(fn)
    # of a module it is that of what was made of it, which another call may be explained by
    made = None if compiler_of(fn) is None else recorder_of(fn)
    collector = Collector(inf if made is None else 0)
    recorder = made or RecordCollector()
    compiled = compiled_with(fn, recorder, {}, backend) if made is None else fn
    compiler = compiler_of(compiled)
    assert compiler is not None
    recorder.watch.own.add(collector)
    try:
        result = compiled(*args, **kwargs)
    finally:
        recorder.watch.own.remove(collector)
    ended = time.perf_counter()
    records, halves = compiler.records, collector.halves
    found = explanation_of(records, result)
    report = recorder.report(breaks=tuple(map(str, records.breaks)))
    breaks = _breaks(records, collector.seen if made is None else None, ended)
    own = sum(frame.seconds - frame.backend_seconds for frame in records.frames)
    return Explanation(
        result=result,
        backend=str(compiler.converter.backend_name),
        graphs=_graphs(records, report, halves),
        breaks=tuple(sorted(breaks, key=_cost, reverse=True)),
        guards=tuple(str(guard) for guard in found.out_guards),
        recompiles=tuple(map(_recompiled, records.recompiles)),
        kept_in_eager=tuple(_kept(records, report, halves)),
        seconds={"capture": own, **report.seconds},
        capture=found,
    )


def compiled_with(
    fn: Callable[..., Any],
    recorder: RecordCollector,
    options: Mapping[str, object],
    backend: str | Callable[..., Any] = "inductor",
) -> Any:
    """The function, compiled so that a recorder of ours sees what happens."""
    choices = choose(None, options)
    chosen = resolve(backend, Request(choices, recorder))
    watched = replace(choices.capture, watch=recorder.watch.publish)
    return flambeau_capture.optimize(chosen, options=watched)(fn)


def _cost(facts: BreakFacts) -> tuple[float, int]:
    return (facts.run_ms or 0.0) + (facts.capture_ms or 0.0), facts.bytes or 0


def _graphs(records: Records, report: Report, halves: list[HalfFacts]) -> tuple[GraphFacts, ...]:
    compiled = {record.name: record for record in report.records}
    failed = {failure.graph: failure for failure in report.fallbacks}
    made = []
    for record in records.graphs:
        name = type(record.module).__name__
        known = compiled.get(name) or GraphRecord(name, "eager", 0)
        calls = (node for node in record.module.graph.nodes if node.op.startswith("call_"))
        made.append(
            GraphFacts(
                name=name,
                function=record.function,
                inputs=record.inputs,
                operations=tuple(called(node.target) for node in calls),
                kind=known.kind,
                kernels=known.kernels,
                fused_ops=known.fused_ops,
                library_calls=dict(known.externs),
                seconds=dict(known.seconds),
                failure=str(failed.get(name, "")),
                halves=tuple(half for half in halves if half.graph == name),
            )
        )
    return tuple(made)


def _breaks(records: Records, runs: list[GraphRun] | None, ended: float) -> list[BreakFacts]:
    frames = {
        id(f): ConvertedFrame(f.ended, f.seconds, f.backend_seconds, f.stopped is not None)
        for f in records.frames
    }
    stopped = [frame for frame in records.frames if frame.stopped is not None]
    line = Line(list(frames.values()), runs or [], ended=ended)
    made = []
    for place, report in enumerate(records.breaks):
        frame = stopped[place] if len(stopped) == len(records.breaks) else None
        measured = runs is not None and frame is not None
        figures = line.figures(frames[id(frame)]) if measured else Figures()
        made.append(
            BreakFacts(
                id=report.reason.id,
                title=report.reason.title,
                met=report.what,
                line="" if report.user_line is None else str(report.user_line).strip(),
                edit=report.reason.hint,
                function="" if frame is None else frame.function,
                capture_ms=figures.capture_ms,
                run_ms=figures.run_ms,
                bytes=(figures.bytes or 0) if measured else None,
            )
        )
    return made


def _recompiled(record: RecompileRecord) -> RecompileFacts:
    first = record.failures[0]
    values = map(str, (first.guard, first.expected, first.got))
    return RecompileFacts(record.function, f"{record.filename}:{record.lineno}", *values)


def _kept(records: Records, report: Report, halves: list[HalfFacts]) -> list[KeptInEager]:
    kept = [KeptInEager(f"frame {name}", why) for name, why in records.skipped]
    for each in records.breaks:
        place = "a break" if each.user_line is None else " ".join(str(each.user_line).split())
        kept.append(KeptInEager(f"Python at {place}", f"{each.reason.id} {each.what}"))
    kept += [
        KeptInEager(f"graph {failure.graph}", f"{failure.stage}: {failure.error}")
        for failure in report.fallbacks
    ]
    kept += [
        KeptInEager(f"{target} in {half.graph} ({half.half})", why)
        for half in halves
        for target, why, _ in half.no_kernel
    ]
    kept += [
        KeptInEager("a frame that capture failed on", f"{type(error).__name__}: {error}")
        for error in [*records.internal_errors, *records.backend_errors]
    ]
    return kept
