"""Steps' reads and writes, and the memory of a layout.

In: steps and layouts. Out: names of buffers, bytes. Invariant: a step touches nothing else.

Deferred random draws, made by the loop that reads them. In: a `Program`. Out: by the name of a
loop, the `DeferredDraw` that it is the first to read. Invariant: the generator draws in the
program's order: between a draw and its loop nothing else may draw.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch

from flambeau_inductor._torch_compat import overload_of
from flambeau_inductor.indexing import Size, decide_equal, plain, same, static_sizes
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.program import (
    Buffer,
    CheckIndex,
    Extern,
    FreeBuffer,
    Layout,
    Program,
    Ref,
    Reuse,
    RunLoop,
    Step,
    Touched,
)
from flambeau_inductor.runtime.cpu.random import BERNOULLI

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


@dataclass(frozen=True, slots=True)
class DeferredDraw:
    """`mask`: the buffer that `draw` makes; `kept`: somebody reads it after the loop."""

    mask: str
    draw: Extern
    kept: bool


def draws_fused_with_loops(program: Program) -> Mapping[str, DeferredDraw]:
    """The draws whose first reader is a loop over as many points, which reads them and no more."""
    sizes = {b.name: b.layout.shape for b in program.buffers}
    given = {o.buffer for o in program.outputs if isinstance(o, Ref)}
    found: dict[str, DeferredDraw] = {}
    for position, step in enumerate(program.steps):
        if not isinstance(step, Extern) or step.target != BERNOULLI:
            continue
        (mask,) = step.results
        later = enumerate(program.steps[position + 1 :], position + 1)
        place = next((at for at, step in later if mask in mentioned(step)), None)
        if mask is None or place is None:
            continue
        user = program.steps[place]
        if not isinstance(user, RunLoop) or any(
            map(_may_draw, program.steps[position + 1 : place])
        ):
            continue
        points = [a.size for a in (*user.loop.x, *user.loop.r)]
        if not same(prod(points), prod(sizes[mask])) or mask in touched(user)[1]:
            continue
        others = (s for s in program.steps[place + 1 :] if not isinstance(s, FreeBuffer))
        kept = mask in given or any(mask in mentioned(s) for s in others)
        found[user.loop.name] = DeferredDraw(mask, step, kept)
    return found


def mentioned(step: Step) -> frozenset[str]:
    """Buffers that a step names."""
    if isinstance(step, Compute):
        return touched(step)[0] | made_by(step)
    return frozenset((step.buffer, step.old) if isinstance(step, Reuse) else (step.buffer,))


def _may_draw(step: Step) -> bool:
    """Whether a step may ask a generator, for all that is known of it."""
    if not isinstance(step, Extern) or not step.target.startswith("aten."):
        return isinstance(step, Extern)
    return torch.Tag.nondeterministic_seeded in overload_of(step.target).tags
