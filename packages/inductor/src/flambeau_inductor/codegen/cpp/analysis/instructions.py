"""Instruction facts of a loop: dependences, results, costs.

In: a `Loop`, or one instruction. Out: its axes and its level, its dtype, its cost. Invariant: the
result of a reduction is known in the pass after that of its argument, and depends on no axis of it.
"""

from __future__ import annotations

import torch

from flambeau_inductor.codegen.cpp.emit.pointwise import cost_of
from flambeau_inductor.codegen.cpp.errors import CppUnsupported
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Reduce, Scan, Store, axes_of
from flambeau_inductor.ir.operands import operands

Axes = frozenset[str]


def result_dtype(instr: Instr) -> torch.dtype:
    """The dtype of an instruction's value."""
    if isinstance(instr, Store):
        raise CppUnsupported("a store has no value")
    return instr.dtype


def cost(instr: Instr) -> int:
    """Relative cost of one element."""
    if isinstance(instr, Point):
        return cost_of(instr.op)
    return 1 if isinstance(instr, Load | Store | Reduce | Scan) else 0


def dependences(loop: Loop) -> tuple[tuple[Axes, ...], tuple[int, ...]]:
    axes = frozenset(a.var for a in (*loop.x, *loop.r))
    outer = frozenset(a.var for a in loop.x)
    deps: list[Axes] = []
    level: list[int] = []
    for instr in loop.body:
        own = axes_of(loop, instr)
        height = 0
        for value in operands(instr):
            own |= deps[value]
            height = max(height, level[value])
        if isinstance(instr, Reduce):
            # done in the pass of its argument, known to the next
            own, height = outer, height + 1
        elif isinstance(instr, Scan):
            own |= axes - outer
        deps.append(own)
        level.append(height)
    return tuple(deps), tuple(level)
