"""Explanation of a capture: graphs, breaks and their costs, guards, recompilations.

In: a function and arguments. Out: an `Explanation`. Invariant: the function runs once, as compiled
code, and the result is what happened in that run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from flambeau_capture.api import compiler_of, optimize
from flambeau_capture.breaks import BreakReport
from flambeau_capture.observe.records import FrameRecord, RecompileRecord, Records
from flambeau_capture.values.functions.call_rules import CallRule, rule_of


@dataclass(frozen=True)
class BreakCost:
    """What a break cost in the run that was explained, in milliseconds.

    capture_ms: finding the break, and converting what comes after it until the next graph.
    run_ms: between the graph before it and the next one, outside of capture and of graphs: the
        Python that a graph cannot hold, and the calls around it.
    """

    capture_ms: float
    run_ms: float

    def __str__(self) -> str:
        return f"{self.run_ms:.2f} ms in Python, {self.capture_ms:.1f} ms to capture around it"


@dataclass(frozen=True)
class Explanation:
    """Unpacks as (explanation, out_guards, graphs, ops_per_graph, break_reasons, verbose).

    `costs` goes with `break_reasons`, an item for each; it is empty where no run was
    timed.
    """

    result: Any
    graphs: tuple[fx.GraphModule, ...]
    ops_per_graph: tuple[tuple[Any, ...], ...]
    break_reasons: tuple[BreakReport, ...]
    out_guards: tuple[Any, ...]
    recompiles: tuple[RecompileRecord, ...] = ()
    frames: tuple[FrameRecord, ...] = field(default=(), repr=False)
    costs: tuple[BreakCost, ...] = ()

    @property
    def op_count(self) -> int:
        """Operations of all graphs together."""
        return sum(len(ops) for ops in self.ops_per_graph)

    @property
    def summary(self) -> str:
        """The first line, and the reasons with the innermost line of each."""
        graphs, breaks = len(self.graphs), len(self.break_reasons)
        lines = [
            f"Flambeau produced {graphs} graph{'s' * (graphs != 1)}, with {breaks} graph "
            f"break{'s' * (breaks != 1)} and {self.op_count} op{'s' * (self.op_count != 1)}."
        ]
        if self.break_reasons:
            lines.append(" Break reasons:")
        for number, reason in enumerate(self.break_reasons, 1):
            lines.append(f"{number}. {reason.reason.id} {reason.reason.title}: {reason.what}")
            if reason.user_line is not None:
                lines.append(f" {reason.user_line}")
            lines.append("")
        return "\n".join(lines)

    @property
    def verbose(self) -> str:
        """The summary, then every line on the way to a break, what it costs and the edit that
        removes it, the operators, recompiles and guards."""
        lines = [self.summary]
        for number, reason in enumerate(self.break_reasons, 1):
            lines.append(f"Break {number}, called from:")
            lines.extend(str(line) for line in reason.lines)
            if self.costs:
                lines.append(f"  cost: {self.costs[number - 1]}")
            lines.append(f"  try: {reason.reason.hint}")
        for number, ops in enumerate(self.ops_per_graph):
            lines.append(f"Ops of graph {number}: {', '.join(_op_name(op) for op in ops)}")
        lines.extend(f"Recompiled: {record}" for record in self.recompiles)
        lines.append("Guards:")
        lines.extend(str(guard) for guard in self.out_guards)
        return "\n".join(lines)

    def __iter__(self) -> Iterator[Any]:
        found = (self.summary, self.out_guards, self.graphs, self.ops_per_graph)
        return iter((*found, self.break_reasons, self.verbose))

    def __str__(self) -> str:
        return self.summary


def _op_name(op: Any) -> str:
    return op if isinstance(op, str) else getattr(op, "__name__", str(op))


def explain_call(fn: Any) -> CallRule:
    """What capture does with a call of a function, a method, a class or a module: whether it is
    interpreted, recorded, evaluated, answered by other means, or a break, and which row of the
    table of rules says so. Nothing is called."""
    return rule_of(fn)


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`explain(fn, *args, **kwargs)`, or `explain(fn)(*args, **kwargs)`."""
    if not args and not kwargs:
        return lambda *given, **named: _explain(fn, given, named)
    return _explain(fn, args, kwargs)


def _explain(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    runs: list[tuple[float, float]] = []

    def backend(module: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        """Runs graphs as they are, and notes when."""

        def call(*given: Any) -> Any:
            started = time.perf_counter()
            try:
                return module.forward(*given)
            finally:
                runs.append((started, time.perf_counter()))

        return call

    compiled = optimize(backend)(fn)
    result = compiled(*args, **kwargs)
    ended = time.perf_counter()
    compiler = compiler_of(compiled)
    assert compiler is not None
    return explanation_of(compiler.records, result, runs, ended)


def explanation_of(
    records: Records,
    result: Any = None,
    runs: list[tuple[float, float]] | None = None,
    ended: float = 0.0,
) -> Explanation:
    """What the records of a compiled callable say.

    runs: when each graph started and ended in a run that was finished at `ended`, in order, by
        `time.perf_counter`; without it breaks have no costs.
    """
    frames = tuple(records.frames)
    stopped = [frame for frame in frames if frame.stopped is not None]
    timed = runs is not None and len(stopped) == len(records.breaks)
    guards = [guard for found in records.guards for guard in found.items]
    return Explanation(
        result=result,
        graphs=tuple(record.module for record in records.graphs),
        ops_per_graph=tuple(_operations(record.module) for record in records.graphs),
        break_reasons=tuple(records.breaks),
        out_guards=tuple(guards),
        recompiles=tuple(records.recompiles),
        frames=frames,
        costs=tuple(_cost(f, frames, runs or [], ended) for f in stopped) if timed else (),
    )


def _cost(
    frame: FrameRecord,
    frames: tuple[FrameRecord, ...],
    runs: list[tuple[float, float]],
    ended: float,
) -> BreakCost:
    """A break's window is from the end of its graph (of its conversion, if it has none) to the
    start of the next graph, to where a conversion begins that another break stops, or to the end of
    the run."""
    before = [run for run in runs if run[0] >= frame.ended]
    next_converted = min(
        (f.ended - f.seconds for f in frames if f.ended > frame.ended), default=ended
    )
    has_graph = bool(before) and before[0][0] < next_converted
    start = before[0][1] if has_graph else frame.ended
    end = min((run[0] for run in runs if run[0] >= start), default=ended)
    stops = [f.ended - f.seconds for f in frames if f.stopped is not None]
    end = min((began for began in stops if start <= began < end), default=end)
    inside = [f for f in frames if start <= f.ended - f.seconds and f.ended <= end]
    capture = sum(f.seconds - f.backend_seconds for f in (frame, *inside))
    run = max(0.0, end - start - sum(f.seconds for f in inside))
    return BreakCost(1e3 * capture, 1e3 * run)


def _operations(module: fx.GraphModule) -> tuple[Any, ...]:
    """Targets of a graph's calls, in order."""
    return tuple(n.target for n in module.graph.nodes if n.op in ("call_function", "call_method"))


__all__ = ["BreakCost", "Explanation", "explain", "explanation_of"]
