"""Memory planning: lifetimes, in-place updates, buffer reuse.

In: steps that compute, the buffers, what the caller owns or keeps. Out: the same steps with
`Alloc`, `Reuse` and `FreeBuffer` around them. Invariant: memory is never given away while a later
step, an output, or a tensor that may share it needs it; an input is written in place only where
nothing reads the old value later and no later step can fail; reuse never raises the peak of any
device.

On a CPU memory that stays is still in cache and need not be mapped anew. A GPU's allocator keeps
what is freed, but asking it takes time: there a buffer takes over another one in its own layout
alone, a new name for the same tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import same, same_sizes, static_sizes
from flambeau_inductor.ir.loops import Load, Loop, Reduce, Scan, Store
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    BufferOwnership,
    CheckIndex,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Reuse,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.steps import Compute, computing, rescheduled, storage_bytes, touched
from flambeau_inductor.tuning import host_tuning

_STEADFAST = """
    aten._to_copy.default aten.addmm.out aten.baddbmm.out aten.bmm.out aten.cat.out
    aten.mm.out
    """
STEADFAST = frozenset(_STEADFAST.split())
"""Library calls that fail for no value of their operands."""


def same_elements(loop: Loop, old: str, new: str) -> bool:
    """Whether `old` is only read at the element at which `new` is stored, before that store and
    unconditionally: instructions run in the order of the body."""
    loads = [(k, i) for k, i in enumerate(loop.body) if isinstance(i, Load) and i.buffer == old]
    stores = [(k, i) for k, i in enumerate(loop.body) if isinstance(i, Store) and i.buffer == new]
    if len(stores) != 1:
        return False
    ((place, store),) = stores
    if store.mode != "set" or any(v.startswith("%") for v in store.index.vars):
        return False
    return all(k < place and i.index == store.index and i.mask is None for k, i in loads)


def copies(step: Compute, old: str, new: str) -> bool:
    """Whether a step only copies `old` into `new`, element by element."""
    if not isinstance(step, RunLoop) or len(step.loop.body) != 2:
        return False
    load, store = step.loop.body
    plain = isinstance(load, Load) and isinstance(store, Store) and load.buffer == old
    return plain and same_elements(step.loop, old, new)


def _may_fail(step: Compute) -> bool:
    if isinstance(step, Extern):
        return step.target not in STEADFAST
    return isinstance(step, CheckIndex)


def update_in_place(context: PassContext, program: Program) -> tuple[Program, int]:
    """Write the new values of inputs where the inputs are."""
    owned = program.owned
    updated = in_place(computing(program), owned.updates, program.by_name, owned.outlive)
    return replace(program, owned=replace(owned, updated=updated)), len(updated)


def in_place(
    steps: Sequence[Compute],
    updates: Mapping[str, str],
    buffers: Mapping[str, Buffer],
    alive: frozenset[str],
) -> dict[str, str]:
    """Of `updates`, the input by its new value, those that are written where the input is.

    alive: buffers whose memory is not free at any time: what is returned, or may be shared.
    """
    if not updates:
        return {}
    sure = max((k for k, s in enumerate(steps) if _may_fail(s)), default=-1)
    written: dict[str, list[int]] = {}
    read: dict[str, int] = {}
    for position, step in enumerate(steps):
        reads, writes = touched(step)
        read.update(dict.fromkeys(reads, position))
        for name in writes:
            written.setdefault(name, []).append(position)
    found: dict[str, str] = {}
    for new, old in updates.items():
        if new not in written:
            continue
        at, *later = written[new]
        step = steps[at]
        changes = later[:1] if copies(step, old, new) else [at]
        if any(place <= sure for place in changes) or old in alive or old in written:
            continue
        if buffers[new].layout != buffers[old].layout or read.get(old, -1) > at:
            continue
        if not isinstance(step, RunLoop):
            continue
        if read.get(old) != at or (not step.loop.r and same_elements(step.loop, old, new)):
            found[new] = old
    return found


LONG_ROW = 1024
"""Elements of a row that may be written over what is read of it: at least one for each thread of a
program. Gradients of logits lie where the logits were, 31 MiB of 109 in a small Llama's step."""


def plan_lifetimes(context: PassContext, program: Program) -> tuple[Program, int]:
    """Put allocation and freeing around the steps that compute."""
    steps = with_lifetimes(computing(program), program.by_name, program.owned)
    return rescheduled(program, (*map(Alloc, program.owned.empty), *steps))


