"""Passes over the reduction axes: reductions, scans, split rows, register tiles of columns.

In: the plan and the number of the pass. Out: its loops, printed where the point of x is fixed.
Invariant: a row that is split between threads is cut in the same places whatever their number, and
its pieces are merged in order; the elements of a scan are taken in their order.

Vectorised innermost loops: lanes along a row with their tail, or unrolled tiles of columns. In: the
plan, the bounds of a loop, what is done for a vector. Out: the loop. Invariant: copies of an
accumulator are merged in order; each column takes its rows in order, whatever the tile. Several
vectors at a time, so that the latency of one addition does not set the pace; four rows at a time
leave a column's accumulator in its register for four additions.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.analysis.streaming import fetched_ahead, fetched_down
from flambeau_inductor.codegen.cpp.analysis.vectorization import cost
from flambeau_inductor.codegen.cpp.dtypes import literal
from flambeau_inductor.codegen.cpp.emit.compute import compute
from flambeau_inductor.codegen.cpp.emit.memory import (
    fetch,
    keep_row,
    recall_row,
    row_position,
    store,
)
from flambeau_inductor.codegen.cpp.emit.reductions import (
    BLOCK_STEPS,
    PARTIAL,
    TOTAL,
    Accumulator,
    Accumulators,
    cascade_depth,
)
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables, SourceLines
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.ir.loops import Reduce, ReducePart, Scan, Store, ValueId
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


# the operation of a scan, and what it starts with
SCANS = {"sum": ("add", 0), "prod": ("mul", 1), "logsumexp": ("log_add_exp", -math.inf)}


def advance_scan(values: KernelVariables, value: ValueId, scan: Scan) -> None:
    """Take one more element into a running value."""
    taken = values.operand(scan.arg, values.plan.is_vector(value))
    values.text(f"c{value} = {SCANS[scan.kind][0]}(c{value}, {taken});")
    values.text(f"const auto v{value} = c{value};")


# pieces that a split row is cut into
CHUNKS = 64

Limits = dict[str, tuple[str, str]]
"""Where the loop over an axis begins and ends, as C++, where that is not its whole size."""


@dataclass(frozen=True, slots=True)
class RowSplit:
    """The axis to cut, the length of a piece, as C++, and how many there are."""

    var: str
    length: str
    pieces: int


def cut(plan: LoopPlan) -> RowSplit | None:
    """The longest axis in pieces, each a multiple of the width; the last ones of an open axis may
    be empty. None where it is too short."""
    var = max((a.var for a in plan.loop.r), key=lambda v: plan.sizes[v])
    size = plan.sizes[var]
    unit = plan.width if var == plan.vector else 1
    length = -(-size // CHUNKS)
    length = -(-length // unit) * unit
    if length >= size:
        return None
    if plan.exact(var) is not None:
        return RowSplit(var, str(length), -(-size // length))
    piece = f"({plan.bound(var)} + {CHUNKS - 1}) / {CHUNKS}"
    return RowSplit(var, f"(({piece} + {unit - 1}) / {unit} * {unit})", CHUNKS)


def emit_pieces(
    accumulators: Accumulators, cut: RowSplit, team: int, loops: Callable[[Limits], None]
) -> None:
    """`loops` for each piece, by `team` threads at most."""
    values, held = accumulators.values, accumulators.by_position
    text, size = values.text, values.plan.bound(cut.var)
    for position, accumulator in held.items():
        for suffix, lane in accumulator.fields:
            text(f"{accumulator.type_of(lane)} q{position}{suffix}[{cut.pieces}];")
    text(f"#pragma omp parallel for num_threads(team({team})) schedule(static)")
    with text.block(f"for (long c = 0; c < {cut.pieces}; ++c)"):
        text(f"const long lo = c * {cut.length};")
        text(f"const long hi = lo + {cut.length} < {size} ? lo + {cut.length} : {size};")
        accumulators.declare(TOTAL)
        loops({cut.var: ("lo", "hi")})
        for position, accumulator in held.items():
            for suffix, _ in accumulator.fields:
                text(f"q{position}{suffix}[c] = {TOTAL}{position}{suffix};")
        if values.streamed:
            text("fence();")
    accumulators.declare(TOTAL)
    if accumulators:
        with text.block(f"for (long c = 0; c < {cut.pieces}; ++c)"):
            for position, accumulator in held.items():
                other = tuple(f"q{position}{suffix}[c]" for suffix, _ in accumulator.fields)
                text(accumulator.merge(f"{TOTAL}{position}", other))


class ReductionPass:
    """Pass `number` of a kernel: for a point of x, or for a tile of columns."""

    def __init__(self, values: KernelVariables, number: int) -> None:
        plan = values.plan
        self.plan, self.text, self.values, self.number = plan, values.text, values, number
        self.reduces: list[tuple[ValueId, Reduce]] = []
        self.stores: list[ValueId] = []
        for position, instr in enumerate(plan.loop.body):
            if isinstance(instr, Reduce) and plan.level[instr.arg] == number:
                self.reduces.append((position, instr))
            elif isinstance(instr, Store) and plan.level[position] == number:
                if plan.is_element(position):
                    self.stores.append(position)
        self.accumulators = Accumulators(values, self.reduces)
        self.cascade = cascade_depth(plan) if self.accumulators.cascade else None
        self.tile = 0
        self.saved: Sequence[str] = ()
        self.recalled: set[ValueId] = set()
        self.kept: set[ValueId] = set()
        self.needed = self._needed()
        body = plan.loop.body
        self.running = [(v, i) for v in sorted(self.needed) if isinstance(i := body[v], Scan)]
        self.ahead = fetched_ahead(plan, values.dtype_of)
        self.down = fetched_down(plan, values.dtype_of)

    def _needed(self) -> set[ValueId]:
        """Element values of this pass; those kept by an earlier pass are recalled."""
        plan = self.plan
        wanted = {i.arg for _, i in self.reduces}
        for position in self.stores:
            wanted.update(operands(plan.loop.body[position]))
        needed: set[ValueId] = set()
        for position in range(len(plan.loop.body) - 1, -1, -1):
            if position not in wanted or not plan.is_element(position):
                continue
            needed.add(position)
            if position in plan.scratch and position in self.values.kept:
                self.recalled.add(position)
                continue
            if position in plan.scratch:
                self.kept.add(position)
            wanted.update(operands(plan.loop.body[position]))
        return needed

    def emit(self, team: int) -> None:
        """The pass, then the row values that its reductions give; `team` > 0 splits it between that
        many threads at most."""
        if not self.reduces and not self.stores:
            return
        if any(
            isinstance(self.plan.loop.body[v], ReducePart | Store | Reduce) for v in self.needed
        ):
            raise CppUnsupported("a reduction's result depends on a reduction axis")
        for value, scan in self.running:
            vector = self.plan.is_vector(value)
            start = literal(SCANS[scan.kind][1], scan.dtype)
            spread = f"splat{self.plan.width}({start})" if vector else start
            self.text(f"{self.values.type_of(scan.dtype, vector)} c{value} = {spread};")
        pieces = cut(self.plan) if team else None
        if pieces is None:
            self.accumulators.declare(TOTAL)
            self._loops(0, {})
        else:
            emit_pieces(self.accumulators, pieces, team, partial(self._loops, 0))
        for position, accumulator in self.accumulators.by_position.items():
            across = accumulator.width > 1 and not self.plan.is_vector(position)
            lines = accumulator.across if across else accumulator.named
            for line in lines(f"v{position}"):
                self.text(line)
        self.values.kept |= self.kept

    def emit_tile(self, tile: int, saved: Sequence[str]) -> None:
        """The pass for `tile` vectors, for which the row values `saved` are in arrays."""
        self.tile, self.saved = tile, saved
        self.accumulators.tile = tile
        if not self.reduces and not self.stores:
            return
        for value, scan in self.running:
            start = literal(SCANS[scan.kind][1], scan.dtype)
            self.text(f"{self.values.type_of(scan.dtype, True)} c{value}s[{tile}];")
            each = f"c{value}s[u] = splat{self.plan.width}({start});"
            self.text(f"for (int u = 0; u < {tile}; ++u) {each}")
        self.accumulators.declare(TOTAL)
        self._loops(0, {})

    # -- loops over r -------------------------------------------------------------------------

    def _loops(self, depth: int, limits: Limits) -> None:
        r = self.plan.loop.r
        if depth == len(r) and self.tile:
            with self._column():
                self._row()
            return
        if depth == len(r):
            self._innermost()
            return
        var = r[depth].var
        low, high = limits.get(var, ("0", self.plan.bound(var)))
        if self.cascade == depth:
            self.accumulators.declare(PARTIAL)
        step = self.plan.width if var == self.plan.vector else 1
        if self.cascade == len(r) and depth == len(r) - 1:
            length = BLOCK_STEPS * step
            with self.text.block(f"for (long o = {low}; o < {high}; o += {length})"):
                self.accumulators.declare(PARTIAL)
                self.text(f"const long e = o + {length} < {high} ? o + {length} : {high};")
                self._loop(depth, "o", "e", limits)
                self._flush()
        else:
            self._loop(depth, low, high, limits)
        if self.cascade == depth:
            self._flush()

    def _loop(self, depth: int, low: str, high: str, limits: Limits) -> None:
        var = self.plan.loop.r[depth].var
        if var == self.plan.vector:
            with self.text.block(""):
                growing = self.accumulators.growing(self.cascade is not None)
                copies = self._copies(var) if self.accumulators else 1
                body = partial(self._body, depth)
                emit_vector_loop(self.values, var, (low, high), growing, copies, body)
            return
        several = self.tile > MOST_UNROLLED and len(self.plan.loop.body) <= SHORT_BODY
        if depth == len(self.plan.loop.r) - 1 and several:
            with self.text.block(""):
                self._by_rows(var, low, high)
            return
        with self.text.block(f"for (long {var} = {low}; {var} < {high}; ++{var})"):
            if not self.tile:
                self._values_at(depth)
            self._loops(depth + 1, limits)

    def _by_rows(self, var: str, low: str, high: str) -> None:
        """The loop over rows, `ROWS` of them inside a loop over columns."""
        text = self.text
        text(f"long {var}_g = {low};")
        groups = f"for (; {var}_g + {ROWS} <= {high}; {var}_g += {ROWS})"
        with text.block(groups), self._column():
            text(f"#pragma GCC unroll {ROWS}")
            with text.block(f"for (long {var} = {var}_g; {var} < {var}_g + {ROWS}; ++{var})"):
                self._row()
        with text.block(f"for (long {var} = {var}_g; {var} < {high}; ++{var})"), self._column():
            self._row()

    def _copies(self, var: str) -> int:
        """How many accumulators to keep in the loop over the lanes' axis: enough to hide the
        latency of an addition, by what the values of a point cost."""
        if self.plan.sizes[var] < 8 * self.plan.width:
            return 1
        if self.plan.form.accumulators is not None:
            return self.plan.form.accumulators
        price = sum(cost(self.plan.loop.body[v]) for v in self.needed - self.recalled)
        return 4 if price <= 8 else 2 if price <= 32 else 1

    @contextmanager
    def _column(self) -> Iterator[None]:
        """A loop over the columns of a tile, with what is live for each of them."""
        with each_column(self.values, self.tile):
            for name in self.saved:
                self.text(f"const auto {name} = {name}s[u];")
            for value, scan in self.running:
                self.text(f"{self.values.type_of(scan.dtype, True)}& c{value} = c{value}s[u];")
            self.accumulators.refer(TOTAL)
            if self.cascade is not None:
                self.accumulators.refer(PARTIAL)
            yield

    def _flush(self) -> None:
        """Take the partial sums into the totals, for each column of a tile."""
        if not self.tile:
            self.accumulators.merge_partial()
            return
        with each_column(self.values, self.tile):
            self.accumulators.refer(TOTAL)
            self.accumulators.refer(PARTIAL)
            self.accumulators.merge_partial()

    # -- what is done for an element ----------------------------------------------------------

    def _row(self) -> None:
        """What is done for a row of a column."""
        if self.down is not None:
            fetch(self.values, self.down)
        for level in range(len(self.plan.loop.r)):
            self._values_at(level)
        self._innermost()

    def _body(self, depth: int) -> None:
        """What is done for a vector of elements."""
        if self.ahead is not None and self.ahead.level == self.number:
            fetch(self.values, self.ahead)
        self._values_at(depth)
        self._innermost()

    def _values_at(self, depth: int) -> None:
        """Element values that can be computed once the loops up to `depth` are open."""
        order = {a.var: d for d, a in enumerate(self.plan.loop.r)}
        for value in sorted(self.needed):
            own = max(order[v] for v in self.plan.deps[value] if v in order)
            if value in self.recalled or value in self.kept:
                own = len(order) - 1
            if own != depth:
                continue
            if value in self.recalled:
                recall_row(self.values, value)
            elif isinstance(instr := self.plan.loop.body[value], Scan):
                advance_scan(self.values, value, instr)
            else:
                compute(self.values, value)
                if value in self.kept:
                    keep_row(self.values, value)

    def _innermost(self) -> None:
        """Take the elements into the accumulators, and do the stores of the pass."""
        for position, instr in self.reduces:
            accumulator = self.accumulators.by_position[position]
            vector = accumulator.width > 1
            name = self.accumulators.name(position, self.cascade is not None)
            value = self.values.operand(instr.arg, vector)
            at = row_position(self.values, vector)
            if vector:
                value = accumulator.padded(value)
                if accumulator.kind.startswith("arg"):
                    at = f"keep({at}, (i32)0x7fffffff, n)"
            for line in accumulator.update(name, value, at):
                self.text(line)
        for position in self.stores:
            store(self.values, position)


def emit_tile(values: KernelVariables, tile: int) -> None:
    """All passes for `tile` vectors of columns from `t` on, with the row values between them."""
    plan, text = values.plan, values.text
    text(f"const width<{values.width}> n{{}};")
    saved: list[str] = []
    before: ReductionPass | None = None
    for level in range(max(plan.level, default=0) + 1):
        # row values of the level, from those that are saved and the pass before
        values.text = inside = SourceLines()
        made = [] if before is None else before.accumulators.name_results()
        for position, instr in enumerate(plan.loop.body):
            if plan.is_element(position) or plan.level[position] != level:
                continue
            if isinstance(instr, Store):
                store(values, position)
            elif not isinstance(instr, Reduce | ReducePart) and plan.is_vector(position):
                compute(values, position)
                made.append((f"v{position}", values.type_of(instr.dtype, True)))
        values.text = text
        if inside.lines:
            for name, kind in made:
                text(f"{kind} {name}s[{tile}];")
            with each_column(values, tile):
                for name in saved:
                    text(f"const auto {name} = {name}s[u];")
                for line in inside.lines:
                    text(line)
                for name, _ in made:
                    text(f"{name}s[u] = {name};")
            saved += [name for name, _ in made]
        before = ReductionPass(values, level)
        before.emit_tile(tile, saved)
