"""Copy coalescing: a copy of a buffer that is needed no longer becomes the buffer itself.

In: a program whose steps compute. Out: the same without such copies: one name for both. Invariant:
the memory is the program's own, the copy is of all of it, in one layout; whoever reads the old
value afterwards does so before the new one changes, or as `may_overwrite` says.

A tensor that is written part after part, and read in between, is copied before each write: that is
what makes it functional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import overload

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import same
from flambeau_inductor.ir.loops import Load, Store
from flambeau_inductor.ir.program import Buffer, BufferOwnership, Program, RunLoop
from flambeau_inductor.ir.steps import Compute, computing, made_by, rescheduled, touched
from flambeau_inductor.schedule.memory.planning import copies, may_overwrite


@dataclass(slots=True)
class _Uses:
    """Where a buffer is written, where it is read last, and whether loops alone touch it."""

    writes: list[int] = field(default_factory=list)
    read: int = -1
    loops: bool = True


def coalesce_copies(context: PassContext, program: Program) -> tuple[Program, int]:
    """Leave out the copies that can be. A loop that was unrolled may have hundreds: what each needs
    of all steps is kept by buffer, and steps are renamed at the end."""
    steps, left = computing(program), list[Compute]()
    state = _Coalescing(program.owned, program.by_name, steps, _uses(steps))
    for position, step in enumerate(steps):
        names = state.copy(position)
        if names is None:
            left.append(step)
        else:
            state.merge(*names)
    return rescheduled(program, [state.renamed(step) for step in left])


def _uses(steps: Sequence[Compute]) -> dict[str, _Uses]:
    found: dict[str, _Uses] = {}
    for position, step in enumerate(steps):
        reads, writes = touched(step)[0], made_by(step)
        for name in reads | writes:
            each = found.setdefault(name, _Uses())
            each.loops &= isinstance(step, RunLoop)
            each.read = position if name in reads else each.read
            each.writes += [position] if name in writes else []
    return found


@dataclass(slots=True)
class _Coalescing:
    """`uses` are of what buffers are called by now, `names` what they became."""

    owned: BufferOwnership
    buffers: Mapping[str, Buffer]
    steps: Sequence[Compute]
    uses: dict[str, _Uses]
    names: dict[str, str] = field(default_factory=dict)

    def copy(self, position: int) -> tuple[str, str] | None:
        """What the copy at `position` is of, and the copy; None where it has to be made."""
        step, owned = self.steps[position], self.owned
        if not isinstance(step, RunLoop) or len(step.loop.body) != 2:
            return None
        step = self.renamed(step)
        load, store = step.loop.body
        if not isinstance(load, Load) or not isinstance(store, Store):
            return None
        old, new = load.buffer, store.buffer
        if not copies(step, old, new) or {old, new} & (owned.given | owned.shared):
            return None
        layout, uses = self.buffers[new].layout, self.uses[old]
        whole = same(prod(axis.size for axis in step.loop.x), prod(layout.shape))
        if self.buffers[old].layout != layout or not whole or not uses.loops or old in owned.kept:
            return None
        first, *later = self.uses[new].writes[:2]
        if first != position or any(last > position for last in uses.writes[-1:]):
            return None
        changes = later[0] if later else len(self.steps)
        if uses.read < changes:
            return old, new
        if uses.read > changes or not may_overwrite(self.renamed(self.steps[changes]), old, new):
            return None
        return old, new

    def merge(self, old: str, new: str) -> None:
        """Leave out the first write of `new`, which is the copy."""
        before, after = self.uses.pop(old), self.uses[new]
        before.writes += after.writes[1:]
        self.uses[new] = _Uses(before.writes, max(before.read, after.read), after.loops)
        self.names[old] = new

    def name(self, name: str) -> str:
        """What a buffer is called by now."""
        last = name
        while last in self.names:
            last = self.names[last]
        while name != last:  # the next look-up is one step
            self.names[name], name = last, self.names[name]
        return last

    @overload
    def renamed(self, step: RunLoop) -> RunLoop: ...
    @overload
    def renamed(self, step: Compute) -> Compute: ...
    def renamed(self, step: Compute) -> Compute:
        """The step with buffers under their names of now; loops alone touch those with another."""
        if not isinstance(step, RunLoop) or self.names.keys().isdisjoint(
            frozenset.union(*touched(step))
        ):
            return step
        body = tuple(
            replace(i, buffer=self.name(i.buffer)) if isinstance(i, Load | Store) else i
            for i in step.loop.body
        )
        return RunLoop(replace(step.loop, body=body))
