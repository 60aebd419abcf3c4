"""Loop fusion, vertical and horizontal: the pass.

In: a `MaterializationPlan`. Out: groups of anchors and library calls, in an order that respects
what reads what. Invariant: the graph of groups and calls has no cycle; a group is only compared
with groups that it reads from, that read from it, or that read the same memory. `before` of each
has bits of those that must run earlier, so that whether another must is one bit operation. A group
has the bits of all that it was joined of: a fusion renames nothing, and those that come after it
are notified only of what must run earlier beyond what they know.

A fusion's score is the bytes that it saves; zero where there is nothing to gain. What is shared
counts only if a point of the joint space reads the same element for both (not if one goes by rows
and the other by columns); that is sampled at a few points, and may only make a score too high.

Groups of which neither reads the other are joined only where they wait for the same collectives and
the same collectives start after them: else what is there would wait for what is on its way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from heapq import heappop, heappush

from flambeau_inductor._torch_compat import COLLECTIVES, WAIT
from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import IntegerConstant, Size, decide_equal, hint, is_open
from flambeau_inductor.ir.tensors import LibraryCall, Node, dot, flat_strides
from flambeau_inductor.schedule.fuse.legality import (
    Block,
    ComputedBuffer,
    FusionGroup,
    analyse,
    is_whole,
    joint_space,
    refusal,
    same_blocks,
    size_of,
    traffic,
)
from flambeau_inductor.schedule.materialize.plan import (
    MaterializationPlan,
    StorageView,
    data_sizes_of,
    data_sizes_of_call,
    operands_of,
)
from flambeau_inductor.schedule.tensor_program import Merge, Refusal, TensorProgram
from flambeau_inductor.scheduling_limits import Limits


@dataclass(slots=True, eq=False)
class _CallStep:
    number: int
    call: LibraryCall
    bits: int = 0
    before: int = 0
    following: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Fusion:
    """State of the pass."""

    plan: MaterializationPlan
    limits: Limits
    steps: dict[int, FusionGroup | _CallStep] = field(default_factory=dict)
    maker: dict[Node, FusionGroup | _CallStep] = field(default_factory=dict)
    readers: dict[Node, set[int]] = field(default_factory=dict)
    kept: set[Node] = field(default_factory=set)
    tiny: dict[tuple[Block, ...], set[int]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    fuel: int | None = None
    sized: dict[str, set[int]] = field(default_factory=dict)
    """By the symbol of a size that depends on data: the call that gives it."""

    after: dict[int, set[int]] = field(default_factory=dict)
    """By a step: those of the sizes that it uses; the previous call with an effect, for one."""

    waits: int = 0
    """Bits of the waits for collectives."""

    feeds: dict[int, int] = field(default_factory=dict)
    """By a step: bits of the collectives that start after it."""


def fuse(context: PassContext, program: TensorProgram) -> tuple[TensorProgram, int]:
    """Group the anchors, in an order to run them in.

    Fuel counts the pairs of loops that are joined, and what library calls have taken along.
    """
    if program.steps is not None or program.plan is None:
        return program, 0
    fuel = context.options.fuel.fusions
    left = None if fuel is None else fuel - len(program.graph.absorbed)
    state = Fusion(program.plan, context.limits, fuel=left)
    _collect(state)
    if context.limits.fusion:
        for _ in range(2):
            if not _sweep(state):
                break
    steps, merges, refusals = _ordered(state), tuple(state.merges), tuple(state.refusals)
    made = replace(program, steps=tuple(steps), merges=merges, refusals=refusals)
    return made, len(merges)


def _collect(state: Fusion) -> None:
    plan = state.plan
    effect: _CallStep | None = None
    for item in plan.order:
        number = len(state.steps)
        if isinstance(item, LibraryCall):
            step = _CallStep(number, item, 1 << number)
            state.steps[number] = step
            read = operands_of(plan, item)
            step.before = _before(state, read)
            if item.target == WAIT:
                state.waits |= step.bits
            if state.sized:
                step.before |= _sized(state, number, data_sizes_of_call(plan, item))
            if item.impure:
                if effect is not None:
                    state.after.setdefault(number, set()).add(effect.number)
                    step.before |= effect.before | effect.bits
                effect = step
            for result in plan.results(item):
                if result is not None:
                    state.maker[result] = step
            for size in plan.graph.sized.get(item, ()):
                state.sized.setdefault(size.name, set()).add(number)
            state.kept.update(read)
        elif item in plan.anchors:
            anchor = analyse(plan, item, number)
            group = FusionGroup(number, [anchor], anchor.blocks, traffic(anchor), anchor.ops)
            group.bits = 1 << number
            group.before = _before(state, anchor.reads)
            if state.sized:
                group.before |= _sized(state, number, data_sizes_of(plan, item))
            state.steps[number] = group
            state.maker[item] = group
            if hint(group.numel) <= state.limits.tiny_points:
                state.tiny.setdefault(group.blocks, set()).add(number)
            read = list(anchor.reads)
        else:
            continue
        for node in read:
            state.readers.setdefault(node, set()).add(number)
    state.kept.update(o.node for o in plan.outputs if isinstance(o, StorageView))
    state.kept.update(plan.checks)
    _drop_unread(state)


def _drop_unread(state: Fusion) -> None:
    """Leave out values that no step reads: readers whose masks are constant need no memory, and
    a loop over no points reads nothing.

    A group that reads checked positions stays, since its reader is where the check is made.
    """
    for number in sorted(state.steps, reverse=True):
        group = state.steps[number]
        if not isinstance(group, FusionGroup) or not state.plan.checks.keys().isdisjoint(
            group.reads
        ):
            continue
        (node,) = group.nodes()
        if node in state.kept or state.readers.get(node):
            if decide_equal(group.numel, 0):
                for read in group.reads:
                    state.readers[read].discard(number)
            continue
        del state.steps[number], state.maker[node]
        state.plan.anchors.discard(node)
        state.tiny.get(group.blocks, set()).discard(number)
        for read in group.reads:
            state.readers[read].discard(number)
    left = sum(1 << number for number in state.steps)
    for step in state.steps.values():  # a loop over no points comes after nothing that is left out
        step.before &= left
        for number in _direct(state, step):
            state.steps[number].following.add(step.number)
    if state.waits:
        _follow_to_collectives(state)


def _follow_to_collectives(state: Fusion) -> None:
    for number in sorted(state.steps, reverse=True):
        step, found = state.steps[number], 0
        for later in step.following:
            found |= state.feeds[later]
            other = state.steps[later]
            if isinstance(other, _CallStep) and other.call.target.startswith(COLLECTIVES):
                found |= other.bits & ~state.waits
        state.feeds[number] = found


def _before(state: Fusion, read: Iterable[Node]) -> int:
    mask = 0
    for node in read:
        if (made := state.maker.get(node)) is not None:
            mask |= made.before | made.bits
    return mask


def _sized(state: Fusion, number: int, names: Iterable[str]) -> int:
    """What must run before a step that uses these sizes."""
    calls = set().union(*(state.sized.get(name, ()) for name in names))
    if not calls:
        return 0
    state.after[number] = calls
    mask = 0
    for call in calls:
        mask |= state.steps[call].before | state.steps[call].bits
    return mask


def _sweep(state: Fusion) -> bool:
    changed = False
    for number in sorted(state.steps):
        group = state.steps.get(number)
        while isinstance(group, FusionGroup) and len(state.merges) != state.fuel:
            partner = _best(state, group)
            if partner is None:
                break
            group = _merge(state, partner, group)
            changed = True
    return changed


def _best(state: Fusion, group: FusionGroup) -> FusionGroup | None:
    candidates: set[int] = set()
    for node in group.reads:
        made = state.maker.get(node)
        if isinstance(made, FusionGroup):
            candidates.add(made.number)
        sharing = state.readers.get(node, set())
        if len(sharing) <= 32:
            candidates |= sharing
    tiny = hint(group.numel) <= state.limits.tiny_points
    if tiny:
        # The latest few: a long row of them must not make this quadratic.
        candidates.update(sorted(state.tiny.get(group.blocks, ()))[-16:])
    candidates.discard(group.number)
    scored: list[tuple[int, int]] = []
    for number in candidates:
        other = state.steps.get(number)
        # Later groups look back at this one: each pair is tried once.
        if not isinstance(other, FusionGroup) or number > group.number:
            continue
        if joint_space(other, group) is None:
            continue
        saved = _saved_bytes(state, other, group)
        if tiny and same_blocks(group.blocks, other.blocks):
            saved += 1
        if saved:
            scored.append((-saved, -number))
    for _, negative in sorted(scored):
        other = state.steps[-negative]
        if not isinstance(other, FusionGroup):
            continue
        reason = (
            _cycle(state, other, group)
            or _communication(state, other, group)
            or refusal(other, group, state.limits, state.plan.checks)
        )
        if reason is None:
            return other
        state.refusals.append(
            Refusal(other.members[-1].node.name, group.members[-1].node.name, reason)
        )
    return None


def _cycle(state: Fusion, a: FusionGroup, b: FusionGroup) -> str | None:
    for first, second in ((a, b), (b, a)):
        if not second.before & first.bits:
            continue
        # Something between them: `second` reads it, and it needs `first`.
        for number in sorted(_direct(state, second) - {first.number, second.number}):
            if state.steps[number].before & first.bits:
                return f"cycle: through step {number}"
    return None


def _communication(state: Fusion, a: FusionGroup, b: FusionGroup) -> str | None:
    if not state.waits or not (a.nodes().isdisjoint(b.reads) and b.nodes().isdisjoint(a.reads)):
        return None
    if (a.before ^ b.before) & state.waits:
        return "communication: one waits for a collective that the other does not need"
    if state.feeds[a.number] != state.feeds[b.number]:
        return "communication: a collective starts after one and not after the other"
    return None


def _merge(state: Fusion, a: FusionGroup, b: FusionGroup) -> FusionGroup:
    blocks, previous = joint_space(a, b), _direct(state, b)
    assert blocks is not None
    state.merges.append(Merge(a.members[-1].node.name, b.members[-1].node.name))
    a.blocks = blocks
    a.members = sorted([*a.members, *b.members], key=lambda m: m.position)
    for node, amount in b.reads.items():
        a.reads[node] = max(amount, a.reads.get(node, 0))
    a.ops += b.ops
    if b.number in state.after:
        state.after.setdefault(a.number, set()).update(state.after.pop(b.number))
    for number in previous:
        state.steps[number].following.discard(b.number)
        state.steps[number].following.add(a.number)
    a.following = (a.following | b.following) - {a.number, b.number}
    a.bits |= b.bits
    if state.waits:
        state.feeds[a.number] |= state.feeds[b.number]
    a.before = (a.before | b.before) & ~a.bits
    del state.steps[b.number]
    for tiny in (state.tiny.get(b.blocks), state.tiny.get(blocks)):
        if tiny is not None:
            tiny.discard(b.number)
    for member in b.members:
        state.maker[member.node] = a
    for node in b.reads:
        found = state.readers[node]
        found.discard(b.number)
        found.add(a.number)
    _notify(state, a)
    return a


def _notify(state: Fusion, group: FusionGroup) -> None:
    """Let those that come after a group know what must run before it, as far as they do not."""
    work: list[FusionGroup | _CallStep] = [group]
    while work:
        made = work.pop()
        for number in made.following:
            step = state.steps[number]
            if (made.before | step.before) != step.before:
                step.before |= made.before
                work.append(step)


def _ordered(state: Fusion) -> list[FusionGroup | LibraryCall]:
    """Dependencies first; otherwise as the program had it."""
    sorter = TopologicalSorter({n: _direct(state, s) - {n} for n, s in state.steps.items()})
    sorter.prepare()
    ready: list[tuple[int, int]] = []
    result: list[FusionGroup | LibraryCall] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heappush(ready, (_rank(state.steps[number]), number))
        _, number = heappop(ready)
        sorter.done(number)
        step = state.steps[number]
        result.append(step if isinstance(step, FusionGroup) else step.call)
    return result


def _rank(step: FusionGroup | _CallStep) -> int:
    return step.members[-1].position if isinstance(step, FusionGroup) else step.number


def _direct(state: Fusion, step: FusionGroup | _CallStep) -> set[int]:
    nodes = step.reads if isinstance(step, FusionGroup) else operands_of(state.plan, step.call)
    found = {state.maker[n].number for n in nodes if n in state.maker}
    return found | state.after.get(step.number, set())


# --- score: memory traffic saved ------------------------------------------------------------------


def _saved_bytes(state: Fusion, a: FusionGroup, b: FusionGroup) -> int:
    """Reads shared, reads of each other's values, and writes that nobody else needs."""
    linked, most = False, state.limits.shared_fraction
    shared = {node: min(a.reads[node], b.reads[node]) for node in a.reads.keys() & b.reads.keys()}
    total = sum(shared.values())
    for made, reader in ((a, b), (b, a)):
        for node in made.nodes() & reader.reads.keys():
            linked = True
            total += reader.reads[node]
            if node not in state.kept and state.readers.get(node, set()) <= {a.number, b.number}:
                total += node.nbytes
    if linked:
        return total
    least = min(_moved(a), _moved(b))
    blocks = joint_space(a, b)
    if total * most >= least and blocks is not None:
        total = sum(size for node, size in shared.items() if _meet(a, b, node, blocks))
    return total if total * most >= least else 0


