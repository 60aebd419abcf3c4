"""Unrolled columns of a column reduction.

In: the plan. Out: how many vectors a tile has, and the loops around what is done for a vector of
columns, a few rows at a time. Invariant: each column takes its rows in order, whatever the tile.

Four rows at a time leave an accumulator in its register for four additions. Rows lie apart in
memory, where no processor guesses the next one: those to come are fetched.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import prod

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.text import SourceLines
from flambeau_inductor.ir.loops import Reduce, Scan
from flambeau_inductor.ir.operands import operands

# vectors of columns side by side: a row of 64 is a run of 4 KiB
TILES = (64, 32, 16, 8, 4, 2)
# as many pieces are to be left, or two for each processor where that is less
COLUMN_PIECES = 16
# bytes of what is held for the columns of a tile while their rows go by
TILE_BYTES = 24 << 10
# fewer rows than this are over before it matters where their accumulators are
MANY_ROWS = 32
# vectors of a tile whose accumulators are registers
MOST_UNROLLED = 4
# instructions of a loop that is short enough to be repeated
SHORT_BODY = 24
# rows that go into a column's accumulators at once
ROWS = 4


def columns_at_once(plan: LoopPlan) -> int:
    """How many vectors of columns a reduction over rows takes side by side."""
    loop = plan.loop
    if not loop.r or not loop.x or plan.vector != loop.x[-1].var or plan.split_rows:
        return 1
    vectors = plan.sizes[plan.vector] // plan.width
    if plan.form.columns is not None:
        return max(1, min(plan.form.columns, vectors))
    others = prod(plan.sizes[a.var] for a in loop.x[:-1])
    pieces = min(COLUMN_PIECES, 2 * (os.cpu_count() or 1))
    most = vectors if prod(plan.sizes[a.var] for a in loop.r) >= MANY_ROWS else 4
    if _register_bytes(plan) * TILES[0] > TILE_BYTES:
        most = min(most, max(TILE_BYTES // _register_bytes(plan), COLUMN_PIECES))
    for tile in TILES:
        if tile <= min(most, vectors) and others * vectors // tile >= pieces:
            return tile
    return 1


def _register_bytes(plan: LoopPlan) -> int:
    """Bytes of accumulators, and of values of columns that elements are made with, a vector."""
    body = plan.loop.body
    used = {v for p, i in enumerate(body) if plan.is_element(p) for v in operands(i)}
    held_back = sum(plan.is_vector(v) and not plan.is_element(v) for v in used)
    reduced = sum(isinstance(i, Reduce | Scan) for i in body)
    return (2 * reduced + held_back) * plan.width * 8


@contextmanager
def each_column(plan: LoopPlan, text: SourceLines, tile: int) -> Iterator[None]:
    """A loop over the vectors of a tile."""
    if tile <= MOST_UNROLLED and len(plan.loop.body) <= SHORT_BODY:
        text(f"#pragma GCC unroll {tile}")
    with text.block(f"for (int u = 0; u < {tile}; ++u)"):
        text(f"const long {plan.vector} = t + u * {plan.width};")
        yield


def refer_saved(text: SourceLines, saved: Sequence[str]) -> None:
    """Inside `each_column`: the row values of this column under their usual names."""
    for name in saved:
        text(f"const auto {name} = {name}s[u];")


def rows_at_once(plan: LoopPlan, tile: int) -> int:
    """How many rows go by for a vector of columns before it is the next one's turn."""
    return ROWS if tile > MOST_UNROLLED and len(plan.loop.body) <= SHORT_BODY else 1


def by_rows(
    text: SourceLines,
    var: str,
    limits: tuple[str, str],
    rows: int,
    column: Callable[[], AbstractContextManager[None]],
    inside: Callable[[], None],
) -> None:
    """The loop over the rows `limits` of axis `var`, `rows` of them inside a loop over columns."""
    low, high = limits
    text(f"long {var}_g = {low};")
    with text.block(f"for (; {var}_g + {rows} <= {high}; {var}_g += {rows})"), column():
        text(f"#pragma GCC unroll {rows}")
        with text.block(f"for (long {var} = {var}_g; {var} < {var}_g + {rows}; ++{var})"):
            inside()
    with text.block(f"for (long {var} = {var}_g; {var} < {high}; ++{var})"), column():
        inside()
