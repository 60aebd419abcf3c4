"""Step order: sinking of loops to their first use, and least peak memory.

In: steps that compute, in an order in which they may run. Out: the same steps in such an order.
Invariant: no loop passes a step that touches what it stores, or writes what it reads; a loop sinks
only if it stores more than it alone keeps alive; another order is taken only where its peak is
lower and the same inputs are written in place; random draws keep their order, and nothing passes a
check.

The order of least peak is found from the end: of the steps that may come last, that one does before
which the least memory is live.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from flambeau_inductor._torch_compat import has_effect, overload_of
from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.loops import Check
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
    on_a_gpu,
    rescheduled,
    storage_bytes,
    touched,
)
from flambeau_inductor.schedule.memory.planning import in_place, peak_bytes, with_lifetimes
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
        if any(isinstance(instr, Check) for instr in each.step.loop.body):
            continue
        first = _first_dependent(plan, here)
        if first is None or first == here + 1:  # nobody needs it, or the next step does
            continue
        stored = _bytes({n for n in each.made if makers[n] is each}, buffers)
        let_go = _bytes(each.seen - each.made - _seen_from(plan, here, first), buffers)
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
        reads, writes = touched(step)
        results = step.results if isinstance(step, Extern) else ()
        made = frozenset(writes) | {name for name in results if name is not None}
        return cls(step, made | reads, made)


def _first_dependent(plan: Sequence[_Placed], here: int) -> int | None:
    moved = plan[here]
    for at, other in enumerate(plan[here + 1 :], here + 1):
        if not other.seen.isdisjoint(moved.made) or not other.made.isdisjoint(moved.seen):
            return at
    return None


def _seen_from(plan: Sequence[_Placed], here: int, first: int) -> frozenset[str]:
    """Of what the step at `here` sees, what one from `first` on sees too."""
    return plan[here].seen & frozenset[str]().union(*(each.seen for each in plan[first:]))


def _bytes(names: AbstractSet[str], buffers: Mapping[str, Buffer]) -> int | None:
    """Of these buffers together; None where a size is open."""
    sizes = [storage_bytes(buffers[name].layout) for name in names]
    known = [size for size in sizes if isinstance(size, int)]
    return sum(known) if len(known) == len(sizes) else None


KNOWN = ("aten", "flambeau", "flambeau_inductor", "flambeau_prims")
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
    sizes = {name: storage_bytes(each.layout) for name, each in buffers.items()}
    known = {name: size for name, size in sizes.items() if isinstance(size, int)}
    on_a_gpu = any(each.layout.device.type == "cuda" for each in buffers.values())
    if not on_a_gpu or len(known) < len(sizes) or not all(map(_is_known, steps)):
        return steps
    known.update(dict.fromkeys(owned.updated, 0))  # what lies where an input is
    found = [steps[at] for at in _from_the_end(_OrderPlan(steps, known, owned))]
    if in_place(found, owned.updated, buffers, owned.outlive) != owned.updated:
        return steps
    now, then = (
        peak_bytes(with_lifetimes(order, buffers, owned), buffers, owned.donated)
        for order in (steps, found)
    )
    least = tuning_of(each.layout.device for each in buffers.values()).order_gain
    return found if then < (1 - least) * now else steps


@dataclass(slots=True)
class _OrderPlan:
    """Steps by position: what each touches and makes, what must run before it, what is alive."""

    steps: Sequence[Compute]
    sizes: Mapping[str, int]
    owned: BufferOwnership
    seen: list[frozenset[str]] = field(default_factory=list)
    made: list[frozenset[str]] = field(default_factory=list)
    before: list[set[int]] = field(default_factory=list)
    users: dict[str, set[int]] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        placed = list(map(_Placed.of, self.steps))
        self.seen, self.made = [each.seen for each in placed], [each.made for each in placed]
        for at, names in enumerate(self.seen):
            for name in names:
                self.users.setdefault(name, set()).add(at)
        self.before = _needed(self)
        self.alive.update(name for name in self.users if self.stays(name))

    def stays(self, name: str) -> bool:
        """Whether a buffer outlives the last step, whatever the order."""
        own = name not in self.owned.given or name in self.owned.donated
        return not own or name in self.owned.kept or name in self.owned.updated.values()

    def more_before(self, at: int) -> int:
        """How much more is live before a step than after it, if it is the next from the end."""
        begun = {n for n in self.made[at] if len(self.users[n]) == 1 and n not in self.owned.given}
        ended = self.seen[at] - self.alive - begun
        sizes = self.sizes
        return sum(sizes[n] for n in ended) - sum(sizes[n] for n in begun & self.alive)

    def place(self, at: int) -> set[int]:
        """A step is the next from the end; for which others `more_before` may be another now."""
        changed: set[int] = set()
        for name in self.seen[at]:
            users = self.users[name]
            users.discard(at)
            if name not in self.alive or len(users) == 1:
                changed |= users
        self.alive |= self.seen[at]
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


def _needed(plan: _OrderPlan) -> list[set[int]]:
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    found: list[set[int]] = []
    wall = effect = NOBODY
    for at, step in enumerate(plan.steps):
        before = {wall} - {NOBODY}
        written = set(plan.made[at])
        if not plan.seen[at].isdisjoint(plan.owned.shared):
            written.add(SHARED)
        for name in plan.seen[at] | written:
            if name in writer:
                before.add(writer[name])
            if name in written:
                before.update(readers.pop(name, ()))
                writer[name] = at
            else:
                readers.setdefault(name, []).append(at)
        if _may_refuse(step):
            before.update(range(wall + 1, at))
            wall = at
        if isinstance(step, Extern) and _has_effect(step):
            before.update({effect} - {NOBODY})
            effect = at
        found.append(before - {at})
    return found


def _may_refuse(step: Compute) -> bool:
    """Whether a step looks at positions that others read by."""
    if isinstance(step, RunLoop):
        return any(isinstance(instr, Check) for instr in step.loop.body)
    return isinstance(step, CheckIndex) or step.target == "aten._assert_async.msg"


def _is_known(step: Compute) -> bool:
    return not isinstance(step, Extern) or step.target.partition(".")[0] in KNOWN


def _has_effect(step: Extern) -> bool:
    try:
        return has_effect(overload_of(step.target))
    except LookupError:  # a call that stands for kernels
        return False
