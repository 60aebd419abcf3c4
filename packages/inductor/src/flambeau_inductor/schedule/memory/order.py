"""Step order: sinking of loops to their first use, and least peak memory.

In: steps that compute, in an order in which they may run. Out: the same steps in such an order.
Invariant: no loop passes a step that touches what it stores, or writes what it reads; a loop sinks
only if it stores more than it alone keeps alive; another order is taken only where its peak is
lower and the same inputs are written in place; random draws keep their order, and nothing passes a
check.

The order of least peak is found from the end: of the steps that may come last, that one does before
which the least memory is live.

Copy coalescing: a copy of a buffer that is needed no longer becomes the buffer itself. In: a
program whose steps compute. Out: the same without such copies: one name for both. Invariant: the
memory is the program's own, the copy is of all of it, in one layout; whoever reads the old value
afterwards does so before the new one changes, or as `may_overwrite` says. A tensor that is written
part after part, and read in between, is copied before each write: that is what makes it functional.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import prod
from typing import overload

from flambeau_inductor._torch_compat import has_effect, overload_of
from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import same
from flambeau_inductor.ir.loops import Check, Load, Store
from flambeau_inductor.ir.program import (
    Buffer,
    BufferOwnership,
    CheckIndex,
    Extern,
    Program,
    RunLoop,
)
from flambeau_inductor.ir.steps import (
    Compute,
    computing,
    known_bytes,
    made_by,
    on_a_gpu,
    rescheduled,
    touched,
)
from flambeau_inductor.schedule.memory.planning import (
    copies,
    in_place,
    may_overwrite,
    peak_bytes,
    with_lifetimes,
)
from flambeau_inductor.tuning import tuning_of


def sink_loops(context: PassContext, program: Program) -> tuple[Program, int]:
    """Move loops of a GPU to where they are needed, where that pays."""
    if not on_a_gpu(program):
        return program, 0
    found = later(computing(program), program.by_name, program.owned.shared)
    return rescheduled(program, found)


def later(
    steps: Sequence[Compute], buffers: Mapping[str, Buffer], fixed: AbstractSet[str]
) -> list[Compute]:
    """Move what pays, the last loops first. fixed: buffers that may share memory with others."""
    plan = list(map(_Placed.of, steps))
    makers: dict[str, _Placed] = {}
    for each in plan:
        for name in each.made:
            makers.setdefault(name, each)
    for here in range(len(plan) - 1, -1, -1):
        each = plan[here]
        if not each.seen.isdisjoint(fixed) or not isinstance(each.step, RunLoop):
            continue
        if may_refuse(each.step):
            continue
        dependent = (
            at
            for at, other in enumerate(plan[here + 1 :], here + 1)
            if other.seen & each.made or other.made & each.seen
        )
        first = next(dependent, None)
        if first is None or first == here + 1:  # nobody needs it, or the next step does
            continue
        needed = each.made.union(*(other.seen for other in plan[first:]))
        stored = _bytes({n for n in each.made if makers[n] is each}, buffers)
        let_go = _bytes(each.seen - needed, buffers)
        if stored is not None and let_go is not None and stored > let_go:
            plan.insert(first - 1, plan.pop(here))
    return [each.step for each in plan]


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """A step with the buffers that it reads or makes, and those that it makes or writes."""

    step: Compute
    seen: frozenset[str]
    made: frozenset[str]

    @classmethod
    def of(cls, step: Compute) -> _Placed:
        made = frozenset(made_by(step))
        return cls(step, made | touched(step)[0], made)


def _bytes(names: AbstractSet[str], buffers: Mapping[str, Buffer]) -> int | None:
    """Of these buffers together; None where a size is open."""
    known = known_bytes(buffers[name] for name in names)
    return sum(known.values()) if len(known) == len(names) else None


KNOWN = frozenset({"aten", "flambeau", "flambeau_inductor", "flambeau_prims"})
"""Namespaces of calls that do nothing but compute; of others, as collectives, nobody knows."""

SHARED = "*"
"""Stands for all memory that tensors may share."""

NOBODY = -1
"""In place of the position of a step."""


def reorder_for_peak_memory(context: PassContext, program: Program) -> tuple[Program, int]:
    """Take the order that is found from the end, if its peak is lower."""
    return rescheduled(
        program, minimise_peak_memory(computing(program), program.by_name, program.owned)
    )


def minimise_peak_memory(
    steps: Sequence[Compute], buffers: Mapping[str, Buffer], owned: BufferOwnership
) -> Sequence[Compute]:
    """The steps in the given order, or in the one found from the end if its peak is lower."""
    known, devices = known_bytes(buffers.values()), [b.layout.device for b in buffers.values()]
    on_a_gpu = any(device.type == "cuda" for device in devices)
    called = (step.target.partition(".")[0] for step in steps if isinstance(step, Extern))
    if not on_a_gpu or len(known) < len(buffers) or not {*called} <= KNOWN:
        return steps
    if any(isinstance(step, Extern) and step.sizes for step in steps):
        return steps  # what uses a number comes after it, though it reads no buffer of it
    known.update(dict.fromkeys(owned.updated, 0))  # what lies where an input is
    found = [steps[at] for at in _from_the_end(_OrderPlan([*map(_Placed.of, steps)], known, owned))]
    if in_place(found, owned.updated, buffers, owned.outlive) != owned.updated:
        return steps
    now, then = (
        peak_bytes(with_lifetimes(order, buffers, owned), buffers, owned.donated)
        for order in (steps, found)
    )
    least = tuning_of(devices).order_gain
    return found if then < (1 - least) * now else steps


@dataclass(slots=True)
class _OrderPlan:
    """Steps by position: what each touches and makes, what must run before it, what is alive."""

    steps: Sequence[_Placed]
    sizes: Mapping[str, int]
    owned: BufferOwnership
    before: list[set[int]] = field(init=False)
    users: dict[str, set[int]] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for at, step in enumerate(self.steps):
            for name in step.seen:
                self.users.setdefault(name, set()).add(at)
        self.before = _needed(self.steps, self.owned)
        self.alive.update(name for name in self.users if self.stays(name))

    def stays(self, name: str) -> bool:
        """Whether a buffer outlives the last step, whatever the order."""
        own = name not in self.owned.given or name in self.owned.donated
        return not own or name in self.owned.kept or name in self.owned.updated.values()

    def more_before(self, at: int) -> int:
        """How much more is live before a step than after it, if it is the next from the end."""
        step, sizes, given = self.steps[at], self.sizes, self.owned.given
        begun = {n for n in step.made if len(self.users[n]) == 1 and n not in given}
        ended = step.seen - self.alive - begun
        return sum(sizes[n] for n in ended) - sum(sizes[n] for n in begun & self.alive)

    def place(self, at: int) -> set[int]:
        """A step is the next from the end; for which others `more_before` may be another now."""
        changed: set[int] = set()
        for name in self.steps[at].seen:
            users = self.users[name]
            users.discard(at)
            if name not in self.alive or len(users) == 1:
                changed |= users
        self.alive |= self.steps[at].seen
        return changed


def _from_the_end(plan: _OrderPlan) -> list[int]:
    """Positions of the steps in the order that is found; the later one where two are as good."""
    waiting = [0] * len(plan.steps)  # steps that must run after one and are not placed yet
    for each in plan.before:
        for at in each:
            waiting[at] += 1
    cost = {at: plan.more_before(at) for at, count in enumerate(waiting) if not count}
    heap = [(more, -at) for at, more in cost.items()]
    heapq.heapify(heap)
    found: list[int] = []
    while heap:
        more, negative = heapq.heappop(heap)
        at = -negative
        if cost.get(at) != more:
            continue  # placed, or pushed again since
        del cost[at]
        found.append(at)
        changed = {other for other in plan.place(at) if other in cost}
        for other in plan.before[at]:
            waiting[other] -= 1
            if not waiting[other]:
                changed.add(other)
        for other in changed:
            cost[other] = plan.more_before(other)
            heapq.heappush(heap, (cost[other], -other))
    return found[::-1]


def _needed(steps: Sequence[_Placed], owned: BufferOwnership) -> list[set[int]]:
    """What must run before each step."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    found: list[set[int]] = []
    wall = effect = NOBODY
    for at, each in enumerate(steps):
        step, before, written = each.step, {wall} - {NOBODY}, set(each.made)
        if not each.seen.isdisjoint(owned.shared):
            written.add(SHARED)
        for name in each.seen | written:
            if name in writer:
                before.add(writer[name])
            if name in written:
                before.update(readers.pop(name, ()))
                writer[name] = at
            else:
                readers.setdefault(name, []).append(at)
        if may_refuse(step):
            before.update(range(wall + 1, at))
            wall = at
        if isinstance(step, Extern) and _has_effect(step):
            before.update({effect} - {NOBODY})
            effect = at
        found.append(before - {at})
    return found


