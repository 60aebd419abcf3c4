"""One pass over the reduction axes: element values, reductions, element stores.

In: the plan and the number of the pass. Out: the loops, printed where the point of x is fixed.
Invariant: sums of floats longer than a few thousand terms are formed in blocks, so their error
grows with the logarithm of the length rather than with the length; a pass that is split between
threads is split in the same places whatever the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod

import torch

from flambeau_inductor.codegen.cpp.columns import by_rows, each_column, refer_saved, rows_at_once
from flambeau_inductor.codegen.cpp.dtypes import literal
from flambeau_inductor.codegen.cpp.errors import CppUnsupported
from flambeau_inductor.codegen.cpp.plan import Plan, cost
from flambeau_inductor.codegen.cpp.reductions import accumulator_of
from flambeau_inductor.codegen.cpp.text import Text
from flambeau_inductor.codegen.cpp.traffic import fetched_ahead, fetched_down
from flambeau_inductor.codegen.cpp.values import Values
from flambeau_inductor.indexing import Expr
from flambeau_inductor.ir.loops import Part, Reduce, Scan, Store, ValueId
from flambeau_inductor.ir.operands import operands

# the operation of a scan, and what it starts with
SCANS = {"sum": ("add", 0), "prod": ("mul", 1), "logsumexp": ("log_add_exp", -math.inf)}
# steps of the innermost loop that go into one partial sum
BLOCK_STEPS = 64
# a nest shorter than this is summed directly
DIRECT_STEPS = 128
# pieces that a split row is cut into
CHUNKS = 64


def emit_pass(plan: Plan, text: Text, values: Values, number: int, team: int) -> None:
    """Print pass `number`; `team` > 0 splits it between that many threads at most."""
    _Pass(plan, text, values, number).emit(team)


def emit_tile(plan: Plan, text: Text, values: Values, tile: int) -> None:
    """All passes for `tile` vectors of columns from `t` on, with the row values between them, which
    are kept in arrays of `tile` vectors."""
    text(f"const width<{plan.width}> n{{}};")
    saved: list[str] = []
    before: _Pass | None = None
    for level in range(max(plan.level, default=0) + 1):
        saved += _emit_columns(plan, text, values, level, before, saved, tile)
        before = _Pass(plan, text, values, level)
        before.emit_tile(tile, saved)


def _emit_columns(
    plan: Plan,
    text: Text,
    values: Values,
    level: int,
    before: _Pass | None,
    saved: Sequence[str],
    tile: int,
) -> list[str]:
    """Row values of a level, from those that are saved and the pass before; names of the arrays."""
    made: list[tuple[str, str]] = []
    inside = Text()
    outer, values.text = values.text, inside
    if before is not None:
        made += before.name_results(inside)
    for position, instr in enumerate(plan.loop.body):
        if plan.is_element(position) or plan.level[position] != level:
            continue
        if isinstance(instr, Store):
            values.store(position)
        elif not isinstance(instr, Reduce | Part) and plan.is_vector(position):
            values.compute(position)
            made.append((f"v{position}", values.type_of(instr.dtype, True)))
    values.text = outer
    if not inside.lines:
        return []
    for name, kind in made:
        text(f"{kind} {name}s[{tile}];")
    with each_column(plan, text, tile):
        refer_saved(text, saved)
        for line in inside.lines:
            text(line)
        for name, _ in made:
            text(f"{name}s[u] = {name};")
    return [name for name, _ in made]


class _Pass:
    def __init__(self, plan: Plan, text: Text, values: Values, number: int) -> None:
        self.plan, self.text, self.values, self.number = plan, text, values, number
        self.reduces: list[tuple[ValueId, Reduce]] = []
        self.stores: list[ValueId] = []
        for position, instr in enumerate(plan.loop.body):
            if isinstance(instr, Reduce) and plan.level[instr.arg] == number:
                self.reduces.append((position, instr))
            elif isinstance(instr, Store) and plan.level[position] == number:
                if plan.is_element(position):
                    self.stores.append(position)
        self.accumulators = {
            position: accumulator_of(
                instr, f"a{position}", values.dtype(instr.arg), plan.width, self._length()
            )
            for position, instr in self.reduces
        }
        self.tile = 0
        self.saved: Sequence[str] = ()
        self.recalled: set[ValueId] = set()
        self.kept: set[ValueId] = set()
        self.needed = self._needed()
        self.ahead = fetched_ahead(plan, values.dtype_of)
        self.down = fetched_down(plan, values.dtype_of)

    def _length(self) -> int | Expr:
        return self.plan.length

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
        """The pass, then the row values that its reductions give."""
        if not self.reduces and not self.stores:
            return
        if any(isinstance(self.plan.loop.body[v], Part | Store | Reduce) for v in self.needed):
            raise CppUnsupported("a reduction's result depends on a reduction axis")
        for value, scan in self._running():
            kind = self.values.type_of(scan.dtype, self.plan.is_vector(value))
            start = literal(*_start(scan))
            spread = f"splat{self.plan.width}({start})" if self.plan.is_vector(value) else start
            self.text(f"{kind} c{value} = {spread};")
        split = self._split() if team else None
        if split is None:
            self._declare("a")
            self._loops(0, {})
        else:
            self._split_loops(team, *split)
        for position, accumulator in self.accumulators.items():
            across = accumulator.width > 1 and not self.plan.is_vector(position)
            lines = accumulator.across if across else accumulator.named
            for line in lines(f"v{position}"):
                self.text(line)
        self.values.kept |= self.kept

    def emit_tile(self, tile: int, saved: Sequence[str]) -> None:
        """The pass for `tile` vectors, for which the row values `saved` are in arrays."""
        self.tile, self.saved = tile, saved
        if not self.reduces and not self.stores:
            return
        for value, scan in self._running():
            kind, start = self.values.type_of(scan.dtype, True), literal(*_start(scan))
            self.text(f"{kind} c{value}s[{tile}];")
            spread = f"splat{self.plan.width}({start})"
            self.text(f"for (int u = 0; u < {tile}; ++u) c{value}s[u] = {spread};")
        self._declare("a")
        self._loops(0, {})

    def name_results(self, text: Text) -> list[tuple[str, str]]:
        """Inside `each_column`: what the reductions of this pass give, with its types."""
        found: list[tuple[str, str]] = []
        self._refer("a", text)
        for position, accumulator in self.accumulators.items():
            for line in accumulator.named(f"v{position}"):
                text(line)
            found += accumulator.results(f"v{position}")
        return found

    @contextmanager
    def _each_column(self) -> Iterator[None]:
        with each_column(self.plan, self.text, self.tile):
            yield

    def _refer(self, prefix: str, text: Text | None = None) -> None:
        """Inside `_each_column`: the accumulators of this column under their usual names."""
        for position, accumulator in self.accumulators.items():
            if prefix == "a" or accumulator.cascades:
                for suffix, lane in accumulator.fields:
                    name = f"{prefix}{position}{suffix}"
                    (text or self.text)(f"{accumulator.type_of(lane)}& {name} = {name}s[u];")

    def _declare(self, prefix: str) -> None:
        if self.tile:
            for position, accumulator in self.accumulators.items():
                if prefix == "a" or accumulator.cascades:
                    for (suffix, lane), start in zip(accumulator.fields, accumulator.identity()):
                        name = f"{prefix}{position}{suffix}s"
                        self.text(f"{accumulator.type_of(lane)} {name}[{self.tile}];")
                        self.text(
                            f"for (int u = 0; u < {self.tile}; ++u) "
                            f"{name}[u] = {accumulator.spread(start, lane)};"
                        )
            return
        for position, accumulator in self.accumulators.items():
            if prefix == "a" or accumulator.cascades:
                for line in accumulator.declare(f"{prefix}{position}"):
                    self.text(line)

    # -- split between threads ----------------------------------------------------------------

    def _split(self) -> tuple[str, str, int] | None:
        """The axis to cut, the length of a piece, a multiple of the width, and their number; the
        last pieces of an open axis may be empty."""
        var = max((a.var for a in self.plan.loop.r), key=lambda v: self.plan.sizes[v])
        size = self.plan.sizes[var]
        unit = self.plan.width if var == self.plan.vector else 1
        length = -(-size // CHUNKS)
        length = -(-length // unit) * unit
        if length >= size:
            return None
        if self.plan.exact(var) is not None:
            return var, str(length), -(-size // length)
        whole = self.plan.bound(var)
        return (
            var,
            f"((({whole} + {CHUNKS - 1}) / {CHUNKS} + {unit - 1}) / {unit} * {unit})",
            CHUNKS,
        )

    def _split_loops(self, team: int, var: str, length: str, pieces: int) -> None:
        size = self.plan.bound(var)
        for position, accumulator in self.accumulators.items():
            for suffix, lane in accumulator.fields:
                self.text(f"{accumulator.type_of(lane)} q{position}{suffix}[{pieces}];")
        self.text(f"#pragma omp parallel for num_threads(team({team})) schedule(static)")
        with self.text.block(f"for (long c = 0; c < {pieces}; ++c)"):
            self.text(f"const long lo = c * {length};")
            self.text(f"const long hi = lo + {length} < {size} ? lo + {length} : {size};")
            self._declare("a")
            self._loops(0, {var: ("lo", "hi")})
            for position, accumulator in self.accumulators.items():
                for suffix, _ in accumulator.fields:
                    self.text(f"q{position}{suffix}[c] = a{position}{suffix};")
            if self.values.streamed:
                self.text("fence();")
        self._declare("a")
        if self.accumulators:
            with self.text.block(f"for (long c = 0; c < {pieces}; ++c)"):
                for position, accumulator in self.accumulators.items():
                    other = tuple(f"q{position}{suffix}[c]" for suffix, _ in accumulator.fields)
                    self.text(accumulator.merge(f"a{position}", other))

    # -- loops over r -------------------------------------------------------------------------

    def _steps(self, var: str) -> int:
        size = self.plan.sizes[var]
        steps = -(-size // self.plan.width) if var == self.plan.vector else size
        # an open axis may be long in another call
        return steps if self.plan.exact(var) is not None else max(steps, 2 * DIRECT_STEPS)

    def _cascade_depth(self) -> int | None:
        """Depth of the loop whose sum is a partial one; the number of loops: cut the innermost."""
        r = self.plan.loop.r
        if not any(a.cascades for a in self.accumulators.values()):
            return None
        steps = [self._steps(a.var) for a in r]
        if prod(steps) <= DIRECT_STEPS:
            return None
        if steps[-1] > BLOCK_STEPS:
            return len(r)
        together = 1
        for depth in range(len(r) - 1, 0, -1):
            together *= steps[depth]
            if together * 2 >= BLOCK_STEPS:
                return depth
        return None

    def _loops(self, depth: int, limits: dict[str, tuple[str, str]]) -> None:
        r = self.plan.loop.r
        cascade = self._cascade_depth()
        if depth == len(r) and self.tile:
            with self._column(cascade):
                self._row()
            return
        if depth == len(r):
            self._innermost(cascade is not None)
            return
        var = r[depth].var
        low, high = limits.get(var, ("0", self.plan.bound(var)))
        if cascade == depth:
            self._declare("b")
        step = self.plan.width if var == self.plan.vector else 1
        if cascade == len(r) and depth == len(r) - 1:
            length = BLOCK_STEPS * step
            with self.text.block(f"for (long o = {low}; o < {high}; o += {length})"):
                self._declare("b")
                self.text(f"const long e = o + {length} < {high} ? o + {length} : {high};")
                self._loop(depth, "o", "e", limits)
                self._flush()
        else:
            self._loop(depth, low, high, limits)
        if cascade == depth:
            self._flush()

    @contextmanager
    def _column(self, cascade: int | None) -> Iterator[None]:
        """A loop over the columns of a tile, with what is held for each of them."""
        with self._each_column():
            refer_saved(self.text, self.saved)
            for value, scan in self._running():
                kind = self.values.type_of(scan.dtype, True)
                self.text(f"{kind}& c{value} = c{value}s[u];")
            self._refer("a")
            if cascade is not None:
                self._refer("b")
            yield

    def _row(self) -> None:
        """What is done for a row of a column."""
        if self.down is not None:
            self.values.fetch(self.down)
        for level in range(len(self.plan.loop.r)):
            self._values_at(level)
        self._innermost(self._cascade_depth() is not None)

    def _flush(self) -> None:
        if self.tile:
            with self._each_column():
                self._refer("a")
                self._refer("b")
                self._merge_partial()
            return
        self._merge_partial()

    def _merge_partial(self) -> None:
        for position, accumulator in self.accumulators.items():
            if accumulator.cascades:
                self.text(accumulator.merge(f"a{position}", (f"b{position}",)))

    def _loop(self, depth: int, low: str, high: str, limits: dict[str, tuple[str, str]]) -> None:
        var = self.plan.loop.r[depth].var
        if var == self.plan.vector:
            with self.text.block(""):
                self._vector_loop(depth, low, high)
            return
        rows = rows_at_once(self.plan, self.tile)
        if depth == len(self.plan.loop.r) - 1 and rows > 1:
            cascade = self._cascade_depth()
            with self.text.block(""):
                column = partial(self._column, cascade)
                by_rows(self.text, var, (low, high), rows, column, self._row)
            return
        with self.text.block(f"for (long {var} = {low}; {var} < {high}; ++{var})"):
            if not self.tile:
                self._values_at(depth)
            self._loops(depth + 1, limits)

    def _vector_loop(self, depth: int, low: str, high: str) -> None:
        """The innermost loop in vectors: several at a time where the body is short, so that the
        latency of one accumulator does not set the pace, then one at a time, then the rest."""
        var, width = self.plan.loop.r[depth].var, self.plan.width
        size, exact = self.plan.sizes[var], self.plan.exact(var)
        cascades = self._cascade_depth() is not None
        growing = [
            (a, f"{'b' if cascades and a.cascades else 'a'}{p}")
            for p, a in self.accumulators.items()
        ]
        if exact is not None and exact < width:
            with self.text.block(f"for (long {var} = {low}; {var} < {high}; {var} += {width})"):
                self.text(f"const long n = {high} - {var};")
                self._body(depth, cascades)
            return
        copies = self._copies(size)
        for accumulator, name in growing:
            for copy in range(1, copies):
                for line in accumulator.declare(f"{name}_{copy}"):
                    self.text(line)
        references = [
            f"{a.type_of(lane)}& {name}{suffix}" for a, name in growing for suffix, lane in a.fields
        ]
        head = ", ".join([f"const long {var}", "auto n", *references])
        with self.text.block(f"auto step = [=]({head}) __attribute__((always_inline))", "};"):
            self._body(depth, cascades)

        def call(offset: int, lanes: str, copy: int) -> str:
            own = [
                f"{name}{f'_{copy}' if copy else ''}{suffix}"
                for a, name in growing
                for suffix, _ in a.fields
            ]
            return f"step({', '.join([f'{var} + {offset}' if offset else var, lanes, *own])});"

        full = f"width<{width}>{{}}"
        self.text(f"long {var} = {low};")
        if copies > 1:
            reach = copies * width
            with self.text.block(f"for (; {var} + {reach} <= {high}; {var} += {reach})"):
                for copy in range(copies):
                    self.text(call(copy * width, full, copy))
        # a piece may end anywhere, but only the last one ends inside a vector
        if copies == 1 or (size // width) % copies or limits_vary(low, high):
            self.text(f"for (; {var} + {width} <= {high}; {var} += {width}) {call(0, full, 0)}")
        if exact is None or exact % width:
            self.text(f"if ({var} < {high}) {call(0, f'(long)({high} - {var})', 0)}")
        for accumulator, name in growing:
            for copy in range(1, copies):
                other = tuple(f"{name}_{copy}{suffix}" for suffix, _ in accumulator.fields)
                self.text(accumulator.merge(name, other))

    def _copies(self, size: int) -> int:
        """How many accumulators to keep: enough to hide the latency of an addition."""
        if not self.accumulators or size < 8 * self.plan.width:
            return 1
        if self.plan.form.accumulators is not None:
            return self.plan.form.accumulators
        price = sum(cost(self.plan.loop.body[v]) for v in self.needed - self.recalled)
        return 4 if price <= 8 else 2 if price <= 32 else 1

    def _body(self, depth: int, cascades: bool) -> None:
        if self.ahead is not None and self.ahead.level == self.number:
            self.values.fetch(self.ahead)
        self._values_at(depth)
        self._innermost(cascades)

    def _values_at(self, depth: int) -> None:
        order = {a.var: d for d, a in enumerate(self.plan.loop.r)}
        for value in sorted(self.needed):
            own = max(order[v] for v in self.plan.deps[value] if v in order)
            if value in self.recalled or value in self.kept:
                own = len(order) - 1
            if own != depth:
                continue
            if value in self.recalled:
                self.values.recall(value)
            elif isinstance(instr := self.plan.loop.body[value], Scan):
                self._advance(value, instr)
            else:
                self.values.compute(value)
                if value in self.kept:
                    self.values.keep(value)

    def _running(self) -> list[tuple[ValueId, Scan]]:
        """The scans of this pass."""
        body = self.plan.loop.body
        return [(v, i) for v in sorted(self.needed) if isinstance(i := body[v], Scan)]

    def _advance(self, value: ValueId, scan: Scan) -> None:
        """Take one more element into a running value."""
        vector = self.plan.is_vector(value)
        text = f"{SCANS[scan.kind][0]}(c{value}, {self.values.operand(scan.arg, vector)})"
        self.text(f"c{value} = {text};")
        self.text(f"const auto v{value} = c{value};")

    def _innermost(self, cascades: bool) -> None:
        for position, instr in self.reduces:
            accumulator = self.accumulators[position]
            vector = accumulator.width > 1
            name = f"{'b' if cascades and accumulator.cascades else 'a'}{position}"
            value = self.values.operand(instr.arg, vector)
            at = self.values.row_position(vector)
            if vector:
                value = accumulator.padded(value)
                if accumulator.kind.startswith("arg"):
                    at = f"keep({at}, (i32)0x7fffffff, n)"
            for line in accumulator.update(name, value, at):
                self.text(line)
        for position in self.stores:
            self.values.store(position)


def _start(scan: Scan) -> tuple[float, torch.dtype]:
    return SCANS[scan.kind][1], scan.dtype


def limits_vary(low: str, high: str) -> bool:
    """Whether the bounds of a loop are not both known when it is printed."""
    return not (low.isdigit() and high.isdigit())
