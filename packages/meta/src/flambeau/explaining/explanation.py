"""The explanation as plain data: text, dictionary, page.

In: facts. Out: `Explanation`. Invariant: breaks are sorted by what they cost; every part of the
program that did not become a kernel is in `kept_in_eager`, with the reason; the text has no control
character, so that it may go into a log.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from flambeau_capture.observe.explanation import Explanation as Captured
from rich.console import Console
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from flambeau.events.stage_products import HalfFacts, in_bytes


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


@dataclass(frozen=True)
class Explanation:
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
        return {
            "backend": self.backend,
            "operations": self.op_count,
            "kernels": self.kernels,
            "graphs": [_plain(asdict(graph)) for graph in self.graphs],
            "guards": list(self.guards),
            **{
                name: [asdict(each) for each in getattr(self, name)]
                for name in ("breaks", "recompiles", "kept_in_eager")
            },
            "seconds": dict(self.seconds),
        }

    def to_html(self) -> str:
        """One page that needs nothing else."""
        from flambeau.page import explanation_page  # jinja2, for pages alone

        return explanation_page(self)


def _plain(value: Any) -> Any:
    """Tuples as lists, so that what is read back from JSON is equal."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


WIDTH = 110
GUARDS_SHOWN = 40


def show(explanation: Explanation) -> str:
    """The explanation as plain text."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=False, color_system=None)
    for part in _parts(explanation):
        console.print(Text(part) if isinstance(part, str) else part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _parts(found: Explanation) -> Iterator[str | Rule | Table]:
    yield found.summary
    if found.breaks:
        yield Rule("Breaks, the dearest first")
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
        yield f"{len(graph.operations)} operations: {', '.join(graph.operations)}"
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
        yield Rule(f"{len(found.guards)} guards")
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