def may_refuse(step: Compute) -> bool:
    """Whether a step looks at positions that others read by."""
    if isinstance(step, RunLoop):
        return any(isinstance(instr, Check) for instr in step.loop.body)
    return isinstance(step, CheckIndex) or step.target == "aten._assert_async.msg"


def keeps_order(step: Compute) -> bool:
    """Whether a step has a place among others besides those that touch its buffers."""
    return may_refuse(step) or (
        isinstance(step, Extern) and (bool(step.sizes) or _has_effect(step))
    )


def _has_effect(step: Extern) -> bool:
    try:
        return has_effect(overload_of(step.target))
    except LookupError:  # a call that stands for kernels
        return False


@dataclass(slots=True)
class _Uses:
    """Where a buffer is written, where it is read last, and whether loops alone touch it."""

    writes: list[int] = field(default_factory=list)
    read: int = -1
    loops: bool = True


def coalesce_copies(context: PassContext, program: Program) -> tuple[Program, int]:
    """Leave out the copies that can be. A loop that was unrolled may have hundreds: what each needs
    of all steps is kept by buffer, and steps are renamed at the end."""
    steps, left = computing(program), list[Compute]()
    state = _Coalescing(program.owned, program.by_name, steps, _uses(steps))
    for position, step in enumerate(steps):
        names = state.copy(position)
        if names is None:
            left.append(step)
        else:
            state.merge(*names)
    return rescheduled(program, [state.renamed(step) for step in left])


