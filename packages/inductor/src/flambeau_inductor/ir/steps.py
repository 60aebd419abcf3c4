"""Steps' reads and writes, and the memory of a layout.

In: steps and layouts. Out: names of buffers, bytes. Invariant: a step touches nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from flambeau_inductor.indexing import Size, decide_equal, plain, static_sizes
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import (
    Buffer,
    CheckIndex,
    Extern,
    Layout,
    Program,
    RunLoop,
    Step,
    Touched,
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


def touched(step: Compute) -> Touched:
    """Buffers that a step reads, and those it writes into (which must exist before)."""
    return step.touched


def made_by(step: Compute) -> frozenset[str]:
    """Buffers that a step writes into, and those that its results become."""
    written = touched(step)[1]
    return written.union(results_of(step)) if isinstance(step, Extern) else written


def results_of(step: Compute) -> list[str]:
    """Buffers that a library call's results become."""
    results = step.results if isinstance(step, Extern) else ()
    return [name for name in results if name is not None]


def sizes_known(steps: Sequence[Step], names: Collection[str]) -> int:
    """How many steps it takes until each of these sizes that a step counts is known."""
    counts = (
        place
        for place, step in enumerate(steps, 1)
        if isinstance(step, Extern) and any(size.name in names for size in step.sizes)
    )
    return max(counts, default=0)


def bytes_touched(step: Compute, sizes: Mapping[str, int], items: Mapping[str, int]) -> int:
    """Bytes of the buffers that a step touches, each once, and of one that a loop looks rows up in
    no more than it can look at. In: bytes of every buffer, and of an element of each."""
    reads, writes = touched(step)
    seen = looked_at(step.loop, items) if isinstance(step, RunLoop) else {}
    return sum(min(sizes[name], seen.get(name, sizes[name])) for name in reads | writes)


def looked_at(loop: Loop, items: Mapping[str, int]) -> dict[str, int]:
    """The most bytes of each buffer that a loop can read or write; nothing for open sizes."""
    sizes = static_sizes(axis.size for axis in (*loop.x, *loop.r))
    often = Counter(i.buffer for i in loop.body if isinstance(i, Load | Store))
    return {} if sizes is None else {at: n * prod(sizes) * items[at] for at, n in often.items()}


def known_bytes(buffers: Iterable[Buffer]) -> dict[str, int]:
    """Bytes of each of the buffers that have constant sizes."""
    sizes = ((each.name, storage_bytes(each.layout)) for each in buffers)
    return {name: size for name, size in sizes if isinstance(size, int)}


def storage_bytes(layout: Layout) -> Size:
    """Bytes from the first element to the end of the last one."""
    if decide_equal(prod(layout.shape), 0):
        return 0
    reach = sum((n - 1) * s for n, s in zip(layout.shape, layout.stride, strict=True))
    return plain((1 + reach) * layout.dtype.itemsize)