def with_lifetimes(
    steps: Sequence[Compute], buffers: Mapping[str, Buffer], owned: BufferOwnership
) -> list[Step]:
    """Put allocation and freeing around the steps."""
    last: dict[str, int] = {}
    for position, step in enumerate(steps):
        reads, writes = touched(step)
        made = _results(step)
        for name in (*reads, *writes, *made):
            last[name] = position
    result: list[Step] = []
    stay = owned.kept.union(owned.updated.values())
    unused = [n for n in owned.given if n not in last and _may_die(n, stay)]
    result.extend(FreeBuffer(n) for n in sorted(unused) if n.startswith("in"))
    exists = set(owned.given)
    moved = owned.updated.keys()
    for position, step in enumerate(steps):
        reads, writes = touched(step)
        dying = {n for n in reads if last[n] == position and _may_die(n, stay)}
        taken: set[str] = set()
        for name in sorted(writes - exists, key=_natural):
            old = owned.updated.get(name)
            if old is None:
                old = _replaceable(step, name, dying - taken, buffers, owned)
            if old is None:
                result.append(Alloc(name))
            else:
                result.append(Reuse(name, old))
                taken.add(old)
            exists.add(name)
        exists.update(_results(step))
        if not any(copies(step, owned.updated[name], name) for name in writes & moved):
            result.append(step)
        ended = {n for n in (*reads, *writes, *_results(step)) if last[n] == position}
        gone = sorted((n for n in ended - taken if _may_die(n, stay)), key=_natural)
        result.extend(FreeBuffer(n) for n in gone)
    return result


def peak_bytes(
    steps: Sequence[Step], buffers: Mapping[str, Buffer], donated: Iterable[str] = ()
) -> int:
    """Bytes that a program's own buffers, and the inputs that it may let go, take at once; open
    sizes count nothing."""
    sizes = {name: storage_bytes(each.layout) for name, each in buffers.items()}
    known = {name: size for name, size in sizes.items() if isinstance(size, int)}
    own = {name: known.get(name, 0) for name in donated}
    held = most = sum(own.values())
    for step in steps:
        if isinstance(step, Alloc | Extern):
            made = [step.buffer] if isinstance(step, Alloc) else _results(step)
            own.update((name, known.get(name, 0)) for name in made)
            held += sum(own[name] for name in made)
        elif isinstance(step, Reuse):
            own[step.buffer] = own.pop(step.old, 0)
        elif isinstance(step, FreeBuffer):
            held -= own.pop(step.buffer, 0)
        most = max(most, held)
    return most


def _may_die(name: str, stay: frozenset[str]) -> bool:
    return name not in stay and not name.startswith("const")


def _results(step: Compute) -> list[str]:
    if isinstance(step, Extern):
        return [r for r in step.results if r is not None]
    return []


def _replaceable(
    step: Compute, name: str, dying: set[str], buffers: Mapping[str, Buffer], owned: BufferOwnership
) -> str | None:
    """A buffer dying in this very loop whose memory `name` can take over element by element."""
    if not isinstance(step, RunLoop) or name in owned.kept:
        return None
    new = buffers[name].layout
    if step.loop.r and not _in_long_rows(step.loop, name, new):
        return None
    for old in sorted(dying, key=_natural):
        if old in owned.shared or (old in owned.given and old not in owned.donated):
            continue
        layout = buffers[old].layout
        if layout.device != new.device or layout.dtype.itemsize != new.dtype.itemsize:
            continue
        fits = same(storage_bytes(layout), storage_bytes(new))
        if fits and same_elements(step.loop, old, name):
            return old
    return None


def _in_long_rows(loop: Loop, new: str, layout: Layout) -> bool:
    """Whether a GPU's loop over rows stores `new` when it goes through a row for the last time, so
    that what was there is not read again. The rows must be long: of a short one several threads
    may hold the same element, of which one stores before another has read."""
    sizes = static_sizes(axis.size for axis in loop.r)
    if layout.device.type != "cuda" or sizes is None:
        return False
    if math.prod(sizes) < LONG_ROW or any(isinstance(i, Scan) for i in loop.body):
        return False
    if any(isinstance(i, Store) and i.mode != "set" for i in loop.body):
        return False
    turns: list[int] = []  # of how many reductions an instruction needs the results before it
    last = 0
    stored = -1
    for instr in loop.body:
        needed = [turns[arg] for arg in operands(instr)]
        turn = max(needed, default=0) + isinstance(instr, Reduce)
        turns.append(turn)
        if not isinstance(instr, Reduce):
            last = max(last, turn)
        if isinstance(instr, Store) and instr.buffer == new:
            stored = turn
    return stored == last


