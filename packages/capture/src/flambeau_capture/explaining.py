"""What capture made of a call: graphs, operators, break reasons with the user's lines, guards.

In: a function and arguments. Out: an `Explanation`. Invariant: the function runs once, as compiled
code, and what is told is what happened in that run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx

from flambeau_capture.api import compiler_of, optimize
from flambeau_capture.breaks import BreakReport
from flambeau_capture.convert import Records


@dataclass(frozen=True)
class Explanation:
    """Unpacks as (explanation, out_guards, graphs, ops_per_graph, break_reasons, verbose)."""

    result: Any
    graphs: tuple[fx.GraphModule, ...]
    ops_per_graph: tuple[tuple[Any, ...], ...]
    break_reasons: tuple[BreakReport, ...]
    out_guards: tuple[Any, ...]

    @property
    def op_count(self) -> int:
        return sum(len(ops) for ops in self.ops_per_graph)

    @property
    def summary(self) -> str:
        """The first line, and the reasons with the innermost line of each."""
        lines = [
            f"Flambeau produced {len(self.graphs)} graphs, with {len(self.break_reasons)} graph "
            f"break and {self.op_count} ops."
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
        """The summary, then every line on the way to a break, the operators, and the guards."""
        lines = [self.summary]
        for number, reason in enumerate(self.break_reasons, 1):
            lines.append(f"Break {number}, called from:")
            lines.extend(str(line) for line in reason.lines)
            lines.append(f"  try: {reason.reason.hint}")
        for number, ops in enumerate(self.ops_per_graph):
            lines.append(f"Ops of graph {number}: {', '.join(_op_name(op) for op in ops)}")
        lines.append("Guards:")
        lines.extend(str(guard) for guard in self.out_guards)
        return "\n".join(lines)

    def __iter__(self) -> Iterator[Any]:
        yield self.summary
        yield self.out_guards
        yield self.graphs
        yield self.ops_per_graph
        yield self.break_reasons
        yield self.verbose

    def __str__(self) -> str:
        return self.summary


def _op_name(op: Any) -> str:
    return op if isinstance(op, str) else getattr(op, "__name__", str(op))


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`explain(fn, *args, **kwargs)`, or `explain(fn)(*args, **kwargs)`."""
    if not args and not kwargs:
        return lambda *given, **named: _explain(fn, given, named)
    return _explain(fn, args, kwargs)


def _explain(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    compiled = optimize("eager")(fn)
    result = compiled(*args, **kwargs)
    compiler = compiler_of(compiled)
    assert compiler is not None
    return explanation_of(compiler.records, result)


def explanation_of(records: Records, result: Any = None) -> Explanation:
    """What the records of a compiled callable tell."""
    guards = [guard for found in records.guards for guard in found.items]
    return Explanation(
        result=result,
        graphs=tuple(record.module for record in records.graphs),
        ops_per_graph=tuple(_operations(record.module) for record in records.graphs),
        break_reasons=tuple(records.breaks),
        out_guards=tuple(guards),
    )


def _operations(module: fx.GraphModule) -> tuple[Any, ...]:
    """Targets of a graph's calls, in order."""
    return tuple(
        node.target for node in module.graph.nodes if node.op in ("call_function", "call_method")
    )


__all__ = ["Explanation", "explain", "explanation_of"]
