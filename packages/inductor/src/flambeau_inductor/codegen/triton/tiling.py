"""Tiling of a loop into Triton programs.

In: a `Loop`. Out: a `Tiling`: the axes of each block dimension and the block sizes.
Invariant: every axis of the loop lies in exactly one dimension, and a block's element count stays
within what a program can hold in registers.

Dimensions: `x` alone for pointwise work in memory order; `y` and `x` where two buffers disagree
on the contiguous axis (transposes: both then get whole lines of memory); `x` and `r` for
reductions, persistent (`r` in one block) or looped.
"""

from __future__ import annotations

import math
from collections import Counter

from flambeau_inductor.codegen.triton.dimensions import (
    Dimension,
    Tiling,
    next_power_of_two,
    static_size,
)
from flambeau_inductor.codegen.triton.reduction_tiling import reduction
from flambeau_inductor.codegen.triton.row_facts import reduces_across
from flambeau_inductor.codegen.triton.row_pipeline import pipelined_row_tiling
from flambeau_inductor.ir.loops import IndexValue, Load, Loop, Store
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.tuning import MEASURED, Tuning

__all__ = ["Dimension", "Tiling", "choose", "reduces_across", "static_size"]

GATHER_BLOCK = 2048
LEAST_ROW = 32
"""From so many elements behind a position that is looked up, rows have their own dimension."""
POINTWISE_BLOCK = 1024


def choose(loop: Loop, tuning: Tuning = MEASURED) -> Tiling:
    """Tiling of `loop` from its sizes and strides, and what it runs on, alone."""
    if any(isinstance(instr, Store) and instr.mode == "total" for instr in loop.body):
        return pipelined_row_tiling(loop, tuning)
    if loop.r:
        return reduction(loop, tuning)
    conflict = _conflicting_axis(loop)
    if conflict is not None:
        return _transposing(loop, conflict)
    looked_up = _looked_up_by(loop)
    return _gathering(loop, looked_up, tuning) if looked_up else _pointwise(loop, tuning)


def _pointwise(loop: Loop, tuning: Tuning) -> Tiling:
    size = math.prod(static_size(axis) for axis in loop.x)
    block = min(POINTWISE_BLOCK, next_power_of_two(size))
    while block > 128 and size // block < tuning.machine.multiprocessors:
        block //= 2
    warps = max(1, min(4, block // 256))
    return Tiling((Dimension("x", loop.x, block),), warps)


def _looked_up_by(loop: Loop) -> int:
    """How many outer axes the positions that are looked up vary along, where what is read or
    written there goes on in order along the others; 0 where there is nothing of the kind."""
    along: list[frozenset[str]] = []
    wanted: set[str] = set()
    for instr in loop.body:
        axes = frozenset[str]().union(*(along[i] for i in operands(instr)))
        if isinstance(instr, Load | Store | IndexValue):
            axes |= {name for name in instr.index.vars if not name.startswith("%")}
        if isinstance(instr, Load | Store):
            looked = [int(name[1:]) for name in instr.index.vars if name.startswith("%")]
            wanted |= frozenset[str]().union(*(along[i] for i in looked))
        along.append(axes)
    outer = max((k + 1 for k, axis in enumerate(loop.x) if axis.var in wanted), default=0)
    inner = math.prod(static_size(axis) for axis in loop.x[outer:])
    return outer if outer < len(loop.x) and inner >= LEAST_ROW else 0


def _gathering(loop: Loop, outer: int, tuning: Tuning) -> Tiling:
    """Positions are read once a row, and rows as whole lines of memory."""
    y, x = (math.prod(map(static_size, axes)) for axes in (loop.x[:outer], loop.x[outer:]))
    columns = min(GATHER_BLOCK // 2, next_power_of_two(x))
    rows = max(1, min(GATHER_BLOCK // columns, next_power_of_two(y)))
    while rows > 1 and y // rows * -(-x // columns) < 2 * tuning.machine.multiprocessors:
        rows //= 2
    dimensions = (Dimension("y", loop.x[:outer], rows), Dimension("x", loop.x[outer:], columns))
    return Tiling(dimensions, max(1, min(4, rows * columns // 256)))


def _transposing(loop: Loop, conflict: int) -> Tiling:
    *outer, last = loop.x
    other = outer.pop(conflict)
    columns = min(64, next_power_of_two(static_size(last)))
    rows = min(64, next_power_of_two(static_size(other)))
    y = Dimension("y", (*outer, other), rows)
    return Tiling((y, Dimension("x", (last,), columns)), 4 if rows * columns <= 2048 else 8)


def _accesses(loop: Loop) -> list[Load | Store]:
    return [instr for instr in loop.body if isinstance(instr, Load | Store)]


def _conflicting_axis(loop: Loop) -> int | None:
    """Position of the outer axis that some buffer is contiguous along, if it is worth a tile."""
    if len(loop.x) < 2 or static_size(loop.x[-1]) < 8:
        return None
    last = loop.x[-1].var
    votes: Counter[int] = Counter()
    for access in _accesses(loop):
        stride = access.index.coefficient(last)
        if stride is None or abs(stride) <= 1:
            continue
        for position, axis in enumerate(loop.x[:-1]):
            if access.index.coefficient(axis.var) == 1 and static_size(axis) >= 8:
                votes[position] += 1
    return votes.most_common(1)[0][0] if votes else None
