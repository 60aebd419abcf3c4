"""A tensor graph on its way to loops: what has memory, and what shares a loop.

In: a tensor graph. Out: `TensorProgram`, which each pass of this level hands on. Invariant: what
`verify` accepts can be emitted in the order of `steps`.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau_inductor.ir.tensors import LibraryCall, Node, TensorGraph
from flambeau_inductor.schedule.fuse.legality import FusionGroup
from flambeau_inductor.schedule.materialize.plan import MaterializationPlan, operands_of


@dataclass(frozen=True, slots=True)
class Refusal:
    """Two values that might have shared a loop, and why they do not."""

    first: str
    second: str
    reason: str


@dataclass(frozen=True, slots=True)
class Merge:
    """Two loops that became one, each by the last value that it computed."""

    first: str
    second: str


@dataclass(frozen=True, slots=True)
class TensorProgram:
    """`plan` says what has memory, `steps` what runs in which order; None until a pass says it.

    again: values that their readers compute once more, instead of reading them. rival: the same
    graph without that. merges, refusals: fusions that were made, and those that were not.
    """

    graph: TensorGraph
    plan: MaterializationPlan | None = None
    steps: tuple[FusionGroup | LibraryCall, ...] | None = None
    merges: tuple[Merge, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    again: frozenset[Node] = frozenset()
    rival: TensorProgram | None = None

    def planned(self) -> tuple[MaterializationPlan, tuple[FusionGroup | LibraryCall, ...]]:
        """What has memory, and the steps."""
        assert self.plan is not None and self.steps is not None
        return self.plan, self.steps


def verify(program: TensorProgram) -> None:
    """Every value with memory is made once, by one step, before another reads it."""
    if program.steps is None:
        return
    plan, steps = program.planned()
    made: set[Node] = set()
    for step in steps:
        if isinstance(step, LibraryCall):
            reads = set(operands_of(plan, step))
            makes = {node for node in plan.results(step) if node is not None}
        else:
            reads, makes = step.reads.keys() - step.nodes(), step.nodes()
            if again := made & makes:
                raise AssertionError(f"made twice: {_names(again)}")
        owed = {node for node in reads if node in plan.anchors or plan.maker(node) is not None}
        if early := owed - made:
            raise AssertionError(f"read before they are made: {_names(early)}")
        made |= makes
    wanted = {node for node in plan.order if isinstance(node, Node) and node in plan.anchors}
    if missing := wanted - made:
        raise AssertionError(f"made by no step: {_names(missing)}")


def _names(nodes: set[Node]) -> str:
    return ", ".join(sorted(node.name for node in nodes))
