"""In-place updates of program inputs.

In: steps that compute, and which buffer is the new value of which input. Out: the buffers that take
their input's memory. Invariant: nothing reads the old value once the new one is written, but for a
loop that reads each element before it stores it; and no step behind can fail, so that an input is
never changed by a program that ends with an error. A copy of what is there anyway changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import Buffer, CheckIndex, Extern, Program, RunLoop
from flambeau_inductor.ir.steps import Compute, computing, touched

STEADFAST = frozenset(
    {
        "aten._to_copy.default",
        "aten.addmm.out",
        "aten.baddbmm.out",
        "aten.bmm.out",
        "aten.cat.out",
        "aten.mm.out",
    }
)
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
