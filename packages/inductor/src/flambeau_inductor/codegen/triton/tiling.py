"""How a loop is cut into Triton programs: which axes a block spans and how many elements.

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
from dataclasses import dataclass

from flambeau_inductor.codegen.triton.dtypes import HALF
from flambeau_inductor.codegen.triton.errors import TritonUnsupported
from flambeau_inductor.codegen.triton.online import online_sums
from flambeau_inductor.indexing import Expr
from flambeau_inductor.ir.loops import Axis, IndexValue, Load, Loop, Reduce, Store
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.limits import ACROSS_COLUMNS

MAX_PERSISTENT = 32768
GATHER_BLOCK = 2048
LEAST_ROW = 32
"""From so many elements behind a position that is looked up, rows have their own dimension."""
POINTWISE_BLOCK = 1024
REDUCTION_BLOCK = 4096
OUTER_BLOCK = 8192
STREAMING_MULTIPROCESSORS = 132
OUTER_COLUMNS = 64
"""Columns of a program that sums down them: neighbours in memory, which are read together."""
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
SUMS_BLOCK, SUMS_WARPS = 4096, 4
"""Of rows that are read once, several operands of each element: elements and warps of a block. Two
operands of 512 MiB in 252, 252, 248 and 277 us (32768 and 131072 bf16, the same fp32; H200); blocks
of 8192 in 16 warps 317 and 304 (bf16), of 4096 in 32 warps 261 and 789 (fp32)."""
HELD_ROW = 4096
"""Elements of a row of 16 bits each with such reductions that stays in registers as it was read."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """Axes flattened into one block dimension, outermost first, and its block size."""

    name: str
    axes: tuple[Axis, ...]
    block: int

    @property
    def size(self) -> int:
        """Number of points."""
        return math.prod(static_size(axis) for axis in self.axes)

    @property
    def blocks(self) -> int:
        """How many blocks it takes."""
        return -(-self.size // self.block)

    @property
    def masked(self) -> bool:
        """Whether the last block hangs over the end."""
        return self.size == 0 or self.size % self.block != 0


@dataclass(frozen=True, slots=True)
class Tiling:
    """Block dimensions in the order of the tensor's axes inside a program, and warps.

    looped: a row is taken in steps, and read again after each reduction. held: it stays in
    registers as it was read, and what is computed from it is computed again after each reduction.
    registers: the most that a thread may have. parts: the outermost axis where each program has a
    part of the rows, or of some of their columns, to itself and takes them in turn, a block of `x`
    after the other, `stages` of them on their way at once.
    """

    dimensions: tuple[Dimension, ...]
    warps: int
    looped: bool = False
    held: bool = False
    registers: int | None = None
    parts: Axis | None = None
    stages: int = 1

    @property
    def programs(self) -> int:
        """Number of programs of a launch."""
        if self.parts is not None:
            columns = next(d for d in self.dimensions if d.name == "r")
            return static_size(self.parts) * columns.blocks
        return math.prod(d.blocks for d in self.dimensions if d.name != "r")


def static_size(axis: Axis) -> int:
    """Length of an axis.

    Raises:
        TritonUnsupported: the length is a symbol.
    """
    if isinstance(axis.size, Expr):
        raise TritonUnsupported(f"the length of axis {axis.var} is a symbol: {axis.size}")
    return axis.size


def choose(loop: Loop) -> Tiling:
    """Tiling of `loop` from its sizes and strides alone."""
    if any(isinstance(instr, Store) and instr.mode == "total" for instr in loop.body):
        return _walking(loop)
    if loop.r:
        return _reduction(loop)
    conflict = _conflicting_axis(loop)
    if conflict is not None:
        return _transposing(loop, conflict)
    looked_up = _looked_up_by(loop)
    return _gathering(loop, looked_up) if looked_up else _pointwise(loop)


def _pointwise(loop: Loop) -> Tiling:
    size = math.prod(static_size(axis) for axis in loop.x)
    block = min(POINTWISE_BLOCK, next_power_of_two(size))
    while block > 128 and size // block < STREAMING_MULTIPROCESSORS:
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


def _gathering(loop: Loop, outer: int) -> Tiling:
    """Positions are read once a row, and rows as whole lines of memory."""
    y, x = (math.prod(map(static_size, axes)) for axes in (loop.x[:outer], loop.x[outer:]))
    columns = min(GATHER_BLOCK // 2, next_power_of_two(x))
    rows = max(1, min(GATHER_BLOCK // columns, next_power_of_two(y)))
    while rows > 1 and y // rows * -(-x // columns) < 2 * STREAMING_MULTIPROCESSORS:
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


def _reduction(loop: Loop) -> Tiling:
    rows = math.prod(static_size(axis) for axis in loop.x)
    length = math.prod(static_size(axis) for axis in loop.r)
    if loop.x and reduces_across(loop):
        return _outer_reduction(loop, rows, length)
    padded = next_power_of_two(length)
    if padded == MAX_PERSISTENT and online_sums(loop) and _reads_halves(loop, 1):
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, padded)
        return Tiling((x, r), HELD_WARPS, held=True, registers=HELD_REGISTERS)
    if padded >= MAX_PERSISTENT and online_sums(loop):
        block = ONLINE_BLOCK if padded <= LONG_ONLINE else LOOPED_BLOCK
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, block)
        return Tiling((x, r), LOOPED_WARPS, looped=True)
    several, widest = _along_rows(loop)
    if padded >= LONG_SEVERAL and several and _read_once(loop):
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, SUMS_BLOCK)
        return Tiling((x, r), SUMS_WARPS, looped=True)
    if padded >= LONG_SEVERAL and several:
        block, warps = LOOPED_HALVES if widest <= 2 else LOOPED_WORDS
        x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, block)
        return Tiling((x, r), warps, looped=True)
    if padded <= MAX_PERSISTENT:
        at_once = REDUCTION_BLOCK // max(2, widest)
        together = max(1, min(at_once // padded, next_power_of_two(rows)))
        while together > 1 and rows // together < 2 * STREAMING_MULTIPROCESSORS:
            together //= 2
        warps = _warps(together * padded)
        if padded == MAX_PERSISTENT and widest == 4 and _element_loads(loop) == 1:
            warps *= 2
        deep = _depth(loop) >= DEEP
        if deep and together * padded <= 4096:
            warps *= 2
        if deep and together == 1 and padded == HELD_ROW and _reads_halves(loop):
            x, r = Dimension("x", loop.x, 1), Dimension("r", loop.r, padded)
            return Tiling((x, r), warps, held=True)
        return Tiling((Dimension("x", loop.x, together), Dimension("r", loop.r, padded)), warps)
    return Tiling(
        (Dimension("x", loop.x, 1), Dimension("r", loop.r, LOOPED_BLOCK)), LOOPED_WARPS, looped=True
    )


def _walking(loop: Loop) -> Tiling:
    """Whole rows, a few at a time where they are short, one part after the other."""
    parts, rows = loop.x
    columns = next_power_of_two(math.prod(static_size(axis) for axis in loop.r))
    together, warps, most = 1, WALKED_WARPS, WALKED_STAGES
    _, widest = _along_rows(loop)
    if columns > ACROSS_COLUMNS and not any(isinstance(i, Reduce) for i in loop.body):
        together, columns, warps = ACROSS_ROWS, ACROSS_COLUMNS, ACROSS_WARPS
    elif columns <= WALKED_SHORT:
        block = WALKED_BLOCK if widest <= 2 else WALKED_BLOCK // 2
        together = max(1, min(block // columns, next_power_of_two(static_size(rows))))
        warps = max(1, min(warps, together * columns * warps // block))
    elif columns <= HELD_ROW:
        warps = min(WALKED_MOST, columns // WALKED_WIDE)
        if columns == HELD_ROW and _held(loop) > WALKED_HELD:
            warps, most = 2 * warps, most + 1
    dimensions = (Dimension("x", (rows,), together), Dimension("r", loop.r, columns))
    at_once = together * columns * _element_bytes(loop)
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


def _elements(loop: Loop) -> list[Load]:
    """What is read of each element of each row."""
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    loads = [i for i in loop.body if isinstance(i, Load)]
    return [i for i in loads if i.index.vars & along and i.index.vars & rows]


def _element_loads(loop: Loop) -> int:
    """How many operands have a value for each element of each row."""
    return len(_elements(loop))


def _element_bytes(loop: Loop) -> int:
    """Their bytes, for one element."""
    return sum(load.dtype.itemsize for load in _elements(loop))


def _along_rows(loop: Loop) -> tuple[bool, int]:
    """Whether a row has several operands, and values that all rows share besides; and the bytes of
    the widest of their elements."""
    along = {axis.var for axis in loop.r}
    loads = [i for i in loop.body if isinstance(i, Load) and i.index.vars & along]
    elements = _element_loads(loop)
    return 2 <= elements < len(loads), max((i.dtype.itemsize for i in loads), default=1)


def _reads_halves(loop: Loop, most: int | None = None) -> bool:
    """Whether all that is read along a row is values of 16 bits, at most so many an element."""
    along = {axis.var for axis in loop.r}
    read = [i for i in loop.body if isinstance(i, Load) and i.index.vars & along]
    plain = all(i.dtype in HALF and i.mask is None for i in read)
    return plain and 0 < len(read) <= (most or len(read))


def _depth(loop: Loop) -> int:
    """How many reductions wait for each other."""
    levels: list[int] = []
    for instr in loop.body:
        level = max((levels[i] for i in operands(instr)), default=0)
        levels.append(level + isinstance(instr, Reduce))
    return max(levels, default=0)


def _read_once(loop: Loop) -> bool:
    """Whether nothing is stored along a row, and no reduction waits for another."""
    along = {axis.var for axis in loop.r}
    stores = [i for i in loop.body if isinstance(i, Store)]
    return _depth(loop) == 1 and not any(i.index.vars & along for i in stores)


def _warps(elements: int) -> int:
    """Warps of a program that holds so many elements in registers."""
    each = 32 * (THREAD_ELEMENTS if elements >= 4096 else THREAD_ELEMENTS // 2)
    return max(1, min(16, elements // each))


def _outer_reduction(loop: Loop, rows: int, length: int) -> Tiling:
    columns = min(OUTER_COLUMNS, next_power_of_two(rows))
    while columns > 16 and rows // columns < STREAMING_MULTIPROCESSORS:
        columns //= 2
    depth = max(1, min(next_power_of_two(length), OUTER_BLOCK // columns))
    x, r = Dimension("x", loop.x, columns), Dimension("r", loop.r, depth)
    return Tiling((x, r), max(1, min(8, columns * depth // 512)), looped=depth < length)


def _accesses(loop: Loop) -> list[Load | Store]:
    return [instr for instr in loop.body if isinstance(instr, Load | Store)]


def reduces_across(loop: Loop) -> bool:
    """Whether neighbours in memory belong to different rows, by what is read of every element.

    What has one value a row, or the same values for all rows, weighs nothing against that.
    """
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    elements = [
        access.index
        for access in _accesses(loop)
        if access.index.vars & along and access.index.vars & rows
    ]
    inner, outer = loop.r[-1].var, loop.x[-1].var
    return sum(index.coefficient(outer) == 1 for index in elements) > sum(
        index.coefficient(inner) == 1 for index in elements
    )


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


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least `n` (1 for 0)."""
    return 1 << max(0, n - 1).bit_length()
