"""Loops of row and column reduction fusion.

In: two loops over the same elements. Out: a loop in parts, each of which goes through some rows and
adds up their columns, and a small loop that adds up the parts; None where one of the two would read
another element than the one at hand. Invariant: what both compute is computed once, and what one
stores and the other reads is not read from memory.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

import torch

from flambeau_inductor.indexing import Expr, Ranges, Var, simplify
from flambeau_inductor.ir.loops import (
    Axis,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Reduce,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import operands, pruned, renumbered
from flambeau_inductor.ir.registers import live
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.gpu.split_reduction import LayoutOf, NewBuffer, rows_of_parts

PART, ROW, COLUMN = "x0", "x1", "r0"


@dataclass(frozen=True, slots=True)
class Pair:
    """A loop over rows, sums down columns, and where in the program the two are."""

    along: int
    down: int
    rows: int
    columns: int
    held: bool = True
    """Whether a program holds whole rows."""


@dataclass
class Joining:
    """The making of one loop of two."""

    loop: Loop
    sums: Loop
    pair: Pair
    layout_of: LayoutOf
    limits: Limits
    new_buffer: NewBuffer
    body: list[Instr] = field(default_factory=list)
    known: dict[object, ValueId] = field(default_factory=dict)
    stored: dict[tuple[str, str], ValueId] = field(default_factory=dict)
    totals: dict[ValueId, ValueId] = field(default_factory=dict)

    def loops(self, inside: Container[str]) -> tuple[Loop, Loop] | None:
        """The loop, and the one that adds up its parts; what is `inside` nobody else reads."""
        whole = self._whole(False, inside)
        if whole is not None and live(whole) <= self.limits.light_registers[0]:
            whole = self._whole(True, inside)
        if whole is None:
            return None
        parts, partials = whole.x[0].size, dict[tuple[ValueId, int], str]()
        assert isinstance(parts, int)
        body = list(whole.body)
        for k, instr in enumerate(body):
            if isinstance(instr, Store) and instr.mode == "total":
                name = self.new_buffer((parts, self.pair.columns), torch.float32)
                partials[int(instr.buffer), 0] = name
                body[k] = replace(instr, buffer=name)
        rest = rows_of_parts(self.sums, parts, partials, self.limits, self.new_buffer)
        return replace(whole, body=tuple(body)), rest

    def holds_rows(self) -> bool:
        """Whether a program has registers for rows of twice `most_across`."""
        whole = self._whole(False, ())
        within = self.pair.columns <= 2 * self.limits.most_across
        return within and whole is not None and live(whole) <= self.limits.light_registers[1]

    def _whole(self, light: bool, inside: Container[str]) -> Loop | None:
        """What both loops do, with a total for each sum; None where little is shared."""
        parts = parts_of(self.pair, self._wide(), light, self.limits)
        if parts is None:
            return None
        self.body, self.known, self.stored, self.totals = [], {}, {}, {}
        self.own = -(-self.pair.rows // parts)
        parts = -(-self.pair.rows // self.own)
        self.ranges: Ranges = {
            PART: (0, parts - 1),
            ROW: (0, self.own - 1),
            COLUMN: (0, self.pair.columns - 1),
        }
        row, column = Var(PART) * self.own + Var(ROW), Var(COLUMN)
        along = {self.loop.x[0].var: row, self.loop.r[0].var: column}
        down = {self.sums.x[0].var: column, self.sums.r[0].var: row}
        if self.pair.along < self.pair.down:
            first, second = self._take(self.loop, along), self._take(self.sums, down)
        else:
            first, second = self._take(self.sums, down), self._take(self.loop, along)
        if first is None or second is None:
            return None
        shared = self._bytes(first & second)
        if shared < max(self.limits.across_bytes, self._bytes(second - first)):
            return None
        body = [
            Const(0, torch.int64) if isinstance(i, Store) and i.buffer in inside else i
            for i in self.body
        ]
        index = Var(PART) * self.pair.columns + Var(COLUMN)
        body += [Store(str(k), index, value, "total") for k, value in self.totals.items()]
        x, r = (Axis(PART, parts), Axis(ROW, self.own)), (Axis(COLUMN, self.pair.columns),)
        origins = tuple(dict.fromkeys((*self.loop.origins, *self.sums.origins)))
        points = None if parts * self.own == self.pair.rows else self.pair.rows
        return Loop(self.loop.name, x, r, pruned(body), origins, points)

    def _take(self, loop: Loop, mapping: Mapping[str, Expr]) -> set[str] | None:
        """Append a loop; the buffers traversed, None if other elements are needed."""
        down = loop is self.sums
        written = {name for name, _ in self.stored} | (
            {*rows_stored(self.sums)} if not down else set()
        )
        walked: set[str] = set()
        new: dict[ValueId, ValueId] = {}
        for position, instr in enumerate(loop.body):
            if down and isinstance(instr, Reduce):
                self.totals[position] = new[instr.arg]
                continue
            if any(v not in new for v in operands(instr)):
                continue  # that is done with the sums
            if down and isinstance(instr, Store) and instr.buffer in rows_stored(loop):
                continue
            moved = self._moved(instr, mapping, new)
            if isinstance(moved, Load | Store) and {ROW, COLUMN} <= moved.index.vars:
                walked.add(moved.buffer)
            if isinstance(moved, Load):
                value = self.stored.get((moved.buffer, moved.index.key))
                if value is not None and moved.mask is None:
                    new[position] = value
                    continue
                if moved.buffer in written:
                    return None
            new[position] = self._put(moved)
            if isinstance(moved, Store):
                self.stored[moved.buffer, moved.index.key] = moved.value
        return walked

    def _wide(self) -> bool:
        loads = [i for loop in (self.loop, self.sums) for i in loop.body if isinstance(i, Load)]
        return any(i.dtype.itemsize > 2 for i in loads if len(i.index.vars) > 1)

    def _bytes(self, names: set[str]) -> int:
        points = self.pair.rows * self.pair.columns
        return sum(points * self.layout_of(name).dtype.itemsize for name in names)

    def _moved(
        self, instr: Instr, mapping: Mapping[str, Expr], new: Mapping[ValueId, ValueId]
    ) -> Instr:
        moved = renumbered(instr, new)
        if isinstance(moved, Load | Store | IndexValue):
            index = simplify(moved.index.substitute(mapping), self.ranges)
            return replace(moved, index=index)
        return moved

    def _put(self, instr: Instr) -> ValueId:
        if isinstance(instr, Store):
            self.body.append(instr)
            return len(self.body) - 1
        key = _key(instr)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = len(self.body)
            self.body.append(instr)
        return found


def rows_stored(sums: Loop) -> set[str]:
    """The buffers that hold what is made of the sums."""
    row = sums.r[0].var
    return {i.buffer for i in sums.body if isinstance(i, Store) and row not in i.index.vars}


def _key(instr: Instr) -> object:
    """What equal instructions share: 0.0 and -0.0 are equal, but not the same."""
    if isinstance(instr, Const):
        return repr(instr.value), instr.dtype
    return (instr, repr(instr.other)) if isinstance(instr, Load) else instr


def parts_of(pair: Pair, wide: bool, light: bool, limits: Limits) -> int | None:
    """As many shares of the rows as a GPU runs programs at once; None for fewer rows than half.

    Of `row_columns` a program has a row in work at a time, and more of them run at once the
    shorter it is, three for two where the registers leave room for them (`light`). Of others, a
    program takes a multiprocessor for itself, or half of one where elements are `wide`, and blocks
    of them smaller. Rows longer than a program holds are shared out too, over programs of
    `across_columns` each. Those that take several rows at a time have equal shares if they may.
    """
    columns, programs, small = pair.columns, limits.split_programs, limits.row_columns
    padded = 1 << max(0, columns - 1).bit_length()
    most = programs if wide and padded < min(small) else programs // 2
    if padded in small:
        most = programs * min(8, max(small) // padded)
        if light and (not wide or padded == max(small)):
            most = most * 3 // 2
    if not pair.held:
        most = programs // -(-columns // limits.across_columns)
    most = max(2, most)
    if pair.rows < max(2, most // 2):
        return None
    several = padded < min(small) or not pair.held
    least = most - most // limits.uneven_shares
    even = (n for n in range(most, least - 1, -1) if pair.rows % n == 0)
    return next(even, most) if several else most
