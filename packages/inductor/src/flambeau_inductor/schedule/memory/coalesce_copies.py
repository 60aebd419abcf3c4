"""Copy coalescing: a copy of a buffer that is needed no longer becomes the buffer itself.

In: a program whose steps compute. Out: the same without such copies: one name for both. Invariant:
the memory is the program's own, the copy is of all of it, in one layout; whoever reads the old
value afterwards does so before the new one changes, or as `may_overwrite` says.

A tensor that is written part after part, and read in between, is copied before each write: that is
what makes it functional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import same
from flambeau_inductor.ir.loops import Load, Store
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import Compute, computing, made_by, rescheduled, touched
from flambeau_inductor.schedule.memory.planning import copies, may_overwrite


def coalesce_copies(context: PassContext, program: Program) -> tuple[Program, int]:
    """Leave out the copies that can be."""
    steps = computing(program)
    position = 0
    while position < len(steps):
        names = _coalesced(program, steps, position)
        if names is None:
            position += 1
        else:
            old, new = names
            del steps[position]
            steps = [_renamed(step, old, new) for step in steps]
    return rescheduled(program, steps)


def _coalesced(program: Program, steps: Sequence[Compute], position: int) -> tuple[str, str] | None:
    """The buffer that the copy at `position` is of, and the copy; None where it has to be made."""
    step, owned, buffers = steps[position], program.owned, program.by_name
    if not isinstance(step, RunLoop) or len(step.loop.body) != 2:
        return None
    load, store = step.loop.body
    if not isinstance(load, Load) or not isinstance(store, Store):
        return None
    old, new = load.buffer, store.buffer
    if not copies(step, old, new) or {old, new} & (owned.given | owned.shared) or old in owned.kept:
        return None
    layout = buffers[new].layout
    whole = same(prod(axis.size for axis in step.loop.x), prod(layout.shape))
    if buffers[old].layout != layout or not whole or not _all_loops(steps, old):
        return None
    writes = [k for k, each in enumerate(steps) if new in made_by(each)]
    if writes[0] != position or any(old in made_by(each) for each in steps[position + 1 :]):
        return None
    changes = writes[1] if len(writes) > 1 else len(steps)
    for place, each in enumerate(steps[position + 1 :], position + 1):
        if old in touched(each)[0] and place >= changes:
            if place > changes or not may_overwrite(each, old, new):
                return None
    return old, new


def _all_loops(steps: Sequence[Compute], name: str) -> bool:
    """Whether only loops touch a buffer."""
    return all(
        isinstance(step, RunLoop) or name not in touched(step)[0] | made_by(step) for step in steps
    )


def _renamed(step: Compute, old: str, new: str) -> Compute:
    """The step with a buffer under another name."""
    if not isinstance(step, RunLoop) or old not in touched(step)[0] | touched(step)[1]:
        return step
    body = tuple(
        replace(i, buffer=new) if isinstance(i, Load | Store) and i.buffer == old else i
        for i in step.loop.body
    )
    return RunLoop(replace(step.loop, body=body))
