"""How rows in turn are cut: programs that take a share of the rows, one block after the other, and
add up their columns in registers.

In: a loop with stores of mode `total`. Out: its `Tiling`. Invariant: a program holds whole rows, or
a part of their columns where nothing is reduced along them.
"""

from __future__ import annotations

import math

from flambeau_inductor.codegen.triton.dimensions import (
    Dimension,
    Tiling,
    next_power_of_two,
    static_size,
)
from flambeau_inductor.codegen.triton.rows import along_rows, element_bytes
from flambeau_inductor.ir.loops import IndexValue, Load, Loop, Reduce, Store
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.limits import ACROSS_COLUMNS

WALKED_SHORT, WALKED_BLOCK, WALKED_WARPS, WALKED_WIDE, WALKED_MOST = 256, 8192, 16, 512, 4
"""Of rows that a program takes in turn, adding up their columns in registers: short ones in blocks
of so many elements. A longer one is a block of its own, with a warp for so many elements, and no
more than so many: with eight warps a row, what computes much takes a quarter longer. Blocks of
several such rows get two layouts from Triton, and what is computed in one of them is computed again
in the other."""
WALKED_STAGES, WALKED_SHARED = 3, 110 << 10
"""How many of its blocks are on their way from memory at once, and the bytes of shared memory that
all but one of them may take: two such programs find room on an H200. Where a device has less, fewer
are on their way (`build`)."""
WALKED_HELD = 5.5
"""Registers for each element of a row, above which it has twice as many warps, and one more block
on its way: with four warps a thread has none left of its 255, and keeps some of them in memory.
Backward of 4096 columns, H200, us with four and with eight: layernorm+gelu, float32 (6) 581 and
411, bfloat16 (5) 534 and 708, for of eight there is one program on a multiprocessor;
dropout+layernorm, float32 (6) 730 and 719, bfloat16 (5.5) 761 and 771; rmsnorm+swiglu, float32 (4)
694 and 687."""
ACROSS_ROWS, ACROSS_WARPS = 4, 4
"""Rows at a time, and warps, of a program that has a part of their columns: with three such blocks
on their way, 392 us in either dtype for three passes over 512 MiB (H200); a row at a time of 4096
columns 403, two rows of 1024 395."""
WALKED_LONG = 4096
"""Up to so many elements a row has a warp for `WALKED_WIDE` of them, beyond that `WALKED_WARPS`."""


def walking(loop: Loop) -> Tiling:
    """Whole rows, a few at a time where they are short, one part after the other."""
    parts, rows = loop.x
    columns = next_power_of_two(math.prod(static_size(axis) for axis in loop.r))
    together, warps, most = 1, WALKED_WARPS, WALKED_STAGES
    _, widest = along_rows(loop)
    if columns > ACROSS_COLUMNS and not any(isinstance(i, Reduce) for i in loop.body):
        together, columns, warps = ACROSS_ROWS, ACROSS_COLUMNS, ACROSS_WARPS
    elif columns <= WALKED_SHORT:
        block = WALKED_BLOCK if widest <= 2 else WALKED_BLOCK // 2
        together = max(1, min(block // columns, next_power_of_two(static_size(rows))))
        warps = max(1, min(warps, together * columns * warps // block))
    elif columns <= WALKED_LONG:
        warps = min(WALKED_MOST, columns // WALKED_WIDE)
        if columns == WALKED_LONG and _held(loop) > WALKED_HELD:
            warps, most = 2 * warps, most + 1
    dimensions = (Dimension("x", (rows,), together), Dimension("r", loop.r, columns))
    at_once = together * columns * element_bytes(loop)
    stages = min(most, 1 + WALKED_SHARED // max(1, at_once))
    return Tiling(dimensions, warps, parts=parts, stages=stages)


def _held(loop: Loop) -> float:
    """Registers that a thread needs for each element of its part of a row: sums down the columns,
    what all rows share (half precision two to a register), and what waits for a reduction."""
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    held = 0.0
    level: list[int] = []
    element: list[bool] = []
    waiting: set[int] = set()
    for instr in loop.body:
        read = operands(instr)
        level.append(max((level[i] for i in read), default=0) + isinstance(instr, Reduce))
        indexed = isinstance(instr, Load | Store | IndexValue) and bool(instr.index.vars & along)
        element.append(not isinstance(instr, Reduce) and (indexed or any(element[i] for i in read)))
        if isinstance(instr, Load) and indexed and not instr.index.vars & rows:
            held += instr.dtype.itemsize / 4
        held += isinstance(instr, Store) and instr.mode == "total"
        if element[-1]:
            waiting |= {i for i in read if element[i] and level[i] < level[-1]}
    return held + len(waiting)
