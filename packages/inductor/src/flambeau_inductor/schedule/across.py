"""A loop over rows and sums down the columns of the same rows, in one kernel.

In: the steps of a program that run on a GPU. Out: the same, where a loop that goes through rows and
one that sums down their columns have become a loop in parts: each part goes through some of the
rows, does for each what the first loop did, and adds up its columns; a small loop adds up the
parts. Invariant: what is joined reads the same elements and neither waits for the other's sums;
steps between the two see what they saw.

A norm's backward is such a pair: the gradient of its input goes along rows, those of its weight and
bias down columns, and all of them read the input and the gradient of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from flambeau_inductor.indexing import Expr, Ranges, Var, simplify
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Reduce,
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import operands, pruned, renumbered
from flambeau_inductor.ir.program import Layout, RunLoop
from flambeau_inductor.ir.steps import Compute, touched
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.split import NewBuffer, rows_of_parts

PART, ROW, COLUMN = "x0", "x1", "r0"
LayoutOf = Callable[[str], Layout]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A loop over rows, sums down columns, and where in the program the two are."""

    along: int
    down: int
    rows: int
    columns: int


def joined(
    steps: Sequence[Compute],
    layout_of: LayoutOf,
    limits: Limits,
    new_buffer: Callable[[torch.device], NewBuffer],
) -> list[Compute]:
    """The steps with such pairs made one."""
    found = list(steps)
    position = 0
    while position < len(found):
        made = next(_joinable(found, position, layout_of, limits, new_buffer), None)
        if made is None:
            position += 1
        else:
            found, position = made, 0
    return found


def _joinable(
    steps: list[Compute],
    down: int,
    layout_of: LayoutOf,
    limits: Limits,
    new_buffer: Callable[[torch.device], NewBuffer],
) -> Iterator[list[Compute]]:
    """The steps with the sums at `down` taken into another loop, for each that might do."""
    sums = _loop(steps[down])
    if sums is None or not _sums_columns(sums, layout_of, limits):
        return
    device = _device(sums, layout_of)
    for along, step in enumerate(steps):
        loop = _loop(step)
        if along == down or loop is None or _device(loop, layout_of) != device:
            continue
        pair = _pair(loop, sums, along, down, limits)
        place = None if pair is None else _place(steps, pair)
        if pair is None or place is None:
            continue
        both = _Joining(loop, sums, pair, layout_of, limits, new_buffer(device)).loops()
        if both is not None:
            kept: list[list[Compute]] = [[each] for each in steps]
            kept[along], kept[down] = [], []
            kept[place] = [RunLoop(each) for each in both]
            yield [each for some in kept for each in some]


def _loop(step: Compute) -> Loop | None:
    return step.loop if isinstance(step, RunLoop) else None


def _device(loop: Loop, layout_of: LayoutOf) -> torch.device | None:
    found = {layout_of(i.buffer).device for i in loop.body if isinstance(i, Store)}
    return found.pop() if len(found) == 1 else None


def _sizes(axes: Sequence[Axis]) -> tuple[int, ...] | None:
    sizes = tuple(axis.size for axis in axes if isinstance(axis.size, int))
    return sizes if len(sizes) == len(axes) else None


def _sums_columns(loop: Loop, layout_of: LayoutOf, limits: Limits) -> bool:
    """Whether a loop does nothing but sums in float32 down the columns of rows in memory."""
    device = _device(loop, layout_of)
    if device is None or device.type not in limits.split_on:
        return False
    x, r = _sizes(loop.x), _sizes(loop.r)
    if x is None or r is None or len(x) != 1 or len(r) != 1:
        return False
    column, row = loop.x[0].var, loop.r[0].var
    walks = False
    summed = False
    deep: list[bool] = []
    for instr in loop.body:
        below = any(deep[v] for v in operands(instr))
        if isinstance(instr, Reduce):
            if instr.kind != "sum" or instr.dtype != torch.float32 or below:
                return False
            below = summed = True
        elif isinstance(instr, Store):
            if instr.mode != "set" or row in instr.index.vars:
                return False
        elif isinstance(instr, Scan | Check):
            return False
        elif isinstance(instr, Load) and {column, row} <= instr.index.vars:
            walks = walks or instr.index.coefficient(column) == 1
        deep.append(below)
    return walks and summed


def _pair(loop: Loop, sums: Loop, along: int, down: int, limits: Limits) -> _Pair | None:
    """Whether a loop goes through the rows whose columns are summed."""
    (columns,), (rows,) = _sizes(sums.x) or (0,), _sizes(sums.r) or (0,)
    x, r = _sizes(loop.x), _sizes(loop.r)
    if (x, r) != ((rows,), (columns,)):
        return None
    if any(
        isinstance(i, Scan | Check) or (isinstance(i, Store) and (i.mode != "set" or i.scattered))
        for i in loop.body
    ):
        return None
    if not limits.least_across <= columns <= limits.most_across:
        return None
    return _Pair(along, down, rows, columns)


