"""`plan`: what compiling a function would cost, before it is compiled.

In: a function and arguments; samples: features of graphs that were compiled from scratch, and their
seconds. Out: a `Plan`, by a model that is fitted to the samples of this machine, with how far off
it was on these. Invariant: nothing is compiled: the function runs once, captured, with its
operators as they are; memory is an upper bound, as if nothing was fused and all that a backward
half might read was kept. No coefficient is negative, so that more work is never predicted to take
less time; a kernel from the cache is no sample.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median
from typing import Any, overload

import flambeau_capture
import torch
from flambeau_capture.api import compiler_of, uncompiled
from flambeau_inductor.cache import open_values
from torch import fx

from flambeau.events.records import GraphRecord, RecordCollector, operations, recorders_of
from flambeau.events.stage_products import called
from flambeau.parallel_plan import Mesh, ParallelPlan, plan_parallel
from flambeau.shown import Shown, counted
from flambeau.switching.stack import module_of_program

KIND = "plan"
KEY = "samples"
MOST_SAMPLES = 400
STEPS = 400

#: what a machine like the one that this was written on takes, where nothing is known of this one:
#: seconds a graph, an operation, and again for those of a graph with a backward half
PRIOR = (0.6, 0.006, 0.009)


@dataclass(frozen=True)
class Sample:
    """One graph that was compiled from scratch."""

    operations: int
    training: bool
    seconds: float

    @property
    def features(self) -> tuple[float, ...]:
        """What the prediction is linear in: one, the operations, and these once more where a
        backward half comes with them."""
        return 1.0, float(self.operations), float(self.operations) if self.training else 0.0


@dataclass(frozen=True)
class CostModel:
    """Predicts seconds. `error`: the median relative error on samples that were left out of the
    fit, one at a time; None where there are too few samples, and `PRIOR` is used."""

    coefficients: tuple[float, ...]
    samples: int
    error: float | None

    def seconds(self, operations: int, training: bool) -> float:
        """The expected seconds of one graph."""
        return _product(self.coefficients, Sample(operations, training, 0.0))


def _product(coefficients: Sequence[float], of: Sample) -> float:
    return sum(a * b for a, b in zip(coefficients, of.features, strict=True))


def fit(samples: Sequence[Sample]) -> CostModel:
    """The model of some samples; with fewer than four, the prior."""
    if len(samples) < 4:
        return CostModel(PRIOR, len(samples), None)
    errors = []
    held = samples[:: max(1, len(samples) // 24)]
    for left_out in held:
        others = [sample for sample in samples if sample is not left_out]
        guess = _product(_fitted(others), left_out)
        errors.append(abs(guess - left_out.seconds) / max(left_out.seconds, 1e-6))
    return CostModel(_fitted(samples), len(samples), median(errors))


def _fitted(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Least squares of relative errors with coefficients that are not negative.

    Multiplicative updates (Lee and Seung 2001) keep every coefficient where it started: positive.
    """
    rows = [tuple(f / s.seconds for f in s.features) for s in samples if s.seconds > 0]
    size = len(PRIOR)
    gram = [[math.fsum(r[i] * r[j] for r in rows) for j in range(size)] for i in range(size)]
    aim = [math.fsum(r[i] for r in rows) for i in range(size)]
    x = list(PRIOR)
    for _ in range(STEPS):
        for i in range(size):
            below = math.fsum(gram[i][j] * x[j] for j in range(size))
            if below > 0:
                x[i] *= aim[i] / below
    return tuple(x)


def known_samples(cache_dir: str | None = None) -> list[Sample]:
    """The samples that this machine kept."""
    found: Mapping[str, Any] = open_values(cache_dir, KIND).get(KEY) or {}
    return [Sample(int(o), bool(t), float(s)) for o, t, s in found.get("rows", [])]


def keep_samples(samples: Sequence[Sample], cache_dir: str | None = None) -> bool:
    """Keep the latest samples for later processes; whether that went well."""
    rows = [[s.operations, s.training, s.seconds] for s in samples[-MOST_SAMPLES:]]
    return open_values(cache_dir, KIND).put(KEY, {"rows": rows})


