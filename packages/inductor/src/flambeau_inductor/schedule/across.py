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

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
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
SMALL = (512, 1024, 2048, 4096)
"""Columns, rounded up, of which `split_programs` programs, or more, run at once."""
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
    kept: Container[str] = (),
) -> list[Compute]:
    """The steps with such pairs made one; what is `kept` is read when they have run."""
    found = list(steps)
    position = 0
    while position < len(found):
        made = next(_joinable(found, position, layout_of, limits, new_buffer, kept), None)
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
    kept: Container[str],
) -> Iterator[list[Compute]]:
    """The steps with the sums at `down` taken into another loop, for each that might do."""
    sums = _loop(steps[down])
    if sums is None or not _sums_columns(sums, layout_of, limits):
        return
    device = _device(sums, layout_of)
    if device is None:
        return
    for along, step in enumerate(steps):
        loop = _loop(step)
        if along == down or loop is None or _device(loop, layout_of) != device:
            continue
        pair = _pair(loop, sums, along, down, limits)
        place = None if pair is None else _place(steps, pair)
        if pair is None or place is None:
            continue
        others = [each for k, each in enumerate(steps) if k not in (along, down)]
        read = set[str]().union(*(set.union(*touched(each)) for each in others))
        written = touched(steps[along])[1] | touched(steps[down])[1]
        inside = {name for name in written - read if name not in kept}
        joining = _Joining(loop, sums, pair, layout_of, limits, new_buffer(device))
        both = joining.loops(inside)
        if both is not None:
            found: list[list[Compute]] = [[each] for each in steps]
            found[along], found[down] = [], []
            found[place] = [RunLoop(each) for each in both]
            yield [each for some in found for each in some]


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
            if instr.mode != "set" or instr.scattered or (below and row in instr.index.vars):
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
    totals: dict[ValueId, ValueId] = field(default_factory=dict)

    def loops(self, inside: Container[str]) -> tuple[Loop, Loop] | None:
        """The loop, and the one that adds up its parts; what is `inside` nobody else reads."""
        parts = parts_of(self.pair.rows, self.pair.columns, self._wide(), self.limits)
        if parts is None:
            return None
        self.own = self.pair.rows // parts
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
        partials: dict[tuple[ValueId, int], str] = {}
        body = [
            Const(0, torch.int64) if isinstance(i, Store) and i.buffer in inside else i
            for i in self.body
        ]
        for position, value in self.totals.items():
            name = self.new_buffer((parts, self.pair.columns), torch.float32)
            partials[position, 0] = name
            index = Var(PART) * self.pair.columns + Var(COLUMN)
            body.append(Store(name, index, value, "total"))
        x, r = (Axis(PART, parts), Axis(ROW, self.own)), (Axis(COLUMN, self.pair.columns),)
        origins = tuple(dict.fromkeys((*self.loop.origins, *self.sums.origins)))
        whole = Loop(self.loop.name, x, r, pruned(body), origins)
        return whole, rows_of_parts(self.sums, parts, partials, self.limits, self.new_buffer)

    def _take(self, loop: Loop, mapping: Mapping[str, Expr]) -> set[str] | None:
        """What a loop does for each element, over the axes of both; the buffers whose elements it
        reads or writes. None where it reads another element than the one that is there, or waits
        for the sums."""
        down = loop is self.sums
        written = {name for name, _ in self.stored} | ({*_rows(self.sums)} if not down else set())
        walked: set[str] = set()
        new: dict[ValueId, ValueId] = {}
        for position, instr in enumerate(loop.body):
            if down and isinstance(instr, Reduce):
                self.totals[position] = new[instr.arg]
                continue
            if any(v not in new for v in operands(instr)):
                continue  # that is done with the sums
            if down and isinstance(instr, Store) and instr.buffer in _rows(loop):
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
        """Whether elements of more than 16 bits are read."""
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


def _rows(sums: Loop) -> set[str]:
    """The buffers that hold what is made of the sums."""
    row = sums.r[0].var
    return {i.buffer for i in sums.body if isinstance(i, Store) and row not in i.index.vars}


def _key(instr: Instr) -> object:
    """What equal instructions share: 0.0 and -0.0 are equal, but not the same."""
    if isinstance(instr, Const):
        return repr(instr.value), instr.dtype
    return (instr, repr(instr.other)) if isinstance(instr, Load) else instr


def parts_of(rows: int, columns: int, wide: bool, limits: Limits) -> int | None:
    """As many equal shares of the rows as a GPU runs programs at once, or nearly.

    Of `SMALL` columns a program has a row in work at a time, and more of them run at once the
    shorter it is; of others, a program takes a multiprocessor for itself, or half of one where
    elements are `wide`, and blocks of them smaller.
    """
    padded = 1 << max(0, columns - 1).bit_length()
    most = limits.split_programs if wide and padded < min(SMALL) else limits.split_programs // 2
    if padded in SMALL:
        most = limits.split_programs * min(8, max(SMALL) // padded)
    return next((n for n in range(min(most, rows), most // 2 - 1, -1) if rows % n == 0), None)
