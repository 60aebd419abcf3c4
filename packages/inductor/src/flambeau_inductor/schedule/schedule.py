"""The passes of scheduling, in order.

In: a tensor graph. Out: a `Program`, and what was refused. Invariant: the graph is not changed but
for the strides of values that are returned.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau_inductor.ir.program import Program
from flambeau_inductor.ir.tensors import TensorGraph
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.assemble import assemble
from flambeau_inductor.schedule.fuse.fuse import Merge, Refusal, fuse
from flambeau_inductor.schedule.gpu.rematerialize import computed_again, moved
from flambeau_inductor.schedule.materialize.materialize import plan

DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class Schedule:
    """A program, the fusions that were considered and refused, and those that were made."""

    program: Program
    refusals: tuple[Refusal, ...]
    merges: tuple[Merge, ...] = ()


def schedule(graph: TensorGraph, limits: Limits = DEFAULT, name: str | None = None) -> Program:
    """Decide what gets memory, fuse, order, emit loops, plan lifetimes."""
    return schedule_with_reasons(graph, limits, name).program


def schedule_with_reasons(
    graph: TensorGraph,
    limits: Limits = DEFAULT,
    name: str | None = None,
    fuel: int | None = None,
) -> Schedule:
    """`schedule`, with the reason for each refused fusion; at most `fuel` are made."""
    planned = plan(graph, limits)
    steps, refusals, merges = fuse(planned, limits, fuel)
    again = computed_again(planned, steps, limits)
    if again:
        other = plan(graph, limits, again)
        fused = fuse(other, limits, fuel)
        if moved(other, fused[0]) < moved(planned, steps):
            planned, (steps, refusals, merges) = other, fused
    program = assemble(planned, steps, name or graph.name, limits)
    return Schedule(program, tuple(refusals), tuple(merges))