LENGTHS = (2, 6, 16, 40)
WIDTH = 32


def calibrate(cache_dir: str | None = None, lengths: Sequence[int] = LENGTHS) -> CostModel:
    """Compile a few graphs of several sizes from scratch, and keep what they took.

    lengths: of the programs, in operations. About ten seconds on a laptop. The kernels are built
    in a folder that goes away.
    """
    from flambeau.explaining.explain import compiled_with  # a plan does without

    made: list[Sample] = []
    with tempfile.TemporaryDirectory() as scratch:
        for length in lengths:
            for training in (False, True):
                recorder = RecordCollector()
                options = {"inductor.cache_dir": f"{scratch}/{length}{training}"}
                compiled = compiled_with(_chain(length), recorder, options)
                with torch.set_grad_enabled(training):
                    compiled(torch.randn(16, WIDTH))
                made += samples_of(recorder.report().records)
    samples = [*known_samples(cache_dir), *made]
    keep_samples(samples, cache_dir)
    return fit(samples)


def learned() -> CostModel:
    """The model of what is on disk and of what this process has compiled so far."""
    seen = [record for _, recorder in recorders_of() for record in recorder.report().records]
    return fit([*known_samples(), *samples_of(seen)])


def samples_of(records: Iterable[GraphRecord]) -> list[Sample]:
    """The samples in records: those of graphs that the inductor compiled from scratch."""
    return [
        Sample(record.nodes, record.kind == "training", sum(record.seconds.values()))
        for record in records
        if record.kernels and not record.cache_hits and any("build" in p for p in record.seconds)
    ]