def _place(steps: Sequence[Compute], pair: _Pair) -> int | None:
    """Where the two may run as one; None where a step between them stands in the way."""
    first, last = sorted((pair.along, pair.down))
    early, late = touched(steps[first]), touched(steps[last])
    if pair.down == first and early[1] & late[0]:
        return None  # rows that wait for the sums
    reads, writes = set[str](), set[str]()
    for step in steps[first + 1 : last]:
        more = touched(step)
        reads |= more[0]
        writes |= more[1] | {r for r in getattr(step, "results", ()) if r is not None}
    if not writes & (late[0] | late[1]) and not reads & late[1]:
        return first
    if not (reads | writes) & early[1] and not writes & early[0]:
        return last
    return None


@dataclass
class _Joining:
    """The making of one loop of two."""

    loop: Loop
    sums: Loop
    pair: _Pair
    layout_of: LayoutOf
    limits: Limits
    new_buffer: NewBuffer
    body: list[Instr] = field(default_factory=list)
    known: dict[object, ValueId] = field(default_factory=dict)
    stored: dict[tuple[str, str], ValueId] = field(default_factory=dict)

    def loops(self) -> tuple[Loop, Loop] | None:
        parts = _parts(self.pair.rows, self.limits)
        if parts is None:
            return None
        self.own = self.pair.rows // parts
        self.ranges: Ranges = {
            PART: (0, parts - 1),
            ROW: (0, self.own - 1),
            COLUMN: (0, self.pair.columns - 1),
        }
        row = Var(PART) * self.own + Var(ROW)
        self._take_rows(row)
        shared = self._take_sums(row)
        if shared is None or shared < self.limits.across_bytes:
            return None
        partials: dict[tuple[ValueId, int], str] = {}
        for position, value in self.totals.items():
            name = self.new_buffer((parts, self.pair.columns), torch.float32)
            partials[position, 0] = name
            index = Var(PART) * self.pair.columns + Var(COLUMN)
            self.body.append(Store(name, index, value, "total"))
        x, r = (Axis(PART, parts), Axis(ROW, self.own)), (Axis(COLUMN, self.pair.columns),)
        origins = tuple(dict.fromkeys((*self.loop.origins, *self.sums.origins)))
        whole = Loop(self.loop.name, x, r, pruned(self.body), origins)
        return whole, rows_of_parts(self.sums, parts, partials, self.limits, self.new_buffer)

    def _take_rows(self, row: Expr) -> None:
        """The loop over rows, over the axes of both."""
        mapping: dict[str, Expr] = {self.loop.x[0].var: row, self.loop.r[0].var: Var(COLUMN)}
        new: dict[ValueId, ValueId] = {}
        for position, instr in enumerate(self.loop.body):
            moved = self._moved(instr, mapping, new)
            new[position] = self._put(moved)
            if isinstance(moved, Store):
                self.stored[moved.buffer, moved.index.key] = moved.value

    def _take_sums(self, row: Expr) -> int | None:
        """What is summed, over the same axes; the bytes that are read once instead of twice."""
        mapping: dict[str, Expr] = {self.sums.x[0].var: Var(COLUMN), self.sums.r[0].var: row}
        written = {name for name, _ in self.stored}
        self.totals: dict[ValueId, ValueId] = {}
        new: dict[ValueId, ValueId] = {}
        shared: set[str] = set()
        alone: set[str] = set()
        for position, instr in enumerate(self.sums.body):
            if isinstance(instr, Reduce):
                self.totals[position] = new[instr.arg]
                continue
            if isinstance(instr, Store) or any(v not in new for v in operands(instr)):
                continue  # that is done with the sums
            moved = self._moved(instr, mapping, new)
            if isinstance(moved, Load):
                whole = {ROW, COLUMN} <= moved.index.vars
                value = self.stored.get((moved.buffer, moved.index.key))
                if value is not None and moved.mask is None:
                    new[position] = value
                elif moved.buffer in written:
                    return None  # another element than the one that is there
                if whole and (value is not None or _key(moved) in self.known):
                    shared.add(moved.buffer)
                elif whole:
                    alone.add(moved.buffer)
                if position in new:
                    continue
            new[position] = self._put(moved)
        if self._bytes(alone) > self._bytes(shared):
            return None
        return self._bytes(shared)

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
        """Append an instruction unless an equal one is there."""
        if isinstance(instr, Store):
            self.body.append(instr)
            return len(self.body) - 1
        key = _key(instr)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = len(self.body)
            self.body.append(instr)
        return found


def _key(instr: Instr) -> object:
    """What equal instructions share: 0.0 and -0.0 are equal, but not the same."""
    if isinstance(instr, Const):
        return repr(instr.value), instr.dtype
    return (instr, repr(instr.other)) if isinstance(instr, Load) else instr


def _parts(rows: int, limits: Limits) -> int | None:
    """As many equal shares of the rows as a GPU runs programs at once, or nearly."""
    most = limits.split_programs
    return next((n for n in range(min(most, rows), most // 2 - 1, -1) if rows % n == 0), None)