def _moved(group: FusionGroup) -> int:
    return sum(group.reads.values()) + sum(m.node.nbytes for m in group.members)


SHARES = (3, 7, 11)
"""Points are looked at this deep (in sixteenths) in the space, and some more: neither its corners
nor the beginning of a row, where different orders meet."""


def _meet(a: FusionGroup, b: FusionGroup, node: Node, blocks: tuple[Block, ...]) -> bool:
    """Whether the groups, in a space of `blocks`, read the same elements of `node` at a point."""
    sizes = (*node.shape, *(size for size, _ in blocks))
    if is_open(sizes) or _same_reads(a, b, node, blocks):
        return True
    points = hint(size_of(blocks, None))
    for number, share in enumerate(SHARES if points else ()):
        at = (points * share // 16 + number + 1) % points
        first, second = _read(a, node, blocks, at), _read(b, node, blocks, at)
        if first is not None and second is not None and first.isdisjoint(second):
            return False
    return True


def _same_reads(a: FusionGroup, b: FusionGroup, node: Node, blocks: tuple[Block, ...]) -> bool:
    """Whether two anchors of one shape read `node` by the same index, as most do."""
    others = [anchor for anchor in b.members if node in anchor.reads]
    return any(
        one.shape == other.shape
        and is_whole(one, blocks) == is_whole(other, blocks)
        and one.reads[node] == other.reads[node]
        for one in a.members
        if node in one.reads
        for other in others
    )


def _read(group: FusionGroup, node: Node, blocks: tuple[Block, ...], at: int) -> set[int] | None:
    """Which elements of `node` a group reads at a point; None where they are looked up."""
    stride = flat_strides(node.shape)
    found: set[int] = set()
    for anchor in group.members:
        if node not in anchor.reads:
            continue
        place = _coordinates(anchor, blocks, at)
        for index in anchor.reads[node]:
            position = dot(index, stride).substitute(place)
            if not isinstance(position, IntegerConstant):
                return None
            found.add(position.value)
    return found


def _coordinates(anchor: ComputedBuffer, blocks: tuple[Block, ...], at: int) -> dict[str, int]:
    if not is_whole(anchor, blocks):
        digits = _digits(at, [size for size, _ in blocks])
        at = 0
        for digit, (size, reduced) in zip(digits, blocks, strict=True):
            at = at if reduced else at * hint(size) + digit
    return {f"d{d}": digit for d, digit in enumerate(_digits(at, anchor.shape))}


def _digits(flat: int, shape: Sequence[Size]) -> tuple[int, ...]:
    digits = []
    for size in map(hint, reversed(shape)):
        digits.append(flat % size)
        flat //= size
    return tuple(reversed(digits))
