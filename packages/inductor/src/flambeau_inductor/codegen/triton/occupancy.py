"""Occupancy model of sums down columns: registers, resident programs, waves of programs.

In: a loop and the blocks that its programs could have. Out: seconds, by which `tiling` chooses.
Invariant: estimates order choices; no answer depends on them.

A thread that holds many elements has many reads in flight, and registers for few other threads: a
block of 8192 elements over 8 warps is fastest where little is computed with an element, and spills
where eight values of each are alive at once. The numbers are fitted to 52 such loops of six models,
each timed with up to 30 blocks on an H200 (docs/decisions/0025-registers-of-reductions.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from flambeau_inductor.codegen.triton.row_facts import dtype_of
from flambeau_inductor.indexing import hint
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.operands import pressure
from flambeau_inductor.tuning import Tuning

REGISTERS, MOST_REGISTERS, REGISTER_STEP = 65536, 255, 8
"""Of a multiprocessor, of a thread, and what they are given out in."""
MOST_WARPS = 64
"""That a multiprocessor holds."""
BASE_REGISTERS, EACH_REGISTER = 22, 0.925
"""Registers of a thread without elements, and for each value of each element alive at once."""
SPILL = 0.1
"""Of its time that a program takes longer for each register that a thread has too few."""
CROWDING = 0.005
"""The same for each value that a thread holds: fewer threads hide each other's waits."""
COLUMNS, WARPS, BLOCKS = (64, 32, 16), (4, 8, 16), (1024, 2048, 4096, 8192)
"""Neighbours in memory of a program, its warps, and its elements at a time."""
LEAST_ELEMENTS, MOST_ELEMENTS = 2, 32
"""Elements at a time of a thread."""


def element_bytes(loop: Loop) -> int:
    """What is read and written for each element of each row, each buffer once."""
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    moved: dict[str, int] = {}
    for instr in loop.body:
        if isinstance(instr, Load | Store) and instr.index.vars & along and instr.index.vars & rows:
            value = loop.body[instr.value] if isinstance(instr, Store) else instr
            moved[instr.buffer] = dtype_of(value).itemsize
    return sum(moved.values())


def spills(loop: Loop, elements: float, warps: int, looped: bool) -> float:
    """How many registers too few a thread has that holds so many elements of a row."""
    return max(0.0, _wanted(loop, elements, looped) - _allowed(warps))


def column_blocks(loop: Loop, rows: int, padded: int, tuning: Tuning) -> tuple[int, int, int]:
    """Columns, elements of each at a time and warps of a program that sums down them."""
    blocks = _blocks(rows, padded)
    return min(blocks, key=lambda b: _seconds(loop, rows, b[0], b[1], b[2], tuning))


def _blocks(rows: int, padded: int) -> Iterator[tuple[int, int, int]]:
    most = 1 << max(0, rows - 1).bit_length()
    for columns in sorted({min(columns, most) for columns in COLUMNS}, reverse=True):
        for deep in sorted({min(block // columns, padded) for block in BLOCKS}):
            for warps in WARPS:
                if LEAST_ELEMENTS <= columns * deep / (32 * warps) <= MOST_ELEMENTS:
                    yield columns, deep, warps


def _allowed(warps: int) -> float:
    return min(MOST_REGISTERS, REGISTERS / (32 * warps))


def _wanted(loop: Loop, elements: float, looped: bool) -> float:
    return BASE_REGISTERS + EACH_REGISTER * elements * pressure(loop, looped)


def _seconds(loop: Loop, rows: int, columns: int, deep: int, warps: int, tuning: Tuning) -> float:
    length = math.prod(hint(axis.size) for axis in loop.r)
    elements = columns * deep / (32 * warps)
    looped = deep < length
    wanted = min(_wanted(loop, elements, looped), _allowed(warps))
    registers = REGISTER_STEP * math.ceil(max(wanted, REGISTER_STEP) / REGISTER_STEP)
    resident = max(1, min(int(REGISTERS // (registers * 32 * warps)), MOST_WARPS // warps))
    waves = math.ceil(math.ceil(rows / columns) / (tuning.machine.multiprocessors * resident))
    waiting = waves * math.ceil(length / deep) * tuning.step_latency
    moving = rows * length * element_bytes(loop) / tuning.memory_rate
    crowded = 1 + CROWDING * elements * pressure(loop, looped)
    few = 1 + SPILL * spills(loop, elements, warps, looped)
    return float((moving**3 + waiting**3) ** (1 / 3) * crowded * few)
