"""Inlining of per-row scalars into the row kernels that read them.

In: the steps of a program, its loops joined. Out: the same, where a loop that computes a few
numbers a row, and nothing else, is gone if the loops that read them all take rows in turn: those
compute them too. Invariant: what a loop computes is what it would have read; a value that is
returned, or that a step besides loops reads, is stored as before.

A norm's backward needs the scale of each row, from the variance that its forward kept: one square
root a row, for which a launch of its own, and the gap behind it, are two of a hundred microseconds.
A program of one row has no registers to spare for that: with the logarithm of a cross-entropy's sum
its backward took 107 of them, not 96, a tenth of the programs off a multiprocessor, and 306 us, not
285.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, Ranges, Var, simplify
from flambeau_inductor.ir.loops import Const, IndexValue, Instr, Load, Loop, Point, Store, ValueId
from flambeau_inductor.ir.operands import pruned, renumbered
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import Compute, computing, rescheduled, touched
from flambeau_inductor.schedule.fuse.loop_order import ranges_of

MOST_READERS = 3
"""Loops that may compute the numbers again."""
MOST_OPS = 16
"""Operations that a number takes."""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A loop of one axis, and which of its values it stores at that axis' own position."""

    loop: Loop
    stored: Mapping[str, ValueId]


def inline_row_scalars(context: PassContext, program: Program) -> tuple[Program, int]:
    """Leave out such loops on a GPU."""
    found, position = computing(program), 0
    devices = {buffer.name: buffer.layout.device.type for buffer in program.buffers}
    while position < len(found):
        _, written = touched(found[position])
        there = all(devices[name] in context.limits.split_on for name in written)
        made = _taken_in(found, position, program.owned.outlive) if there else None
        if made is None:
            position += 1
        else:
            found = made
    return rescheduled(program, found)


def _taken_in(steps: list[Compute], at: int, kept: Container[str]) -> list[Compute] | None:
    """The steps with the loop at `at` computed by its readers; None where it has to stay."""
    step = steps[at]
    numbers = _numbers(step.loop) if isinstance(step, RunLoop) else None
    if numbers is None or any(name in kept for name in numbers.stored):
        return None
    reads, _ = touched(step)
    readers: list[int] = []
    for position, other in enumerate(steps):
        if position == at:
            continue
        read, written = touched(other)
        written = written | {r for r in getattr(other, "results", ()) if r is not None}
        if written & (reads | numbers.stored.keys()):
            return None
        if read & numbers.stored.keys():
            readers.append(position)
    if not 0 < len(readers) <= MOST_READERS:
        return None
    made = list(steps)
    for position in readers:
        other = steps[position]
        loop = _reading(other.loop, numbers) if isinstance(other, RunLoop) else None
        if loop is None:
            return None
        made[position] = RunLoop(loop)
    del made[at]
    return made


def _numbers(loop: Loop) -> _Numbers | None:
    """What a loop computes for each row; None where it does anything else."""
    if len(loop.x) != 1 or loop.r or sum(isinstance(i, Point) for i in loop.body) > MOST_OPS:
        return None
    own = Var(loop.x[0].var)
    stored: dict[str, ValueId] = {}
    for instr in loop.body:
        if isinstance(instr, Store):
            if instr.mode != "set" or instr.index != own or instr.buffer in stored:
                return None
            stored[instr.buffer] = instr.value
        elif isinstance(instr, Load):
            if instr.mask is not None or any(name.startswith("%") for name in instr.index.vars):
                return None
        elif not isinstance(instr, Const | Point | IndexValue):
            return None
    return _Numbers(loop, stored)


def _reading(loop: Loop, numbers: _Numbers) -> Loop | None:
    """A loop with the numbers computed where it read them; None where it does not take rows in
    turn."""
    if not any(isinstance(i, Store) and i.mode == "total" for i in loop.body):
        return None
    along = {axis.var for axis in loop.r}
    ranges = ranges_of(loop)
    body: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    made: dict[str, dict[str, ValueId]] = {}
    for position, instr in enumerate(loop.body):
        if isinstance(instr, Load) and instr.buffer in numbers.stored:
            looked_up = any(name.startswith("%") for name in instr.index.vars)
            if not along or looked_up or instr.index.vars & along or instr.mask is not None:
                return None
            key = instr.index.key
            if key not in made:
                made[key] = _computed(numbers, instr.index, ranges, body)
            new[position] = made[key][instr.buffer]
            continue
        new[position] = len(body)
        body.append(renumbered(instr, new))
    origins = tuple(dict.fromkeys((*numbers.loop.origins, *loop.origins)))
    return replace(loop, body=pruned(body), origins=origins)


def _computed(
    numbers: _Numbers, row: Expr, ranges: Ranges, body: list[Instr]
) -> dict[str, ValueId]:
    """Append what computes the numbers of a row; where they are, by the buffer they were in."""
    own = numbers.loop.x[0].var
    new: dict[ValueId, ValueId] = {}
    for position, instr in enumerate(numbers.loop.body):
        if isinstance(instr, Store):
            continue
        instr = renumbered(instr, new)
        if isinstance(instr, Load | IndexValue):
            instr = replace(instr, index=simplify(instr.index.substitute({own: row}), ranges))
        new[position] = len(body)
        body.append(instr)
    return {buffer: new[value] for buffer, value in numbers.stored.items()}
