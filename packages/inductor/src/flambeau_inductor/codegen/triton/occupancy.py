"""Occupancy model of sums down columns: registers, resident programs, waves of programs.

In: a loop and the blocks that its programs could have. Out: seconds, by which `tiling` chooses.
Invariant: estimates order choices; no answer depends on them.

A thread that holds many elements has many reads in flight, and registers for few other threads: a
block of 8192 elements over 8 warps is fastest where little is computed with an element, and spills
where eight values of each are alive at once. What differs by device is tuning data, fitted to 52
such loops of six models, each timed with up to 30 blocks
(docs/decisions/0025-registers-of-reductions.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from flambeau_inductor.codegen.triton.row_facts import dtype_of
from flambeau_inductor.indexing import hint
from flambeau_inductor.ir.loops import Load, Loop, Store
from flambeau_inductor.ir.operands import pressure
from flambeau_inductor.tuning import Tuning
from flambeau_inductor.tuning.machine import MOST_REGISTERS, REGISTER_STEP, REGISTERS

COLUMNS, WARPS, BLOCKS = (64, 32, 16), (4, 8, 16), (1024, 2048, 4096, 8192)
"""Neighbours in memory of a program, its warps, and its elements at a time: what is compared."""
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


def spills(loop: Loop, elements: float, warps: int, looped: bool, tuning: Tuning) -> float:
    """How many registers too few a thread has that holds so many elements of a row."""
    return _too_few(elements * pressure(loop, looped), warps, tuning)


def column_blocks(
    loop: Loop, rows: int, most: int, padded: int, tuning: Tuning
) -> tuple[int, int, int]:
    """Columns, at most so many, elements of each at a time and warps of a program that sums down
    them."""
    length = math.prod(hint(axis.size) for axis in loop.r)
    moving = rows * length * element_bytes(loop) / tuning.memory_rate
    each = {looped: pressure(loop, looped) for looped in (False, True)}

    def seconds(block: tuple[int, int, int]) -> float:
        columns, deep, warps = block
        values = columns * deep / (32 * warps) * each[deep < length]
        wanted = min(_wanted(values, tuning), _allowed(warps))
        registers = REGISTER_STEP * math.ceil(max(wanted, REGISTER_STEP) / REGISTER_STEP)
        room = int(REGISTERS // (registers * 32 * warps))
        resident = max(1, min(room, tuning.machine.most_warps // warps))
        programs = math.ceil(rows / columns)
        waves = math.ceil(programs / (tuning.machine.multiprocessors * resident))
        waiting = waves * math.ceil(length / deep) * tuning.step_latency
        few = _too_few(values, warps, tuning)
        slower = (1 + tuning.crowding * values) * (1 + tuning.spill * few)
        return float((moving**3 + waiting**3) ** (1 / 3) * slower)

    return min(_blocks(most, padded), key=seconds)


def _blocks(most: int, padded: int) -> Iterator[tuple[int, int, int]]:
    for columns in sorted({min(columns, most) for columns in COLUMNS}, reverse=True):
        for deep in sorted({min(block // columns, padded) for block in BLOCKS}):
            for warps in WARPS:
                if LEAST_ELEMENTS <= columns * deep / (32 * warps) <= MOST_ELEMENTS:
                    yield columns, deep, warps


def _allowed(warps: int) -> float:
    return min(MOST_REGISTERS, REGISTERS / (32 * warps))


def _wanted(values: float, tuning: Tuning) -> float:
    own, each = tuning.thread_registers
    return own + each * values


def _too_few(values: float, warps: int, tuning: Tuning) -> float:
    return max(0.0, _wanted(values, tuning) - _allowed(warps))
