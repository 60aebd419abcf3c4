"""Bounds checks that C++ kernels make inline.

In: a scheduled program whose loops on a CPU become C++. Out: the same program, in which some loops
look at the positions that they write through, and the step that would have looked before them
comes after them, if a loop met a bad one, to say which. Invariant: a loop leaves out the
points with a bad position, so that no memory outside of a buffer is read or written, and the
program raises before anything else runs.

A check of its own goes through all positions once more. That is as much memory as the loop itself
has to read, where each element has a position of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.loops import Load, Loop, Store, ValueId
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.ir.program import (
    Alloc,
    CheckIndex,
    FreeBuffer,
    Layout,
    Program,
    Reuse,
    RunLoop,
    Step,
)
from flambeau_inductor.ir.steps import rescheduled
from flambeau_inductor.schedule.bounds_checks import check_inside


def inline_bounds_checks(context: PassContext, program: Program) -> tuple[Program, int]:
    """Let loops that write element by element look at their positions."""
    layouts = {buffer.name: buffer.layout for buffer in program.buffers}
    loops: dict[int, Loop] = {}
    behind: dict[int, list[CheckIndex]] = {}
    steps: list[Step] = []
    for place, step in enumerate(program.steps):
        if isinstance(step, CheckIndex):
            at = _next_loop(program.steps, place)
            if at is not None and not _taken_over(program.steps[:at], step.ref.buffer):
                before = program.steps[at]
                assert isinstance(before, RunLoop)
                loop = _looking(loops.get(at, before.loop), step, layouts)
                if loop is not None:
                    loops[at] = loop
                    behind.setdefault(at, []).append(replace(step, after=True))
                    continue
        steps.append(
            replace(step, loop=loops[place])
            if isinstance(step, RunLoop) and place in loops
            else step
        )
        steps.extend(behind.get(place, ()))
    return rescheduled(program, steps)


def _next_loop(steps: Sequence[Step], place: int) -> int | None:
    """The loop that comes next, if nothing else is computed before it."""
    for at in range(place + 1, len(steps)):
        step = steps[at]
        if isinstance(step, RunLoop):
            return at
        if not isinstance(step, Alloc | Reuse | FreeBuffer | CheckIndex):
            return None
    return None


def _taken_over(steps: Sequence[Step], buffer: str) -> bool:
    """Whether something is written over a buffer: its positions are gone then when it is looked at
    behind the loop."""
    return any(isinstance(step, Reuse) and step.old == buffer for step in steps)


def _looking(loop: Loop, check: CheckIndex, layouts: Mapping[str, Layout]) -> Loop | None:
    """The loop that looks itself; None where it does not write to a place of its own for each
    position, or where not all is known."""
    layout = check.ref.layout or layouts[check.ref.buffer]
    numbers = (check.size, *layout.shape, *layout.stride, layout.offset)
    known = all(isinstance(number, int) for number in numbers)
    if not known or not check.size or loop.r or not loop.x:
        return None
    if layouts[check.ref.buffer].device.type != "cpu":
        return None
    reads = [
        k for k, i in enumerate(loop.body) if isinstance(i, Load) and i.buffer == check.ref.buffer
    ]
    if len(reads) != 1 or not _writes_by(loop, reads[0]):
        return None
    return check_inside(loop, check, layout, f"a position outside of {check.size}")


def _writes_by(loop: Loop, read: ValueId) -> bool:
    """Whether each point of the innermost axis reads a position of its own and writes there."""
    instr = loop.body[read]
    if not isinstance(instr, Load) or loop.x[-1].var not in instr.index.vars:
        return False
    reached = {read}
    for place, each in enumerate(loop.body):
        if isinstance(each, Store) and each.scattered:
            if any(v.startswith("%") and int(v[1:]) in reached for v in each.index.vars):
                return True
        elif any(value in reached for value in operands(each)):
            reached.add(place)
    return False
