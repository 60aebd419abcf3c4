"""Bounds checks of index tensors on GPUs: inline, or as kernels of their own.

In: a `CheckIndex` and where the index tensor's elements are. Out: a loop with the check inside it,
or a loop that looks at all elements. Invariant: every element is checked, whether or not a loop
needs it, and by whoever reads memory through it before it does so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from flambeau_inductor.indexing import Expr, Var, as_expr
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
from flambeau_inductor.ir.operands import renumbered
from flambeau_inductor.ir.program import CheckIndex, Layout
from flambeau_inductor.ir.tensors import dot
from flambeau_inductor.schedule.fuse.loop_order import normalised


def check_loop(name: str, check: CheckIndex, layout: Layout, result: str) -> Loop:
    """`result` (0-d, bool) becomes whether every element addresses the dimension."""
    shape, stride, offset = layout.static()
    axes = tuple(Axis(f"r{i}", size) for i, size in enumerate(shape))
    at = dot([Var(axis.var) for axis in axes], stride, offset)
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
    body: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    for position, instr in enumerate(loop.body):
        new[position] = len(body)
        body.append(renumbered(instr, new))
        if position == place:
            body += _looks(new[place], len(body), check, layout.dtype)
            body.append(Check(len(body) - 1, message))
    return replace(loop, body=tuple(body))


def _reads_all(instr: Instr, check: CheckIndex, layout: Layout, loop: Loop) -> bool:
    """Whether an instruction reads each element of the index tensor at some point of the loop."""
    if not isinstance(instr, Load) or instr.buffer != check.ref.buffer or instr.mask is not None:
        return False
    walked: list[tuple[int, int]] = []
    for axis in (*loop.x, *loop.r):
        step = instr.index.coefficient(axis.var)
        if not isinstance(step, int) or not isinstance(axis.size, int):
            return False
        walked += [(step, axis.size)] if step else []
    start = instr.index.substitute({axis.var: as_expr(0) for axis in (*loop.x, *loop.r)})
    shape, stride, offset = layout.static()
    return start == as_expr(offset) and _runs(walked) == _runs(zip(stride, shape, strict=True))


def _runs(steps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Steps in memory with how often each is made, those that follow on one another joined."""
    found: list[tuple[int, int]] = []
    for step, size in sorted((step, size) for step, size in steps if size != 1):
        if found and found[-1][0] * found[-1][1] == step:
            found[-1] = (found[-1][0], found[-1][1] * size)
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