def _uses(steps: Sequence[Compute]) -> dict[str, _Uses]:
    found: dict[str, _Uses] = {}
    for position, step in enumerate(steps):
        reads, writes = touched(step)[0], made_by(step)
        for name in reads | writes:
            each = found.setdefault(name, _Uses())
            each.loops &= isinstance(step, RunLoop)
            each.read = position if name in reads else each.read
            each.writes += [position] if name in writes else []
    return found


@dataclass(slots=True)
class _Coalescing:
    """`uses` are of what buffers are called by now, `names` what they became."""

    owned: BufferOwnership
    buffers: Mapping[str, Buffer]
    steps: Sequence[Compute]
    uses: dict[str, _Uses]
    names: dict[str, str] = field(default_factory=dict)

    def copy(self, position: int) -> tuple[str, str] | None:
        """What the copy at `position` is of, and the copy; None where it has to be made."""
        step, owned = self.steps[position], self.owned
        if not isinstance(step, RunLoop) or len(step.loop.body) != 2:
            return None
        step = self.renamed(step)
        load, store = step.loop.body
        if not isinstance(load, Load) or not isinstance(store, Store):
            return None
        old, new = load.buffer, store.buffer
        if not copies(step, old, new) or {old, new} & (owned.given | owned.shared):
            return None
        layout, uses = self.buffers[new].layout, self.uses[old]
        whole = same(prod(axis.size for axis in step.loop.x), prod(layout.shape))
        if self.buffers[old].layout != layout or not whole or not uses.loops or old in owned.kept:
            return None
        first, *later = self.uses[new].writes[:2]
        if first != position or any(last > position for last in uses.writes[-1:]):
            return None
        changes = later[0] if later else len(self.steps)
        if uses.read < changes:
            return old, new
        if uses.read > changes or not may_overwrite(self.renamed(self.steps[changes]), old, new):
            return None
        return old, new

    def merge(self, old: str, new: str) -> None:
        """Leave out the first write of `new`, which is the copy."""
        before, after = self.uses.pop(old), self.uses[new]
        before.writes += after.writes[1:]
        self.uses[new] = _Uses(before.writes, max(before.read, after.read), after.loops)
        self.names[old] = new

    def name(self, name: str) -> str:
        """What a buffer is called by now."""
        last = name
        while last in self.names:
            last = self.names[last]
        while name != last:  # the next look-up is one step
            self.names[name], name = last, self.names[name]
        return last

    @overload
    def renamed(self, step: RunLoop) -> RunLoop: ...
    @overload
    def renamed(self, step: Compute) -> Compute: ...
    def renamed(self, step: Compute) -> Compute:
        """The step with buffers under their names of now; loops alone touch those with another."""
        if not isinstance(step, RunLoop) or self.names.keys().isdisjoint(
            frozenset.union(*touched(step))
        ):
            return step
        body = tuple(
            replace(i, buffer=self.name(i.buffer)) if isinstance(i, Load | Store) else i
            for i in step.loop.body
        )
        return RunLoop(replace(step.loop, body=body))
