"""Software-pipelined row loop with column accumulators in registers.

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
from flambeau_inductor.codegen.triton.row_facts import element_bytes, widest
from flambeau_inductor.ir.loops import Loop, Reduce
from flambeau_inductor.ir.registers import register_bytes
from flambeau_inductor.tuning import Tuning

WALKED_SHORT, WALKED_BLOCK, WALKED_WARPS, WALKED_MOST = 256, 8192, 16, 4
WALKED_WIDE, WALKED_HALVES = 512, 1024
"""Of rows that a program takes in turn, adding up their columns in registers: short ones in blocks
of so many elements. A longer one is a block of its own, with a warp for so many elements, and no
more than so many: with eight warps a row, what computes much takes a quarter longer. Blocks of
several such rows get two layouts from Triton, and what is computed in one of them is computed again
in the other. A warp of 1024 elements waits for no other one: softmax of a layernorm of gelu with
sums of its operand, 1024 columns, 457 us with one warp and 503 with two (bfloat16), 703 and 622
(float32; 512 MiB and 1 GiB an operand, H200)."""
REGISTERS, MOST_REGISTERS = 65536, 255
"""Of a multiprocessor, and of a thread."""
WALKED_STAGES = 3
"""How many of its blocks are on their way from memory at once, if those but one find room in
`walked_bytes` of shared memory. Where a device has less, fewer are on their way (`build`)."""
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
WALKED_LONG, WALKED_WHOLE = 4096, 8192
"""Up to so many elements a row has a warp for `WALKED_WIDE` of them, or `WALKED_HALVES` where they
have 16 bits, beyond that `WALKED_WARPS`; of more than the second, a program is alone on its
multiprocessor."""


def pipelined_row_tiling(loop: Loop, tuning: Tuning) -> Tiling:
    """Whole rows, a few at a time where they are short, one part after the other."""
    parts, rows = loop.x
    columns = next_power_of_two(math.prod(static_size(axis) for axis in loop.r))
    together, warps, most = 1, WALKED_WARPS, WALKED_STAGES
    wide = widest(loop) > 2
    at_once = -(-static_size(parts) // tuning.machine.multiprocessors)
    registers: int | None = None
    across = tuning.across_columns
    if columns >= across and not any(isinstance(i, Reduce) for i in loop.body):
        together, columns, warps = ACROSS_ROWS, across, ACROSS_WARPS
    elif columns <= WALKED_SHORT:
        block = WALKED_BLOCK if not wide else WALKED_BLOCK // 2
        together = max(1, min(block // columns, next_power_of_two(static_size(rows))))
        warps = max(1, min(warps, together * columns * warps // block))
    elif columns <= WALKED_LONG:
        warps = max(1, min(WALKED_MOST, columns // (WALKED_WIDE if wide else WALKED_HALVES)))
        if at_once > 2 * min(8, WALKED_LONG // columns):
            registers = _registers(at_once * warps)
        elif columns == WALKED_LONG and register_bytes(loop) > WALKED_HELD:
            warps, most = 2 * warps, most + 1
    elif columns > WALKED_WHOLE:
        registers = _registers(at_once * warps)
    dimensions = (
        Dimension("x", (rows,), together, loop.points is not None),
        Dimension("r", loop.r, columns),
    )
    room = tuning.walked_bytes if columns <= WALKED_WHOLE else 2 * tuning.walked_bytes
    stages = min(most, 1 + room // max(1, together * columns * element_bytes(loop)))
    return Tiling(dimensions, warps, registers=registers, parts=parts, stages=stages)


def _registers(warps: int) -> int | None:
    """As many for a thread as so many warps of a multiprocessor leave each other, if those are not
    more than it could have alone."""
    most = REGISTERS // (32 * warps) // 8 * 8
    return most if most < MOST_REGISTERS else None
