"""In-register transposes of loads that are strided along the vector axis.

In: a plan whose blocked axis is open in blocks, and what is done for a point of it. Out: the loops
over a block. Invariant: each number is read once, and in the order of the axes where it is stored.

Arrays that a cache holds are transposed square by square. Of others a tile is transposed into an
array of the smallest cache first, and then the rows of the result are computed from it: memory is
read and written in runs of several lines (decision 0012).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flambeau_inductor.codegen.cpp.analysis.streaming import fetched_squares
from flambeau_inductor.codegen.cpp.analysis.vectorization import TRANSPOSED, lane_step
from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.memory import fetch_at, transpose
from flambeau_inductor.codegen.cpp.emit.reduction_passes import SHORT_BODY
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Load, Store, ValueId

SQUARES = (4, 8, 16)
"""Lanes of the vectors whose squares are transposed."""
TILE_BYTES = 32 << 10
"""Of all transposed tiles: they leave room in the smallest cache."""
TOGETHER = 4
"""Vectors of a row that are done in one turn of its loop, where that is short."""


@dataclass(frozen=True, slots=True)
class TransposeTile:
    """Transposed tiles of `rows` points of the blocked axis by `columns` lanes; `loads` go through
    them, `others`, of arrays that no cache holds, do not."""

    rows: int
    columns: int
    loads: tuple[ValueId, ...]
    others: tuple[ValueId, ...]


def transposed_loads(values: KernelVariables, var: str) -> list[ValueId]:
    """Loads that are strided for the lanes, but contiguous along `var`."""
    found, plan = [], values.plan
    stored = {i.buffer for i in plan.loop.body if isinstance(i, Store)}
    for position, instr in enumerate(plan.loop.body):
        if not isinstance(instr, Load) or instr.mask is not None or instr.buffer in stored:
            continue
        if not plan.is_vector(position) or lane_step(instr.index, var, plan.width) != 1:
            continue
        exact = isinstance(values.step(instr.index), int)
        if exact and values.dtype_of(instr.buffer) in TRANSPOSED:
            found.append(position)
    return found if plan.width in SQUARES else []


def tile_of(values: KernelVariables, blocked: str | None, rows: int) -> TransposeTile | None:
    """The tile to transpose at once; None where squares will do."""
    plan = values.plan
    if blocked is None or plan.vector != plan.loop.x[-1].var or rows % plan.width:
        return None
    loads = transposed_loads(values, blocked)
    large = fetched_squares(plan, values.dtype_of, blocked)
    if not loads or not set(loads) & set(large):
        return None
    widest = max(spelling_of(values.dtype(v)).size for v in loads)
    columns = TILE_BYTES // (widest * rows * len(loads)) // plan.width * plan.width
    if columns < 2 * plan.width:
        return None
    return TransposeTile(rows, columns, tuple(loads), tuple(v for v in large if v not in loads))


def emit_squares(values: KernelVariables, var: str, block: int, inside: Callable[[], None]) -> bool:
    """The points of a block of axis `var`, as many at once as there are lanes; False, and no text,
    where nothing is transposed."""
    plan, text = values.plan, values.text
    loads = transposed_loads(values, var)
    if not loads:
        return False
    size, width = plan.bound(var), plan.width
    head = f"for (long {var}_t = {var}_b; {var}_t < {size} && {var}_t < {var}_b + {block}; "
    with text.block(head + f"{var}_t += {width})"):
        rest, exact = f"{size} - {var}_t", plan.exact(var)
        whole = exact is not None and exact % width == 0 and block % width == 0
        count = str(width) if whole else f"{rest} < {width} ? {rest} : {width}"
        text(f"const long count = {count};")
        for value in loads:
            transpose(values, value, var, None)
        if whole and len(plan.loop.body) <= SHORT_BODY:
            text(f"#pragma GCC unroll {width}")
        with text.block(f"for (long {var} = {var}_t; {var} < {var}_t + count; ++{var})"):
            inside()
    values.transposed.clear()
    return True


def emit_transposed_tile(
    values: KernelVariables, var: str, tile: TransposeTile, inside: Callable[[], None]
) -> None:
    """The points of a block of axis `var`, and all lanes: tile by tile."""
    plan, text = values.plan, values.text
    lanes, width = plan.loop.x[-1].var, plan.width
    high, wide = plan.bound(var), plan.bound(lanes)
    with text.block(f"for (long {lanes}_b = 0; {lanes}_b < {wide}; {lanes}_b += {tile.columns})"):
        for axis, step, size in ((var, tile.rows, high), (lanes, tile.columns, wide)):
            end = f"{axis}_b + {step}"
            text(f"const long {axis}_e = {end} < {size} ? {end} : {size};")
        for value in tile.loads:
            lane = spelling_of(values.dtype(value)).value
            text(f"alignas(64) {lane} q{value}[{tile.rows * tile.columns}];")
        with (
            text.block(f"for (long {lanes} = {lanes}_b; {lanes} < {lanes}_e; {lanes} += {width})"),
            text.block(f"for (long {var}_t = {var}_b; {var}_t < {var}_e; {var}_t += {width})"),
        ):
            _lanes(values, "count", var, f"{var}_t")
            _lanes(values, "n", lanes, lanes)
            for value in tile.loads:
                transpose(values, value, var, tile.columns)
            text(f"#pragma GCC unroll {width}")
            with text.block(f"for (long k = 0; k < {width}; ++k)"):
                _prefetch(values, tile, var, ahead=False)
        with text.block(f"for (long {var} = {var}_b; {var} < {var}_e; ++{var})"):
            if len(plan.loop.body) <= SHORT_BODY:
                text(f"#pragma GCC unroll {TOGETHER}")
            row = f"for (long {lanes} = {lanes}_b; {lanes} < {lanes}_e; {lanes} += {width})"
            with text.block(row):
                _prefetch(values, tile, var, ahead=True)
                values.in_lanes(lanes, f"{lanes}_e", plan.exact(lanes), inside)
    values.transposed.clear()


def _prefetch(values: KernelVariables, tile: TransposeTile, var: str, ahead: bool) -> None:
    """Prefetch vector `k` of as many as there are squares of what is read with the tile that is
    being transposed, row by row; or, `ahead`, a vector of the next tile to transpose."""
    text, width = values.text, values.width
    lanes = values.plan.loop.x[-1].var
    across, down = tile.columns // width, tile.rows // width
    column = f"(unsigned long)({lanes} - {lanes}_b) / {width}"
    if ahead:
        text(f"const unsigned long vector = {column};")
        text(f"const unsigned long at = ({var} - {var}_b) * {across} + vector;")
        text(f"const long row = {var}_b + at % {down} * {width};")
        text(f"const long column = {lanes}_b + {tile.columns} + at / {down};")
    else:
        square = f"{column} * {down} + (unsigned long)({var}_t - {var}_b) / {width}"
        text(f"const unsigned long at = ({square}) * {width} + k;")
        text(f"const long row = {var}_b + at / {across};")
        text(f"const long column = {lanes}_b + at % {across} * {width};")
    loads = tile.loads if ahead else tile.others
    fetch_at(values, loads, {var: Var("row"), lanes: Var("column")})


def _lanes(values: KernelVariables, name: str, axis: str, at: str) -> None:
    """Declare how many points of an axis a vector has from `at` on."""
    plan, text = values.plan, values.text
    exact, width = plan.exact(axis), plan.width
    if exact is not None and exact % width == 0:
        text(f"const width<{width}> {name}{{}};")
        return
    rest = f"{axis}_e - {at}"
    text(f"const long {name} = {rest} < {width} ? {rest} : {width};")
