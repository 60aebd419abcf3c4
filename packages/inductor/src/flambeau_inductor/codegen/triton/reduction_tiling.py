"""Tiling of row reductions: whole rows, or blocks in a loop.

In: a loop with reduction axes. Out: its `Tiling`. Invariant: a block's elements find room in a
program's registers.
"""

from __future__ import annotations

import math

from flambeau_inductor.codegen.triton.dimensions import (
    Dimension,
    Tiling,
    next_power_of_two,
    static_size,
)
from flambeau_inductor.codegen.triton.online_softmax import online_sums
from flambeau_inductor.codegen.triton.row_facts import (
    along_rows,
    computed_again,
    depth,
    element_loads,
    read_once,
    reads_halves,
    reduces_across,
    stores_elements,
    widest,
)
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.tuning import Tuning

MAX_PERSISTENT = 32768
REDUCTION_BLOCK = 4096
OUTER_BLOCK = 8192
OUTER_COLUMNS = 64
"""Columns of a program that sums down them: neighbours in memory, which are read together."""
OUTER_WARPS = 8
"""Warps of such a program; twice as many where elements of 16 bits are stored besides. Backward of
gelu with the gradient of a bias, 512 MiB an operand in bfloat16, H200: 480 us with 8, 443 with 16;
of relu 412 and 403; in float32 766 and 791."""
THREAD_ELEMENTS = 64
"""Elements of a row that a thread holds at most: many loads in flight, and registers for them."""
LOOPED_BLOCK = 16384
LOOPED_WARPS = 32
"""Rows too long for registers are read again after each reduction: few programs at a time, so that
the rows being worked on stay in the level 2 cache."""

LONG_SEVERAL = 16384
LOOPED_HALVES, LOOPED_WORDS = (8192, 16), (4096, 32)
"""Rows of so many elements, with several operands and values that all rows share, find no room in
registers: elements and warps of a block, for elements of 16 bits and for wider ones."""

ONLINE_BLOCK = 4096
"""Of a row whose maximum and sum of exponentials come from one pass: a vector of loads a thread,
and two programs on a multiprocessor. Rows longer than `LONG_ONLINE` take larger blocks."""
LONG_ONLINE = 65536
HELD_WARPS, HELD_REGISTERS = 16, 64
"""Of a row of 64 KiB that stays in registers: two programs on a multiprocessor, so that one reads
while the other computes."""
DEEP = 3
"""Reductions that wait for each other, from which on a thread holds half as many elements."""
SUMS_BLOCK, SUMS_WARPS = 4096, 4
"""Of rows that are read once, several operands of each element: elements and warps of a block. Two
operands of 512 MiB in 252, 252, 248 and 277 us (32768 and 131072 bf16, the same fp32; H200); blocks
of 8192 in 16 warps 317 and 304 (bf16), of 4096 in 32 warps 261 and 789 (fp32)."""
HELD_ROW = 4096
"""Elements of a row of 16 bits each with such reductions that stays in registers as it was read."""
HELD_AGAIN = 16
"""Instructions an element that may be computed again for that: a softmax of a layernorm of gelu,
whose gelu was computed four times, took 1297 us, and 393 with it kept (512 MiB, H200)."""


def reduction(loop: Loop, tuning: Tuning) -> Tiling:
    """Rows in registers where they find room there, else in steps; columns a few at a time."""
    rows = math.prod(static_size(axis) for axis in loop.x)
    length = math.prod(static_size(axis) for axis in loop.r)
    if loop.x and reduces_across(loop):
        return _outer_reduction(loop, rows, length, tuning)
    padded = next_power_of_two(length)
    if padded == MAX_PERSISTENT and online_sums(loop) and reads_halves(loop, 1):
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, padded)
        return Tiling((x, r), HELD_WARPS, held=True, registers=HELD_REGISTERS)
    if padded >= MAX_PERSISTENT and online_sums(loop):
        block = ONLINE_BLOCK if padded <= LONG_ONLINE else LOOPED_BLOCK
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, block)
        return Tiling((x, r), LOOPED_WARPS, looped=True)
    several, most = along_rows(loop)
    if padded >= LONG_SEVERAL and several and read_once(loop):
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, SUMS_BLOCK)
        return Tiling((x, r), SUMS_WARPS, looped=True)
    if padded >= LONG_SEVERAL and several:
        block, warps = LOOPED_HALVES if most <= 2 else LOOPED_WORDS
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, block)
        return Tiling((x, r), warps, looped=True)
    if padded <= MAX_PERSISTENT:
        at_once = REDUCTION_BLOCK // max(2, most)
        together = max(1, min(at_once // padded, next_power_of_two(rows)))
        while together > 1 and rows // together < 2 * tuning.machine.multiprocessors:
            together //= 2
        warps = _warps(together * padded)
        if padded == MAX_PERSISTENT and most == 4 and element_loads(loop) == 1:
            warps *= 2
        deep = depth(loop) >= DEEP
        if deep and together * padded <= 4096:
            warps *= 2
        held = deep and together == 1 and padded == HELD_ROW and reads_halves(loop)
        if held and computed_again(loop) <= HELD_AGAIN:
            x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, padded)
            return Tiling((x, r), warps, held=True)
        return Tiling((Dimension("x", loop.x, together), Dimension("r", loop.r, padded)), warps)
    return Tiling(
        (Dimension("x", loop.x, 1), Dimension("r", loop.r, LOOPED_BLOCK)), LOOPED_WARPS, looped=True
    )


def _warps(elements: int) -> int:
    """Warps of a program that holds so many elements in registers."""
    each = 32 * (THREAD_ELEMENTS if elements >= 4096 else THREAD_ELEMENTS // 2)
    return max(1, min(16, elements // each))


def _outer_reduction(loop: Loop, rows: int, length: int, tuning: Tuning) -> Tiling:
    columns = min(OUTER_COLUMNS, next_power_of_two(rows))
    while columns > 16 and rows // columns < tuning.machine.multiprocessors:
        columns //= 2
    deep = max(1, min(next_power_of_two(length), OUTER_BLOCK // columns))
    x, r = Dimension("x", loop.x, columns), Dimension("r", loop.r, deep)
    warps = max(1, min(OUTER_WARPS, columns * deep // 512))
    if warps == OUTER_WARPS and stores_elements(loop) and widest(loop) <= 2:
        warps *= 2
    return Tiling((x, r), warps, looped=deep < length)
