"""Bounds checks of index tensors: inside of loops, or as kernels of their own.

In: a `CheckIndex` and where the index tensor's elements are; a program with C++ loops. Out: loops
with the check inside, or a loop that looks at all elements. Invariant: every element is checked
before memory is read or written through it. A CPU's loop that writes by its positions leaves out
the points with a bad one; the step that would have looked before comes after it, to name the
position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, Size, Var, as_expr, hint, plain, same
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import LoopBody, operands
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
from flambeau_inductor.ir.tensors import dot
from flambeau_inductor.schedule.fuse.loop_order import normalised


def check_loop(name: str, check: CheckIndex, layout: Layout, result: str) -> Loop:
    """`result` (0-d, bool) becomes whether every element addresses the dimension."""
    several = [(n, step) for n, step in zip(layout.shape, layout.stride, strict=True) if n != 1]
    axes = tuple(Axis(f"r{i}", size) for i, (size, _) in enumerate(several))
    at = dot([Var(axis.var) for axis in axes], [step for _, step in several], layout.offset)
    body: list[Instr] = [Load(check.ref.buffer, at, layout.dtype)]
    body += _looks(0, 1, check, layout.dtype)
    if axes:
        body.append(Reduce("all", 5, torch.bool))
    body.append(Store(result, as_expr(0), len(body) - 1))
    return normalised(Loop(name, (), axes, tuple(body)))


def check_inside(loop: Loop, check: CheckIndex, layout: Layout, message: str) -> Loop | None:
    """The loop with the check in it; None where it does not read every element in one place."""
    place = next((k for k, i in enumerate(loop.body) if _reads_all(i, check, layout, loop)), None)
    if place is None:
        return None
    made = LoopBody()
    for position, instr in enumerate(loop.body):
        made.copy(position, instr)
        if position == place:
            made.body += _looks(made.new[place], len(made.body), check, layout.dtype)
            made.append(Check(len(made.body) - 1, message))
    return replace(loop, body=tuple(made.body))


def _reads_all(instr: Instr, check: CheckIndex, layout: Layout, loop: Loop) -> bool:
    """Whether an instruction reads each element of the index tensor at some point of the loop."""
    if not isinstance(instr, Load) or instr.buffer != check.ref.buffer or instr.mask is not None:
        return False
    walked: list[tuple[Size, Size]] = []
    for axis in (*loop.x, *loop.r):
        step = instr.index.coefficient(axis.var)
        if step is None:
            return False
        walked += [] if same(step, 0) else [(step, axis.size)]
    start = instr.index.substitute({axis.var: as_expr(0) for axis in (*loop.x, *loop.r)})
    shape, stride, offset = layout.shape, layout.stride, layout.offset
    return start == as_expr(offset) and _runs(walked) == _runs(zip(stride, shape, strict=True))


def _runs(steps: Iterable[tuple[Size, Size]]) -> list[tuple[Size, Size]]:
    """Steps in memory with how often each is made, those that follow on one another joined."""
    found: list[tuple[Size, Size]] = []
    several = ((step, size) for step, size in steps if not same(size, 1))
    for step, size in sorted(several, key=lambda each: (hint(each[0]), hint(each[1]))):
        if found and same(found[-1][0] * found[-1][1], step):
            found[-1] = (found[-1][0], plain(found[-1][1] * size))
        else:
            found.append((step, size))
    return found


def _looks(value: ValueId, at: ValueId, check: CheckIndex, dtype: torch.dtype) -> Sequence[Instr]:
    """Whether a value addresses the dimension, by instructions from position `at` on."""
    low = -check.size if check.wrap else 0
    return [
        _whole(low, dtype),
        _whole(check.size, dtype),
        Point("ge", (value, at), torch.bool),
        Point("lt", (value, at + 1), torch.bool),
        Point("logical_and", (at + 2, at + 3), torch.bool),
    ]


def _whole(size: int | Expr, dtype: torch.dtype) -> Instr:
    return IndexValue(size, dtype) if isinstance(size, Expr) else Const(size, dtype)


def inline_bounds_checks(context: PassContext, program: Program) -> tuple[Program, int]:
    """Let loops that write element by element look at their positions."""
    layouts = {buffer.name: buffer.layout for buffer in program.buffers}
    loops: dict[int, Loop] = {}
    behind: dict[int, list[CheckIndex]] = {}
    steps: list[Step] = []
    for place, step in enumerate(program.steps):
        if isinstance(step, CheckIndex):
            at, before = next(
                (at, each)
                for at, each in enumerate((*program.steps[place:], None), place)
                if not isinstance(each, Alloc | Reuse | FreeBuffer | CheckIndex)
            )
            taken = (each.old for each in program.steps[:at] if isinstance(each, Reuse))
            if isinstance(before, RunLoop) and step.ref.buffer not in taken:
                # nothing is written over its positions, which a later check needs
                loop = _looking(loops.get(at, before.loop), step, layouts)
                if loop is not None:
                    loops[at] = loop
                    behind.setdefault(at, []).append(replace(step, after=True))
                    continue
        steps.append(RunLoop(loops[place]) if place in loops else step)
        steps.extend(behind.get(place, ()))
    return rescheduled(program, steps)


def _looking(loop: Loop, check: CheckIndex, layouts: Mapping[str, Layout]) -> Loop | None:
    """The loop with the check; None where it writes elsewhere than by these positions."""
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