def _natural(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    digits = name[len(head) :]
    return head, int(digits) if digits else 0


@dataclass(slots=True)
class _ReusePlan:
    buffers: Mapping[str, Buffer]
    owned: BufferOwnership
    device: torch.device
    steps: list[Step]
    live: list[int] = field(default_factory=list)
    """Bytes held after each step."""

    free: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    """By size: where buffers of that size were freed, and which; the latest last."""

    plain: set[str] = field(default_factory=set)
    """Buffers whose tensor is no view: the only ones that may be returned."""


def reuse_buffers(context: PassContext, program: Program) -> tuple[Program, int]:
    """Let later buffers take over the memory of finished ones."""
    buffers = program.by_name
    allocated = (s.buffer for s in program.steps if isinstance(s, Alloc))
    planned = program.steps
    for device in dict.fromkeys(buffers[name].layout.device for name in allocated):
        planned = _share_on(device, planned, buffers, program.owned)
    return rescheduled(program, planned)


def _share_on(
    device: torch.device,
    steps: Sequence[Step],
    buffers: Mapping[str, Buffer],
    owned: BufferOwnership,
) -> tuple[Step, ...]:
    plan = _ReusePlan(buffers, owned, device, list(steps))
    plan.plain = {s.buffer for s in steps if isinstance(s, Alloc)}
    plan.live = _live_places(plan)
    peak = max(plan.live, default=0)
    dropped: set[int] = set()
    for position, step in enumerate(plan.steps):
        if isinstance(step, FreeBuffer):
            size = _size(plan, step.buffer)
            if size and _lends(plan, step.buffer):
                plan.free.setdefault(size, []).append((position, step.buffer))
        elif isinstance(step, Reuse):
            _inherit(plan, step)
        elif isinstance(step, Alloc):
            found = _dead(plan, step.buffer, position, peak)
            if found is not None:
                freed, old = found
                dropped.add(freed)
                taken = Reuse(step.buffer, old, dead=True)
                plan.steps[position] = taken
                _inherit(plan, taken)
    return tuple(s for k, s in enumerate(plan.steps) if k not in dropped)


def _size(plan: _ReusePlan, name: str) -> int:
    """Bytes of a buffer on the plan's device; 0 for any other, and for a size that is left open."""
    layout = plan.buffers[name].layout
    size = storage_bytes(layout)
    return size if layout.device == plan.device and isinstance(size, int) else 0


def _lends(plan: _ReusePlan, name: str) -> bool:
    owned = plan.owned
    return name not in owned.shared and (name not in owned.given or name in owned.donated)


def _live_places(plan: _ReusePlan) -> list[int]:
    held = sum(_size(plan, name) for name in plan.owned.donated)
    found = []
    for step in plan.steps:
        if isinstance(step, Alloc):
            held += _size(plan, step.buffer)
        elif isinstance(step, Extern):
            held += sum(_size(plan, name) for name in step.results if name is not None)
        elif isinstance(step, FreeBuffer) and (
            step.buffer not in plan.owned.given or _lends(plan, step.buffer)
        ):
            held -= _size(plan, step.buffer)
        found.append(held)
    return found


def _dead(plan: _ReusePlan, name: str, position: int, peak: int) -> tuple[int, str] | None:
    """Where and what to take over: the latest of the same size that may wait so long."""
    size = _size(plan, name)
    candidates = plan.free.get(size, [])
    for number in range(len(candidates) - 1, -1, -1):
        freed, old = candidates[number]
        if not _fits(plan, name, old):
            continue
        between = plan.live[freed:position]
        if between and max(between) + size > peak:
            return None  # those freed earlier would have to wait even longer
        for k in range(freed, position):
            plan.live[k] += size
        del candidates[number]
        return freed, old
    return None


def _fits(plan: _ReusePlan, name: str, old: str) -> bool:
    new, had = plan.buffers[name].layout, plan.buffers[old].layout
    if new.dtype.itemsize != had.dtype.itemsize:
        return False
    if _same(new, had):
        return name not in plan.owned.kept or old in plan.plain
    if plan.device.type != "cpu":
        return False
    return name not in plan.owned.kept and _size(plan, name) >= host_tuning().viewed_bytes


def _same(a: Layout, b: Layout) -> bool:
    return a.dtype == b.dtype and same_sizes((*a.shape, *a.stride), (*b.shape, *b.stride))


def _inherit(plan: _ReusePlan, step: Reuse) -> None:
    """A buffer that has its memory from another one is as plain as that was, in the same layout."""
    old, new = plan.buffers[step.old].layout, plan.buffers[step.buffer].layout
    plan.plain.discard(step.buffer)
    if step.old in plan.plain and _same(old, new):
        plan.plain.add(step.buffer)
