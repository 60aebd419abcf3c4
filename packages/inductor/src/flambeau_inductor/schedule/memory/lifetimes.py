"""Lifetimes of buffers, and which may share memory.

In: steps that compute, the buffers, what the caller owns or keeps. Out: the same steps with
`Alloc`, `Reuse` and `FreeBuffer` around them. Invariant: memory is never given away while a later
step, an output, or a tensor that may share it still needs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import same, static_sizes
from flambeau_inductor.ir.loops import Loop, Reduce, Scan, Store
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.ir.program import (
    Alloc,
    Buffer,
    BufferOwnership,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Reuse,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.steps import Compute, computing, rescheduled, storage_bytes, touched
from flambeau_inductor.schedule.memory.inplace_updates import copies, same_elements

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
