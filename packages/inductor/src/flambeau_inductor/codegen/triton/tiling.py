"""Tiling of a loop into Triton programs: pointwise, transposes, reductions, software pipelining.

In: a `Loop`. Out: a `Tiling`: the axes of each block dimension and the block sizes. Invariant:
every axis of the loop lies in exactly one dimension, and a block's elements find room in a
program's registers.

Dimensions: `x` alone for pointwise work in memory order; `y` and `x` where two buffers disagree
on the contiguous axis (transposes: both then get whole lines of memory); `x` and `r` for
reductions, persistent (`r` in one block) or looped. A loop with stores of mode `total` is software
pipelined: a program takes its rows in turn and keeps sums of their columns in registers.

Occupancy model of sums down columns: registers, resident programs, waves of programs. In: a loop
and the blocks that its programs could have. Out: seconds, by which `tiling` chooses. Invariant:
estimates order choices; no answer depends on them. A thread that holds many elements has many reads
in flight, and registers for few other threads: a block of 8192 elements over 8 warps is fastest
where little is computed with an element, and spills where eight values of each are alive at once.
What differs by device is tuning data, fitted to 52 such loops of six models, each timed with up to
30 blocks (docs/decisions/0025-registers-of-reductions.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flambeau_inductor.codegen.triton.reductions import online_sums
from flambeau_inductor.codegen.triton.row_facts import (
    along_rows,
    computed_again,
    depth,
    dtype_of,
    elements_of,
    read_once,
    reads_halves,
    reduces_across,
    shared_by_rows,
    widest,
)
from flambeau_inductor.indexing import Size, as_expr, hint, is_open, known, plain, surely_less
from flambeau_inductor.ir.loops import Axis, IndexValue, Load, Loop, Reduce, Store
from flambeau_inductor.ir.operands import operands, pressure, register_bytes
from flambeau_inductor.tuning import MEASURED, Tuning
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


@dataclass(frozen=True, slots=True)
class Dimension:
    """Axes flattened into one block dimension, outermost first, and its block size. The last
    program of a `ragged` one has fewer points, a number that the kernel computes."""

    name: str
    axes: tuple[Axis, ...]
    block: int
    ragged: bool = False

    @property
    def size(self) -> Size:
        """Number of points."""
        return plain(math.prod((axis.size for axis in self.axes), start=1))

    @property
    def blocks(self) -> Size:
        """How many blocks it takes."""
        return plain((self.size + (self.block - 1)) // self.block)

    @property
    def masked(self) -> bool:
        """Whether the last block hangs over the end, where it may for some open size."""
        whole = known("eq", as_expr(self.size) % self.block, 0) is True
        return (
            not whole or known("eq", self.size, 0) is not False or (self.ragged and self.block > 1)
        )

    @property
    def same_in_block(self) -> frozenset[str]:
        """Axes of which each block lies within one point: those over whole numbers of blocks."""
        found, below = set[str](), 1
        for axis in reversed(self.axes):
            if self.block > 1 and below % self.block == 0:
                found.add(axis.var)
            if not isinstance(axis.size, int):
                break
            below *= axis.size
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class Tiling:
    """Block dimensions in the order of the tensor's axes inside a program, and warps.

    looped: a row is taken in steps, and read again after each reduction. in_registers: it stays
    there as it was read, and what is computed from it is recomputed after each reduction.
    registers: the most that a thread may have. parts: the outermost axis where a program has a part
    of the rows, or of some of their columns, software pipelined in blocks of `x`, `stages` of them
    in flight.
    """

    dimensions: tuple[Dimension, ...]
    warps: int
    looped: bool = False
    in_registers: bool = False
    registers: int | None = None
    parts: Axis | None = None
    stages: int = 1

    @property
    def programs(self) -> Size:
        """Number of programs of a launch."""
        if self.parts is not None:
            columns = next(d for d in self.dimensions if d.name == "r")
            return plain(self.parts.size * columns.blocks)
        return plain(math.prod((d.blocks for d in self.dimensions if d.name != "r"), start=1))


def points(axes: Iterable[Axis]) -> int:
    """How many points axes have in this compile."""
    return math.prod(hint(axis.size) for axis in axes)


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least `n` (1 for 0)."""
    return 1 << max(0, n - 1).bit_length()


