"""Emission of one pass over the reduction axes.

In: the plan and the number of the pass. Out: the loops, printed where the point of x is fixed.
Invariant: sums of floats longer than a few thousand terms are formed in blocks; a pass that is
split between threads is split in the same places whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from flambeau_inductor.codegen.cpp.analysis.instructions import cost
from flambeau_inductor.codegen.cpp.analysis.pairwise_sum import BLOCK_STEPS, cascade_depth
from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.analysis.streaming import fetched_ahead, fetched_down
from flambeau_inductor.codegen.cpp.emit import row_buffers, scans
from flambeau_inductor.codegen.cpp.emit.accumulators import PARTIAL, TOTAL, Accumulators
from flambeau_inductor.codegen.cpp.emit.compute import compute
from flambeau_inductor.codegen.cpp.emit.loads import fetch
from flambeau_inductor.codegen.cpp.emit.split_rows import Limits, cut, emit_pieces
from flambeau_inductor.codegen.cpp.emit.stores import store
from flambeau_inductor.codegen.cpp.emit.unrolled_columns import (
    by_rows,
    each_column,
    refer_saved,
    rows_at_once,
)
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.emit.vector_loop import copies_of, emit_vector_loop
from flambeau_inductor.codegen.cpp.errors import CppUnsupported
from flambeau_inductor.codegen.cpp.text import SourceLines
from flambeau_inductor.ir.loops import Reduce, ReducePart, Scan, Store, ValueId
from flambeau_inductor.ir.operands import operands


class Pass:
    """Pass `number` of a kernel: for a point of x, or for a tile of columns."""

    def __init__(
        self, plan: LoopPlan, text: SourceLines, values: KernelVariables, number: int
    ) -> None:
        self.plan, self.text, self.values, self.number = plan, text, values, number
        self.reduces: list[tuple[ValueId, Reduce]] = []
        self.stores: list[ValueId] = []
        for position, instr in enumerate(plan.loop.body):
            if isinstance(instr, Reduce) and plan.level[instr.arg] == number:
                self.reduces.append((position, instr))
            elif isinstance(instr, Store) and plan.level[position] == number:
                if plan.is_element(position):
                    self.stores.append(position)
        self.accumulators = Accumulators(plan, text, values, self.reduces)
        self.cascade = cascade_depth(plan) if self.accumulators.cascade else None
        self.tile = 0
        self.saved: Sequence[str] = ()
        self.recalled: set[ValueId] = set()
        self.kept: set[ValueId] = set()
        self.needed = self._needed()
        self.running = scans.scans_among(plan, self.needed)
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
            scans.begin(self.text, self.values, value, scan)
        pieces = cut(self.plan) if team else None
        if pieces is None:
            self.accumulators.declare(TOTAL)
            self._loops(0, {})
        else:
            streams, loops = bool(self.values.streamed), partial(self._loops, 0)
            emit_pieces(self.plan, self.text, self.accumulators, pieces, team, streams, loops)
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
            scans.begin_tile(self.text, self.values, value, scan, tile)
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
                body = partial(self._body, depth)
                emit_vector_loop(
                    self.plan, self.text, var, (low, high), growing, self._copies(var), body
                )
            return
        rows = rows_at_once(self.plan, self.tile)
        if depth == len(self.plan.loop.r) - 1 and rows > 1:
            with self.text.block(""):
                by_rows(self.text, var, (low, high), rows, self._column, self._row)
            return
        with self.text.block(f"for (long {var} = {low}; {var} < {high}; ++{var})"):
            if not self.tile:
                self._values_at(depth)
            self._loops(depth + 1, limits)

    def _copies(self, var: str) -> int:
        """How many accumulators to keep in the loop over the lanes' axis."""
        if not self.accumulators:
            return 1
        price = sum(cost(self.plan.loop.body[v]) for v in self.needed - self.recalled)
        return copies_of(self.plan, self.plan.sizes[var], price)

    @contextmanager
    def _column(self) -> Iterator[None]:
        """A loop over the columns of a tile, with what is held for each of them."""
        with each_column(self.plan, self.text, self.tile):
            refer_saved(self.text, self.saved)
            for value, scan in self.running:
                scans.refer(self.text, self.values, value, scan)
            self.accumulators.refer(TOTAL)
            if self.cascade is not None:
                self.accumulators.refer(PARTIAL)
            yield

    def _flush(self) -> None:
        """Take the partial sums into the totals, for each column of a tile."""
        if not self.tile:
            self.accumulators.merge_partial()
            return
        with each_column(self.plan, self.text, self.tile):
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
                row_buffers.recall(self.values, value)
            elif isinstance(instr := self.plan.loop.body[value], Scan):
                scans.advance(self.text, self.values, value, instr)
            else:
                compute(self.values, value)
                if value in self.kept:
                    row_buffers.keep(self.values, value)

    def _innermost(self) -> None:
        """Take the elements into the accumulators, and store those that are asked for."""
        for position, instr in self.reduces:
            accumulator = self.accumulators.by_position[position]
            vector = accumulator.width > 1
            name = self.accumulators.name(position, self.cascade is not None)
            value = self.values.operand(instr.arg, vector)
            at = row_buffers.position(self.values, vector)
            if vector:
                value = accumulator.padded(value)
                if accumulator.kind.startswith("arg"):
                    at = f"keep({at}, (i32)0x7fffffff, n)"
            for line in accumulator.update(name, value, at):
                self.text(line)
        for position in self.stores:
            store(self.values, position)
