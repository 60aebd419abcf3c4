"""Vectorised innermost loops: lanes along a row with their tail, or unrolled tiles of columns.

In: the plan, the bounds of a loop, what is done for a vector. Out: the loop. Invariant: copies of
an accumulator are merged in order; each column takes its rows in order, whatever the tile.

Several vectors at a time, so that the latency of one addition does not set the pace; four rows at a
time leave a column's accumulator in its register for four additions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.emit.reductions import Accumulator
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.ir.loops import Reduce, Scan
from flambeau_inductor.ir.operands import operands

# vectors of columns side by side: a row of 64 is a run of 4 KiB
TILES = (64, 32, 16, 8, 4, 2)
# as many pieces are to be left, or two for each processor where that is less
COLUMN_PIECES = 16
# bytes of accumulators and row values of a tile of columns
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
def each_column(values: KernelVariables, tile: int) -> Iterator[None]:
    """A loop over the vectors of a tile."""
    plan, text = values.plan, values.text
    if tile <= MOST_UNROLLED and len(plan.loop.body) <= SHORT_BODY:
        text(f"#pragma GCC unroll {tile}")
    with text.block(f"for (int u = 0; u < {tile}; ++u)"):
        text(f"const long {plan.vector} = t + u * {plan.width};")
        yield


def emit_vector_loop(
    values: KernelVariables,
    var: str,
    limits: tuple[str, str],
    growing: Sequence[tuple[Accumulator, str]],
    copies: int,
    body: Callable[[], None],
) -> None:
    """The loop over axis `var`, with `copies` of each accumulator. `body` has `n`, the lanes in
    use, and the accumulators under their names."""
    (low, high), plan, text = limits, values.plan, values.text
    width, size, exact = plan.width, plan.sizes[var], plan.exact(var)
    if exact is not None and exact < width:
        with text.block(f"for (long {var} = {low}; {var} < {high}; {var} += {width})"):
            text(f"const long n = {high} - {var};")
            body()
        return
    for accumulator, name in growing:
        for copy in range(1, copies):
            for line in accumulator.declare(f"{name}_{copy}"):
                text(line)
    references = [
        f"{a.type_of(lane)}& {name}{suffix}" for a, name in growing for suffix, lane in a.fields
    ]
    head = ", ".join([f"const long {var}", "auto n", *references])
    with text.block(f"auto step = [=]({head}) __attribute__((always_inline))", "};"):
        body()

    def call(offset: int, lanes: str, copy: int) -> str:
        own = [
            f"{name}{f'_{copy}' if copy else ''}{suffix}"
            for a, name in growing
            for suffix, _ in a.fields
        ]
        return f"step({', '.join([f'{var} + {offset}' if offset else var, lanes, *own])});"

    full = f"width<{width}>{{}}"
    text(f"long {var} = {low};")
    if copies > 1:
        reach = copies * width
        with text.block(f"for (; {var} + {reach} <= {high}; {var} += {reach})"):
            for copy in range(copies):
                text(call(copy * width, full, copy))
    # a piece may end anywhere, but only the last one ends inside a vector
    if copies == 1 or (size // width) % copies or not (low + high).isdigit():
        text(f"for (; {var} + {width} <= {high}; {var} += {width}) {call(0, full, 0)}")
    if exact is None or exact % width:
        rest = f"(long)({high} - {var})" if exact is None else f"width<{exact % width}>{{}}"
        text(f"if ({var} < {high}) {call(0, rest, 0)}")
    for accumulator, name in growing:
        for copy in range(1, copies):
            other = tuple(f"{name}_{copy}{suffix}" for suffix, _ in accumulator.fields)
            text(accumulator.merge(name, other))
