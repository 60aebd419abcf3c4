"""Rematerialisation: cheap values in their readers, per-row scalars in row kernels.

In: a plan and its groups; a program's loops. Out: the same, where some values are computed by those
who read them. Invariant: what is computed again is what would have been read; `keep_cheaper` goes
back to the plan that moves less memory; what is returned, or read by others than loops, is stored
as before.

On a GPU a loop takes as long as its memory does, and a loop of a few numbers a row (the scale of a
norm's backward) as long as its launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, Ranges, Var, simplify, static_sizes, surely_less
from flambeau_inductor.ir.loops import (
    Const,
    IndexValue,
    Load,
    Loop,
    Point,
    Store,
    ValueId,
    looked_up,
)
from flambeau_inductor.ir.operands import LoopBody, pruned, reindexed, renumbered
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import Compute, computing, made_by, rescheduled, touched
from flambeau_inductor.ir.tensors import LibraryCall, Node, Pointwise
from flambeau_inductor.schedule.fuse.legality import ComputedBuffer, FusionGroup
from flambeau_inductor.schedule.fuse.loop_order import ranges_of
from flambeau_inductor.schedule.materialize.plan import (
    MaterializationPlan,
    StorageView,
    operands_of,
)
from flambeau_inductor.schedule.tensor_program import TensorProgram
from flambeau_inductor.scheduling_limits import Limits


def rematerialize(context: PassContext, program: TensorProgram) -> tuple[TensorProgram, int]:
    """Begin anew without memory for values whose readers had better compute them."""
    again = _Traffic(*program.planned()).computed_again(context.limits)
    made = TensorProgram(program.graph, again=again, rival=program)
    return (made, len(again)) if again else (program, 0)


def keep_cheaper(context: PassContext, program: TensorProgram) -> tuple[TensorProgram, int]:
    """Go back to the plan before that, unless the loops of this one move less."""
    rival = program.rival
    if rival is None or _Traffic(*program.planned()).moved() < _Traffic(*rival.planned()).moved():
        return replace(program, rival=None), 0
    return rival, len(program.again)


class _Traffic:
    """The loops of a plan, who reads each value, and what library calls, checks and callers see:
    that has memory in any case."""

    def __init__(
        self, plan: MaterializationPlan, steps: Sequence[FusionGroup | LibraryCall]
    ) -> None:
        self.plan = plan
        self.groups = [step for step in steps if isinstance(step, FusionGroup)]
        self.readers: defaultdict[Node, list[FusionGroup]] = defaultdict(list)
        for group in self.groups:
            for node in group.reads:
                self.readers[node].append(group)
        self.seen = {each.node for each in plan.outputs if isinstance(each, StorageView)}
        calls = (item for item in plan.order if isinstance(item, LibraryCall))
        self.seen.update(plan.checks, *(operands_of(plan, call) for call in calls))

    def others(self, node: Node, group: FusionGroup) -> list[FusionGroup]:
        """The other loops that read a value."""
        return [other for other in self.readers[node] if other is not group]

    def computed_again(self, limits: Limits) -> frozenset[Node]:
        return frozenset(
            anchor.node
            for group in self.groups
            for anchor in group.members
            if anchor.node not in self.seen
            and _is_cheap(anchor, limits)
            and self._saves(anchor, group)
        )

    def moved(self) -> int:
        total = 0
        for group in self.groups:
            own = group.nodes()
            total += sum(size for node, size in group.reads.items() if node not in own)
            total += sum(n.nbytes for n in own if n in self.seen or self.others(n, group))
        return total

    def _saves(self, anchor: ComputedBuffer, group: FusionGroup) -> bool:
        """Whether the other loops that read a value read little more if they compute it."""
        node, anchors = anchor.node, self.plan.anchors
        others = self.others(node, group)
        if not others or not all(surely_less(other.numel, node.numel + 1) for other in others):
            return False
        for source in anchor.reads:
            kept = source not in anchors or source in self.seen
            if not kept and not self.others(source, group):
                return False  # it would need memory instead
        added = sum(
            source.nbytes
            for other in others
            for source in anchor.reads.keys() - other.reads.keys() - other.nodes()
        )
        return 2 * added <= node.nbytes * (1 + len(others))


def _is_cheap(anchor: ComputedBuffer, limits: Limits) -> bool:
    node = anchor.node
    if not isinstance(node.define, Pointwise) or node.device.type not in limits.recompute_on:
        return False
    return anchor.ops <= limits.recompute_ops and static_sizes(node.shape) is not None


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A loop of one axis, and which of its values it stores at that axis' own position."""

    loop: Loop
    stored: Mapping[str, ValueId]