# What stands here shapes code, for every GPU; what registers, caches or shared memory decide is
# tuning data.
REDUCTION_BLOCK = 4096
OUTER_COLUMNS, OUTER_LEAST = 64, 1024
"""Columns of a program that sums down few elements of each: neighbours in memory, which are read
together. From so many elements on, `column_blocks` chooses."""
OUTER_SHORT, SHORT_COLUMNS, SHORT_WARPS = 64, 256, 4
"""Columns of at most so many elements are summed each by one thread, that many by a program: no
thread waits for another, and all reads of a column are under way at once."""
OUTER_MEDIUM, MEDIUM_BLOCK = 512, (128, 4, 4)
"""The same of longer ones, of which two programs a multiprocessor have so many each; four elements
of a column at a time, and warps (docs/decisions/0025-registers-of-reductions.md)."""
MOST_WARPS = 32
THREAD_ELEMENTS = 64
"""Elements of a row that a thread holds at most: many loads in flight, and registers for them."""
DEEP = 3
"""Reductions that wait for each other, from which on a thread holds half as many elements."""
FEW_ROWS_WARPS, FEW_ROWS_ELEMENTS = 16, 4
"""Of fewer rows than multiprocessors: most warps of a row, and least elements of a thread."""
HELD_AGAIN = 16
"""Instructions an element that may be computed again for that."""
OPEN_LEAST, OPEN_MOST, OPEN_WARPS = 256, 4096, 8
"""Blocks of a row of an open length, which then is assumed to fit in its block; a longer one, of
any length, is read in steps of the largest."""


def reduction(loop: Loop, tuning: Tuning) -> Tiling:
    """Rows in registers where they find room there, else in steps; columns a few at a time."""
    if loop.x and reduces_across(loop):
        return _outer_reduction(loop, points(loop.x), points(loop.r), tuning)
    tiling = _row_reduction(loop, tuning)
    rows, row = tiling.dimensions
    few = spills(loop, row.block / (32 * tiling.warps), tiling.warps, tiling.looped, tuning)
    if rows.block > 1 or tiling.in_registers or not few:
        return tiling
    if depth(loop) == 1 and row.block > tuning.spilled_block[0]:
        return _rows(loop, 1, *tuning.spilled_block, looped=True)
    return replace(tiling, warps=min(MOST_WARPS, 2 * tiling.warps))