def _chain(length: int) -> torch.nn.Module:
    """A program of some length with what models are made of.

    Of torch's own modules: capture does not look into functions of Flambeau itself.
    """
    nn = torch.nn
    kinds = [
        nn.Linear(WIDTH, WIDTH),
        nn.GELU(),
        nn.LayerNorm(WIDTH),
        nn.Softmax(-1),
        nn.Hardswish(),
    ]
    return nn.Sequential(*(copy.deepcopy(kinds[step % len(kinds)]) for step in range(length)))


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes: of parameters and inputs; at most alive beyond them while running forward; of all
    values that a backward half might keep (0 without one)."""

    held: int
    peak: int
    kept: int


def memory_of(gm: fx.GraphModule, training: bool) -> MemoryPlan:
    """The plan of one graph."""
    nodes = list(gm.graph.nodes)
    last: dict[fx.Node, int] = {}
    for place, node in enumerate(nodes):
        for source in node.all_input_nodes:
            last[source] = place
    held = sum(_bytes(node) for node in nodes if node.op in ("placeholder", "get_attr"))
    live: dict[fx.Node, int] = {}
    peak = made = 0
    for place, node in enumerate(nodes):
        if node.op in ("call_function", "call_method"):
            live[node] = 0 if called(node.target) in VIEWS else _bytes(node)
            made += live[node]
        peak = max(peak, sum(live.values()))
        for source in node.all_input_nodes:
            if last[source] == place and not training:
                live.pop(source, None)
    return MemoryPlan(held, peak, made if training else 0)


def _bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    if value is None and node.op == "get_attr":
        value = attrgetter(str(node.target))(node.graph.owning_module)
    values = value if isinstance(value, tuple | list) else (value,)
    return sum(
        int(item.numel()) * item.element_size() for item in values if isinstance(item, torch.Tensor)
    )


#: methods and functions whose result looks at their first argument's memory
VIEWS = frozenset(
    {
        "view", "reshape", "permute", "transpose", "t", "expand", "unsqueeze", "squeeze", "flatten",
        "chunk", "split", "getitem", "detach", "narrow", "select", "unbind",
    }
)  # fmt: skip


@dataclass(frozen=True)
class PlannedGraph:
    """One graph that would be compiled."""

    name: str
    operations: int
    training: bool
    seconds: float
    memory: MemoryPlan


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What compiling a function for these arguments would come to.

    seconds: expected, from scratch: with kernels in the cache it is less. error: how far off such
    predictions were on this machine (0.25: a quarter, half of the time less); None where this
    machine has not been measured: call `flambeau.calibrate()` once. samples: how many graphs the
    prediction rests on. breaks: with the line and the edit that removes each.
    """

    graphs: tuple[PlannedGraph, ...]
    breaks: tuple[str, ...]
    capture_seconds: float
    error: float | None
    samples: int
    result: Any = None

    @property
    def seconds(self) -> float:
        """Of everything: capturing, and compiling every graph."""
        return self.capture_seconds + sum(graph.seconds for graph in self.graphs)

    @property
    def memory(self) -> MemoryPlan:
        """Of the graph that wants the most; what is kept for backward adds up."""
        return MemoryPlan(
            max((graph.memory.held for graph in self.graphs), default=0),
            max((graph.memory.peak for graph in self.graphs), default=0),
            sum(graph.memory.kept for graph in self.graphs),
        )

    def __str__(self) -> str:
        within = "not calibrated: call flambeau.calibrate()"
        if self.error is not None:
            within = f"give or take {100 * self.error:.0f} %, from {counted(self.samples, 'graph')}"
        memory = self.memory
        lines = [
            f"{counted(len(self.graphs), 'graph')}, {counted(len(self.breaks), 'graph break')}",
            f"about {self.seconds:.1f} s to compile from scratch ({within})",
            f"memory: {memory.held:,} bytes of parameters and inputs, at most {memory.peak:,} more"
            f" while it runs, at most {memory.kept:,} kept for backward",
        ]
        for graph in self.graphs:
            kind = "training" if graph.training else "inference"
            work = counted(graph.operations, "operation")
            text = f"  {graph.name}: {work}, {kind}, {graph.seconds:.1f} s"
            lines.append(text)
        lines += [f"  break: {text}" for text in self.breaks]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "graphs": [{**vars(graph), "memory": vars(graph.memory)} for graph in self.graphs],
            "breaks": list(self.breaks),
            "seconds": self.seconds,
            "error": self.error,
            "samples": self.samples,
            "memory": vars(self.memory),
        }


@overload
def plan(fn: Callable[..., Any], mesh: Mesh, /, *args: Any, **kwargs: Any) -> ParallelPlan: ...


@overload
def plan(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Plan: ...


def plan(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Plan | ParallelPlan:
    """What compiling `fn` for these arguments would come to; with a `Mesh` as the first of them,
    what training it on so many ranks would: memory of each, and seconds of a step.

    It runs once, with its operators as they are: what it writes to is written.
    """
    if args and isinstance(args[0], Mesh):
        return plan_parallel(fn, args[0], args[1:], kwargs)
    found: list[tuple[fx.GraphModule, bool]] = []

    def only_looks(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        wanted = any(
            getattr(value, "requires_grad", False) for value in [*inputs, *gm.parameters()]
        )
        found.append((gm, torch.is_grad_enabled() and wanted))
        return gm.forward

    compiled = flambeau_capture.optimize(only_looks)(uncompiled(module_of_program(fn)))
    result = compiled(*args, **kwargs)
    compiler = compiler_of(compiled)
    assert compiler is not None
    records = compiler.records
    model = learned()
    graphs = []
    for gm, training in found:
        count = operations(gm)
        seconds, memory = model.seconds(count, training), memory_of(gm, training)
        graphs.append(PlannedGraph(type(gm).__name__, count, training, seconds, memory))
    return Plan(
        graphs=tuple(graphs),
        breaks=tuple(f"{each}\n    try: {each.reason.hint}" for each in records.breaks),
        capture_seconds=sum(frame.seconds - frame.backend_seconds for frame in records.frames),
        error=model.error,
        samples=model.samples,
        result=result,
    )
