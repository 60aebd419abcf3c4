"""Rematerialisation: cheap values in their readers, per-row scalars in row kernels.

In: a plan and its groups; a program's loops. Out: the same, where some values are computed by those
who read them. Invariant: what is computed again is what would have been read; `keep_cheaper` goes
back to the plan that moves less memory; what is returned, or read by others than loops, is stored
as before.

A value with memory in any case is computed again by loops that read the elements which it is made
of for something else: the result of a rectifier, by the backward of the norm before it.

On a GPU a loop takes as long as its memory does, and a loop of a few numbers a row (the scale of a
norm's backward) as long as its launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, Ranges, Var, simplify, static_sizes, surely_less
from flambeau_inductor.ir.loops import (
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Store,
    ValueId,
    looked_up,
)
from flambeau_inductor.ir.operands import LoopBody, operands, pruned, reindexed, renumbered
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import Compute, computing, made_by, rescheduled, touched
from flambeau_inductor.ir.tensors import LibraryCall, Node, Pointwise
from flambeau_inductor.reachability import reached
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
    found, position, limits = computing(program), 0, context.limits
    devices = {buffer.name: buffer.layout.device.type for buffer in program.buffers}
    while position < len(found):
        _, written = touched(found[position])
        there = all(devices[name] in limits.split_on for name in written)
        made = _taken_in(found, position, program.owned.outlive, limits) if there else None
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


# --- elements of values that have memory in any case ---------------------------------------------


def compute_elements_again(context: PassContext, program: Program) -> tuple[Program, int]:
    """Read fewer elements on a GPU: those that the others at hand say."""
    steps = computing(program)
    layouts = {buffer.name: buffer.layout for buffer in program.buffers}
    others = (step for step in steps if not isinstance(step, RunLoop))
    seen = set(program.owned.outlive).union(*(touched(step)[0] for step in others))
    made, limits = list(steps), context.limits
    for at, step in enumerate(steps):
        maker = _maker(step.loop, limits) if isinstance(step, RunLoop) else None
        if maker is None or not maker.stored.keys() <= seen:
            continue
        _, written = touched(step)
        if any(layouts[name].device.type not in limits.split_on for name in written):
            continue
        reads = touched(step)[0]
        for position in range(at + 1, len(steps)):
            reader = made[position]
            if made_by(reader) & (reads | written):
                break
            read, stored = touched(reader)
            if isinstance(reader, RunLoop) and not read & stored and read & written:
                made[position] = _without_reading(reader, maker)
    return rescheduled(program, made)


@dataclass(frozen=True, slots=True)
class _Maker:
    """A pointwise loop, and the values that it stores, with the index, by buffer."""

    loop: Loop
    stored: Mapping[str, Store]


def _maker(loop: Loop, limits: Limits) -> _Maker | None:
    if loop.r or sum(isinstance(i, Point) for i in loop.body) > limits.recompute_ops:
        return None
    stored: dict[str, Store] = {}
    for instr in loop.body:
        if isinstance(instr, Store):
            if instr.mode != "set" or instr.scattered or instr.buffer in stored:
                return None
            stored[instr.buffer] = instr
        elif isinstance(instr, Load):
            if instr.mask is not None or looked_up(instr.index):
                return None
        elif not isinstance(instr, Const | Point):
            return None
    return _Maker(loop, stored)


def _without_reading(step: RunLoop, maker: _Maker) -> RunLoop:
    """The loop that computes what it read, where it reads what that is made of."""
    loop, ranges = step.loop, ranges_of(step.loop)
    at_hand = {(i.buffer, i.index.key) for i in loop.body if isinstance(i, Load) if i.mask is None}
    body = LoopBody()
    for position, instr in enumerate(loop.body):
        chain = _chain(maker, instr, ranges) if isinstance(instr, Load) else {}
        elements = (i for i in chain.values() if isinstance(i, Load))
        known = len(instr.index.vars) if isinstance(instr, Load) else 0
        if not chain or not all(
            (i.buffer, i.index.key) in at_hand for i in elements if len(i.index.vars) >= known
        ):
            body.new[position] = body.put(renumbered(instr, body.new))
            continue
        new: dict[ValueId, ValueId] = {}
        for each, moved in chain.items():
            new[each] = body.put(renumbered(moved, new))
        body.new[position] = new[max(chain)]
    made = pruned(body.body)
    return step if made == pruned(loop.body) else RunLoop(replace(loop, body=made))


def _chain(maker: _Maker, load: Load, ranges: Ranges) -> dict[ValueId, Instr]:
    """What computes the element that is loaded, in the variables of the reader, itself the last;
    nothing where its address does not say which point of the maker's it is."""
    store = maker.stored.get(load.buffer)
    if store is None or load.mask is not None or looked_up(load.index):
        return {}
    own: dict[str, Expr] = {}
    for axis in maker.loop.x:
        step = store.index.coefficient(axis.var)
        if not step or step < 0:
            return {}
        own[axis.var] = simplify(load.index // step % axis.size, ranges)
    if simplify(store.index.substitute(own), ranges).key != load.index.key:
        return {}
    wanted = reached([store.value], lambda position: operands(maker.loop.body[position]))
    moved = partial(_at, own, ranges)
    return {p: reindexed(maker.loop.body[p], moved) for p in sorted(wanted)}


def _at(own: Mapping[str, Expr], ranges: Ranges, index: Expr) -> Expr:
    return simplify(index.substitute(own), ranges)