def _row_reduction(loop: Loop, tuning: Tuning) -> Tiling:
    rows, length = points(loop.x), points(loop.r)
    padded = next_power_of_two(length)
    looped = partial(_rows, loop, 1, looped=True)
    if is_open(axis.size for axis in loop.r):
        padded = max(padded, OPEN_LEAST)
        size = Dimension("r", loop.r, padded).size
        if padded > OPEN_MOST or not surely_less(size, padded + 1):
            return looped(OPEN_MOST, OPEN_WARPS)
    if padded == tuning.most_held and online_sums(loop) and reads_halves(loop, 1):
        held, registers = tuning.held_online
        return _rows(loop, 1, padded, held, in_registers=True, registers=registers)
    if padded >= tuning.most_held and online_sums(loop):
        return looped(*tuning.online_blocks[padded > tuning.long_online])
    several, most = along_rows(loop)
    if padded >= tuning.long_several and several:
        return looped(*tuning.several_blocks[0 if read_once(loop) else 1 if most <= 2 else 2])
    if padded > tuning.most_held:
        return looped(*tuning.reread_block)
    at_once = REDUCTION_BLOCK // max(2, most)
    own, shared, vectors = shared_by_rows(loop)
    block, thread, share = tuning.shared_vector
    if shared:
        at_once = max(block // own, padded * shared // (share * own))
    if vectors > 1:  # sums of each of them cross the threads, for every row
        at_once = padded
    together = max(1, min(at_once // padded, next_power_of_two(rows)))
    while together > 1 and rows // together < 2 * tuning.machine.multiprocessors:
        together //= 2
    warps = _warps(together * padded)
    if shared:
        warps = together * length * own // (32 * thread)
        warps = max(1, min(16, next_power_of_two(warps + 1) // 2))
    if padded == tuning.most_held and most == 4 and len(elements_of(loop)) == 1:
        warps *= 2
    deep = depth(loop) >= DEEP
    if deep and together * padded <= 4096:
        warps *= 2
    if together == 1 and rows < tuning.machine.multiprocessors:
        # most of the device is idle: a row is over sooner if more threads have a part of it
        warps = max(warps, min(FEW_ROWS_WARPS, padded // (32 * FEW_ROWS_ELEMENTS)))
    stays = deep and together == 1 and padded == tuning.held_row and reads_halves(loop)
    in_registers = stays and computed_again(loop) <= HELD_AGAIN
    return _rows(loop, together, padded, warps, in_registers=in_registers)


def _rows(loop: Loop, together: int, block: int, warps: int, **how: Any) -> Tiling:
    """So many rows in blocks of so many elements each."""
    dimensions = Dimension("x", loop.x, together), Dimension("r", loop.r, block)
    return Tiling(dimensions, warps, **how)


def _warps(elements: int) -> int:
    """Warps of a program that holds so many elements in registers."""
    each = 32 * (THREAD_ELEMENTS if elements >= 4096 else THREAD_ELEMENTS // 2)
    return max(1, min(16, elements // each))


def _outer_reduction(loop: Loop, rows: int, length: int, tuning: Tuning) -> Tiling:
    padded, columns = next_power_of_two(length), min(OUTER_COLUMNS, next_power_of_two(rows))
    open_length = is_open(axis.size for axis in loop.r)
    if length <= OUTER_SHORT and not open_length and read_once(loop):
        columns = min(SHORT_COLUMNS, next_power_of_two(rows))
        return _rows(loop, columns, 1, SHORT_WARPS, looped=True)
    many = rows >= 2 * tuning.machine.multiprocessors * MEDIUM_BLOCK[0]
    if length <= OUTER_MEDIUM and not open_length and many and read_once(loop):
        return _rows(loop, *MEDIUM_BLOCK, looped=True)
    if columns * padded >= OUTER_LEAST:
        columns, deep, warps = column_blocks(loop, rows, columns, padded, tuning)
        return _rows(loop, columns, deep, warps, looped=deep < length or open_length)
    while columns > 16 and rows // columns < tuning.machine.multiprocessors:
        columns //= 2
    return _rows(loop, columns, padded, max(1, columns * padded // 512), looped=open_length)


WALKED_SHORT, WALKED_BLOCK, WALKED_WARPS, WALKED_MOST = 256, 8192, 16, 4
WALKED_WIDE, WALKED_HALVES = 512, 1024
"""Of software-pipelined rows: short ones in blocks of so many elements. A longer one is a block of
its own, with a warp for so many elements (`WALKED_HALVES` of 16 bits), and at most so many warps,
`WALKED_WARPS` beyond `walked_lengths`: blocks of several such rows get two layouts from Triton, and
are computed in both."""
ACROSS_ROWS, ACROSS_WARPS = 4, 4
"""Rows at a time, and warps, of a program that has a part of their columns."""


def pipelined_row_tiling(loop: Loop, tuning: Tuning) -> Tiling:
    """Whole rows, a few at a time where they are short, one part after the other."""
    parts, rows = loop.x
    columns = next_power_of_two(points(loop.r))
    together, warps, most = 1, WALKED_WARPS, tuning.walked_stages
    long, whole = tuning.walked_lengths
    wide = widest(loop) > 2
    at_once = -(-hint(parts.size) // tuning.machine.multiprocessors)
    registers: int | None = None
    across = tuning.across_columns
    if columns >= across and not any(isinstance(i, Reduce) for i in loop.body):
        together, columns, warps = ACROSS_ROWS, across, ACROSS_WARPS
    elif columns <= WALKED_SHORT:
        block = WALKED_BLOCK if not wide else WALKED_BLOCK // 2
        together = max(1, min(block // columns, next_power_of_two(hint(rows.size))))
        warps = max(1, min(warps, together * columns * warps // block))
    elif columns <= long:
        warps = max(1, min(WALKED_MOST, columns // (WALKED_WIDE if wide else WALKED_HALVES)))
        if at_once > 2 * min(8, long // columns):
            registers = _registers(at_once * warps)
        elif columns == long and register_bytes(loop) > tuning.walked_registers:
            warps, most = 2 * warps, most + 1
    elif columns > whole:
        registers = _registers(at_once * warps)
    dimensions = (
        Dimension("x", (rows,), together, loop.points is not None),
        Dimension("r", loop.r, columns),
    )
    room = tuning.walked_bytes if columns <= whole else 2 * tuning.walked_bytes
    row_bytes = columns * sum(load.dtype.itemsize for load in elements_of(loop))
    stages = min(most, 1 + room // max(1, together * row_bytes))
    return Tiling(dimensions, warps, registers=registers, parts=parts, stages=stages)


def _registers(warps: int) -> int | None:
    """Registers that so many warps of a multiprocessor leave each thread; None: no fewer than it
    could have alone."""
    most = REGISTERS // (32 * warps) // REGISTER_STEP * REGISTER_STEP
    return most if most < MOST_REGISTERS else None


GATHER_BLOCK = 2048
LEAST_ROW = 32
"""From so many elements for each position that is looked up, rows have their own dimension."""
POINTWISE_BLOCK = 1024
OPEN_POINTS, OPEN_SIDE = 2**20, 32
"""Points that a loop of an open size is taken to have, and each side of a tile: it costs little
where there are fewer."""


def choose(loop: Loop, tuning: Tuning = MEASURED) -> Tiling:
    """Tiling of `loop` from its sizes and strides, and what it runs on, alone."""
    if any(isinstance(instr, Store) and instr.mode == "total" for instr in loop.body):
        return pipelined_row_tiling(loop, tuning)
    if loop.r:
        return reduction(loop, tuning)
    if (conflict := _conflicting_axis(loop)) is not None:
        return _transposing(loop, conflict)
    looked_up = _looked_up_by(loop)
    return _gathering(loop, looked_up, tuning) if looked_up else _pointwise(loop, tuning)


def _pointwise(loop: Loop, tuning: Tuning) -> Tiling:
    size = points(loop.x)
    if is_open(axis.size for axis in loop.x):
        size = max(size, OPEN_POINTS)
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
    inner = points(loop.x[outer:])
    return outer if outer < len(loop.x) and inner >= LEAST_ROW else 0


def _gathering(loop: Loop, outer: int, tuning: Tuning) -> Tiling:
    """Positions are read once a row, and rows as whole lines of memory."""
    y, x = points(loop.x[:outer]), points(loop.x[outer:])
    columns = min(GATHER_BLOCK // 2, next_power_of_two(x))
    rows = max(1, min(GATHER_BLOCK // columns, next_power_of_two(y)))
    while rows > 1 and y // rows * -(-x // columns) < 2 * tuning.machine.multiprocessors:
        rows //= 2
    dimensions = (Dimension("y", loop.x[:outer], rows), Dimension("x", loop.x[outer:], columns))
    return Tiling(dimensions, max(1, min(4, rows * columns // 256)))


def _transposing(loop: Loop, conflict: int) -> Tiling:
    *outer, last = loop.x
    other = outer.pop(conflict)
    columns, rows = _side(last.size), _side(other.size)
    y = Dimension("y", (*outer, other), rows)
    return Tiling((y, Dimension("x", (last,), columns)), 4 if rows * columns <= 2048 else 8)


def _side(size: Size) -> int:
    """Points of a tile along an axis."""
    return min(64, next_power_of_two(max(hint(size), 1 if isinstance(size, int) else OPEN_SIDE)))


def _conflicting_axis(loop: Loop) -> int | None:
    """Position of the outer axis that some buffer is contiguous along, if it is worth a tile."""
    if len(loop.x) < 2 or hint(loop.x[-1].size) < 8:
        return None
    last = loop.x[-1].var
    votes: Counter[int] = Counter()
    for access in (i for i in loop.body if isinstance(i, Load | Store)):
        if (stride := access.index.coefficient(last)) is None or abs(hint(stride)) <= 1:
            continue
        for position, axis in enumerate(loop.x[:-1]):
            if access.index.coefficient(axis.var) == 1 and hint(axis.size) >= 8:
                votes[position] += 1
    return votes.most_common(1)[0][0] if votes else None
