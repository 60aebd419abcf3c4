"""`plan`: predicted compile time and memory of a function.

In: a function and arguments. Out: a `Plan`. Invariant: nothing is compiled: the function runs once,
captured, with its operators as they are; memory is an upper bound, as if nothing was fused and all
that a backward half might read was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import flambeau_capture
import torch
from flambeau_capture.api import compiler_of
from torch import fx

from flambeau.events.records import operations
from flambeau.events.stage_products import called
from flambeau.planning.model import learned


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


@dataclass(frozen=True)
class Plan:
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
            within = f"give or take {100 * self.error:.0f} %, from {self.samples} graphs"
        memory = self.memory
        lines = [
            f"{len(self.graphs)} graphs, {len(self.breaks)} graph breaks",
            f"about {self.seconds:.1f} s to compile from scratch ({within})",
            f"memory: {memory.held:,} bytes of parameters and inputs, at most {memory.peak:,} more"
            f" while it runs, at most {memory.kept:,} kept for backward",
        ]
        for graph in self.graphs:
            kind = "training" if graph.training else "inference"
            text = f"  {graph.name}: {graph.operations} operations, {kind}, {graph.seconds:.1f} s"
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


def plan(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Plan:
    """What compiling `fn` for these arguments would come to.

    It runs once, with its operators as they are: what it writes to is written.
    """
    found: list[tuple[fx.GraphModule, bool]] = []

    def only_looks(gm: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        wanted = any(
            getattr(value, "requires_grad", False) for value in [*inputs, *gm.parameters()]
        )
        found.append((gm, torch.is_grad_enabled() and wanted))
        return gm.forward

    compiled = flambeau_capture.optimize(only_looks)(fn)
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
