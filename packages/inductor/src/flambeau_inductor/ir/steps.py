"""Steps' reads and writes, and the memory of a layout.

In: steps and layouts. Out: names of buffers, bytes. Invariant: a step touches nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from flambeau_inductor.indexing import Size, decide_equal, plain
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import (
    Argument,
    Buffer,
    CheckIndex,
    Extern,
    Layout,
    Program,
    Ref,
    RunLoop,
    Step,
)

Compute = RunLoop | Extern | CheckIndex
"""Steps that do something, as against those that give and take memory."""


def computing(program: Program) -> list[Compute]:
    """The steps that do something."""
    return [step for step in program.steps if isinstance(step, Compute)]


def rescheduled(
    program: Program, steps: Sequence[Step], buffers: Iterable[Buffer] | None = None
) -> tuple[Program, int]:
    """The program with other steps, and how many of them are new; 1 where only the order is."""
    before, now = [*map(id, program.steps)], [*map(id, steps)]
    changed = len(set(now) - set(before)) or int(now != before)
    if not changed:
        return program, 0
    known = program.buffers if buffers is None else tuple(buffers)
    return replace(program, steps=tuple(steps), buffers=known), changed


def loops_of(program: Program) -> list[Loop]:
    """The loops of a program, in order."""
    return [step.loop for step in program.steps if isinstance(step, RunLoop)]


def on_a_gpu(program: Program) -> bool:
    """Whether a buffer of a program is on a GPU."""
    return any(buffer.layout.device.type == "cuda" for buffer in program.buffers)


def touched(step: Compute) -> tuple[set[str], set[str]]:
    """Buffers that a step reads, and those it writes into (which must exist before)."""
    if isinstance(step, RunLoop):
        reads = {i.buffer for i in step.loop.body if isinstance(i, Load)}
        writes = {i.buffer for i in step.loop.body if isinstance(i, Store)}
        return reads, writes
    if isinstance(step, CheckIndex):
        return {step.ref.buffer}, set()
    reads = set()
    for argument in (*step.args, *(v for _, v in step.kwargs)):
        _references(argument, reads)
    return reads, {ref.buffer for ref in step.into}


def bytes_touched(step: Compute, sizes: Mapping[str, int], items: Mapping[str, int]) -> int:
    """Bytes of the buffers that a step touches, each once, and of one that a loop looks rows up in
    no more than it can look at. In: bytes of every buffer, and of an element of each."""
    reads, writes = touched(step)
    seen = looked_at(step.loop, items) if isinstance(step, RunLoop) else {}
    return sum(min(sizes[name], seen.get(name, sizes[name])) for name in reads | writes)


def looked_at(loop: Loop, items: Mapping[str, int]) -> dict[str, int]:
    """The most bytes of each buffer that a loop can read or write; nothing for open sizes."""
    points = 1
    for axis in (*loop.x, *loop.r):
        if not isinstance(axis.size, int):
            return {}
        points *= axis.size
    found: dict[str, int] = {}
    for instruction in loop.body:
        if isinstance(instruction, Load | Store):
            at = instruction.buffer
            found[at] = found.get(at, 0) + points * items[at]
    return found


def _references(argument: Argument, found: set[str]) -> None:
    if isinstance(argument, Ref):
        found.add(argument.buffer)
    elif isinstance(argument, tuple):
        for item in argument:
            _references(item, found)


def storage_bytes(layout: Layout) -> Size:
    """Bytes from the first element to the end of the last one."""
    if decide_equal(prod(layout.shape), 0):
        return 0
    reach = sum((n - 1) * s for n, s in zip(layout.shape, layout.stride, strict=True))
    return plain((1 + reach) * layout.dtype.itemsize)
