"""Deferred random draws, made by the loop that reads them.

In: a `Program`. Out: by the name of a loop, the `DeferredDraw` that it is the first to read.
Invariant: the generator draws in the program's order: between a draw and its loop nothing else may
draw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch

from flambeau_inductor._torch_compat import overload_of
from flambeau_inductor.indexing import same
from flambeau_inductor.ir.program import Extern, FreeBuffer, Program, Ref, Reuse, RunLoop, Step
from flambeau_inductor.ir.steps import Compute, made_by, touched
from flambeau_inductor.runtime.cpu.random import BERNOULLI


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
