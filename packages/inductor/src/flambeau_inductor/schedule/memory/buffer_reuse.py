"""Buffer reuse: dead memory for later buffers, planned once for all calls.

In: steps with their allocations and frees. Out: the same steps, in which some allocations take over
memory that a finished buffer left. Invariant: the most memory that is held at once is not raised:
memory waits for its next owner only where the plan stays below the peak it has anyway, device by
device.

Memory that goes back to the system between two uses is mapped anew, page by page; memory that
stays is still in cache. A GPU's allocator keeps what is freed, but asking it takes the processor
1.7 us where queueing a kernel takes 4: there a buffer takes over another one in its own layout,
which is a new name for the same tensor; a view of it would cost as much as the allocator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import same_sizes
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    BufferOwnership,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Reuse,
    Step,
)
from flambeau_inductor.ir.steps import rescheduled, storage_bytes

SMALL = 1 << 14
"""Bytes below which another layout is not worth a view of the old memory."""


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
    return name not in plan.owned.kept and _size(plan, name) >= SMALL


def _same(a: Layout, b: Layout) -> bool:
    return a.dtype == b.dtype and same_sizes((*a.shape, *a.stride), (*b.shape, *b.stride))


def _inherit(plan: _ReusePlan, step: Reuse) -> None:
    """A buffer that has its memory from another one is as plain as that was, in the same layout."""
    old, new = plan.buffers[step.old].layout, plan.buffers[step.buffer].layout
    plan.plain.discard(step.buffer)
    if step.old in plan.plain and _same(old, new):
        plan.plain.add(step.buffer)