def inline_row_scalars(context: PassContext, program: Program) -> tuple[Program, int]:
    """Leave out such loops on a GPU."""
    found, position = computing(program), 0
    devices = {buffer.name: buffer.layout.device.type for buffer in program.buffers}
    while position < len(found):
        _, written = touched(found[position])
        there = all(devices[name] in context.limits.split_on for name in written)
        made = _taken_in(found, position, program.owned.outlive, context.limits) if there else None
        if made is None:
            position += 1
        else:
            found = made
    return rescheduled(program, found)


def _taken_in(
    steps: list[Compute], at: int, kept: Container[str], limits: Limits
) -> list[Compute] | None:
    """The steps with the loop at `at` computed by its readers; None where it has to stay."""
    step = steps[at]
    numbers = _numbers(step.loop, limits) if isinstance(step, RunLoop) else None
    if numbers is None or any(name in kept for name in numbers.stored):
        return None
    reads, _ = touched(step)
    readers: list[int] = []
    for position, other in enumerate(steps):
        if position == at:
            continue
        if made_by(other) & (reads | numbers.stored.keys()):
            return None
        if touched(other)[0] & numbers.stored.keys():
            readers.append(position)
    if not 0 < len(readers) <= limits.row_scalar_readers:
        return None
    made = list(steps)
    for position in readers:
        other = steps[position]
        loop = _reading(other.loop, numbers) if isinstance(other, RunLoop) else None
        if loop is None:
            return None
        made[position] = RunLoop(loop)
    del made[at]
    return made


def _numbers(loop: Loop, limits: Limits) -> _Numbers | None:
    """What a loop computes for each row; None where it does anything else."""
    ops = sum(isinstance(i, Point) for i in loop.body)
    if len(loop.x) != 1 or loop.r or ops > limits.row_scalar_ops:
        return None
    own = Var(loop.x[0].var)
    stored: dict[str, ValueId] = {}
    for instr in loop.body:
        if isinstance(instr, Store):
            if instr.mode != "set" or instr.index != own or instr.buffer in stored:
                return None
            stored[instr.buffer] = instr.value
        elif isinstance(instr, Load):
            if instr.mask is not None or looked_up(instr.index):
                return None
        elif not isinstance(instr, Const | Point | IndexValue):
            return None
    return _Numbers(loop, stored)


def _reading(loop: Loop, numbers: _Numbers) -> Loop | None:
    """A loop that computes what it read; None where it is no pipelined row kernel."""
    if not any(isinstance(i, Store) and i.mode == "total" for i in loop.body):
        return None
    along, ranges, body = {axis.var for axis in loop.r}, ranges_of(loop), LoopBody()
    made: dict[str, dict[str, ValueId]] = {}
    for position, instr in enumerate(loop.body):
        if not isinstance(instr, Load) or instr.buffer not in numbers.stored:
            body.copy(position, instr)
            continue
        index = instr.index
        if not along or looked_up(index) or index.vars & along or instr.mask is not None:
            return None
        if index.key not in made:
            made[index.key] = _computed(numbers, index, ranges, body)
        body.new[position] = made[index.key][instr.buffer]
    origins = tuple(dict.fromkeys((*numbers.loop.origins, *loop.origins)))
    return replace(loop, body=pruned(body.body), origins=origins)


def _computed(numbers: _Numbers, row: Expr, ranges: Ranges, body: LoopBody) -> dict[str, ValueId]:
    """Append what computes the numbers of a row; where they are, by the buffer they were in."""
    own = {numbers.loop.x[0].var: row}
    new: dict[ValueId, ValueId] = {}
    for position, instr in enumerate(numbers.loop.body):
        if not isinstance(instr, Store):
            made = renumbered(instr, new)
            made = reindexed(made, lambda e: simplify(e.substitute(own), ranges))
            new[position] = body.append(made)
    return {buffer: new[value] for buffer, value in numbers.stored.items()}
