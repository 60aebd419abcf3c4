"""Row and column reduction fusion, loop fission of long rows, software pipelining of column sums.

In: a GPU program's steps. Out: the same, where a loop over rows and one that sums down their
columns (gradients of a norm's input, and of its weight and bias) are a loop in parts: each part
goes through some of the rows, does what the first did and adds up its columns; a small loop adds up
the parts. Invariant: both read the same elements and neither waits for the other's sums; steps
between them see what they saw; what both compute is computed once, and what one stores and the
other reads is not read from memory. Of rows longer than `most_across` a loop of its own keeps the
reductions, if the rows are read twice anyway, and the loop down the columns stores what was stored
along them.

A loop that sums down the columns of elements which it stores too (a bias' gradient and the gradient
that it is a sum of) becomes such a loop in parts by itself: blocks of rows are on their way while
one is computed.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, Ranges, Var, simplify, static_sizes
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    Load,
    Loop,
    Reduce,
    ReducePart,
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import (
    LoopBody,
    levels,
    live,
    operands,
    pruned,
    reindexed,
    renumbered,
)
from flambeau_inductor.ir.program import Program, RunLoop, Step
from flambeau_inductor.ir.steps import Compute, computing, made_by, rescheduled, touched
from flambeau_inductor.reachability import reached
from flambeau_inductor.schedule.gpu.split_reduction import ScratchBuffers, rows_of_parts
from flambeau_inductor.scheduling_limits import Limits

NOTHING = Const(0, torch.int64)
"""In place of an instruction that `pruned` is to drop."""


def fuse_rows_and_columns(context: PassContext, program: Program) -> tuple[Program, int]:
    """Make such pairs one."""
    scratch, found, position = ScratchBuffers(program, context.limits), computing(program), 0
    while position < len(found):
        made = next(_joinable(found, position, scratch, program.owned.outlive), None)
        if made is None:
            position += 1
        else:
            found, position = made, 0
    return rescheduled(program, found, scratch.all())


def _joinable(
    steps: list[Compute], down: int, scratch: ScratchBuffers, kept: Container[str]
) -> Iterator[list[Compute]]:
    """The steps with the sums at `down` taken into another loop, for each that might do."""
    sums = _loop(steps[down])
    if sums is None or not _sums_columns(sums, scratch):
        return
    for along, step in enumerate(steps):
        loop = _loop(step)
        if along == down or loop is None or _share_nothing(step, steps[down]):
            continue
        if scratch.device_of(loop) != scratch.device_of(sums):
            continue
        pair = _pair(loop, sums, along < down, scratch.limits)
        place = None if pair is None else _place(steps, *sorted((along, down)))
        if pair is None or place is None:
            continue
        others = [each for k, each in enumerate(steps) if k not in (along, down)]
        read = set[str]().union(*(frozenset.union(*touched(each)) for each in others))
        written = touched(steps[along])[1] | touched(steps[down])[1]
        made = _made(pair, {name for name in written - read if name not in kept}, scratch)
        if made is not None:
            found: list[list[Compute]] = [[each] for each in steps]
            found[along], found[down] = [], []
            found[place] = [RunLoop(each) for each in made]
            yield [each for some in found for each in some]


def _share_nothing(step: Compute, other: Compute) -> bool:
    """Whether two steps touch different buffers: as most do, this comes first."""
    pairs = product(touched(step), touched(other))
    return all(ours.isdisjoint(theirs) for ours, theirs in pairs)


def _made(pair: Pair, inside: Container[str], scratch: ScratchBuffers) -> tuple[Loop, ...] | None:
    """The loops in place of the two; rows that no program holds are reduced first."""
    whole = _Joining(pair, scratch)
    if pair.columns <= scratch.limits.most_across or whole.holds_rows():
        return whole.loops(inside)
    two = _split_row_loop(pair.loop) if _read_twice(pair, scratch.limits) else None
    if two is None or touched(RunLoop(two.first))[0] & touched(RunLoop(pair.sums))[1]:
        return None
    both = _Joining(replace(pair, loop=two.rest, held=False), scratch).loops(inside)
    if both is None:
        return None
    names = {
        name: scratch.new(pair.sums, (pair.rows,), dtype) for name, dtype in two.between.items()
    }
    return tuple(_on_buffers(each, names) for each in (two.first, *both))


def _read_twice(pair: Pair, limits: Limits) -> bool:
    """Whether a loop reads its long rows again after reducing them, so that fusion saves."""
    row, column = pair.loop.x[0].var, pair.loop.r[0].var
    loads = [i for i in pair.loop.body if isinstance(i, Load) and column in i.index.vars]
    elements = sum(row in i.index.vars for i in loads)
    return pair.columns > limits.most_held or 2 <= elements < len(loads)


def _loop(step: Compute) -> Loop | None:
    return step.loop if isinstance(step, RunLoop) else None


def _sizes(axes: Sequence[Axis]) -> tuple[int, ...] | None:
    return static_sizes(axis.size for axis in axes)


def _sums_columns(loop: Loop, scratch: ScratchBuffers) -> bool:
    """Whether a loop does nothing but sums in float32 down the columns of rows in memory."""
    device = scratch.device_of(loop)
    if device is None or device.type not in scratch.limits.split_on:
        return False
    if any(len(_sizes(axes) or ()) != 1 for axes in (loop.x, loop.r)):
        return False
    column, row = loop.x[0].var, loop.r[0].var
    walks = summed = False
    for instr, level in zip(loop.body, levels(loop)[0], strict=True):
        if isinstance(instr, Reduce):
            if instr.kind != "sum" or instr.dtype != torch.float32 or level > 1:
                return False
            summed = True
        elif isinstance(instr, Store):
            if instr.mode != "set" or instr.scattered or (level and row in instr.index.vars):
                return False
        elif isinstance(instr, Scan | Check):
            return False
        elif isinstance(instr, Load) and {column, row} <= instr.index.vars:
            walks = walks or instr.index.coefficient(column) == 1
    return walks and summed


@dataclass(frozen=True, slots=True)
class Pair:
    """A loop over rows and sums down columns; whether the loop is the `first` of the two, and
    whether a program holds whole rows."""

    loop: Loop
    sums: Loop
    rows: int
    columns: int
    first: bool
    held: bool = True


def _pair(loop: Loop, sums: Loop, first: bool, limits: Limits) -> Pair | None:
    (columns,), (rows,) = _sizes(sums.x) or (0,), _sizes(sums.r) or (0,)
    if (_sizes(loop.x), _sizes(loop.r)) != ((rows,), (columns,)) or columns < limits.least_across:
        return None
    ordered = any(
        isinstance(i, Scan | Check) or (isinstance(i, Store) and (i.mode != "set" or i.scattered))
        for i in loop.body
    )
    return None if ordered else Pair(loop, sums, rows, columns, first)


def _place(steps: Sequence[Compute], first: int, last: int) -> int | None:
    """Where two steps may run as one; None where a step between them stands in the way."""
    early, late = touched(steps[first]), touched(steps[last])
    between = steps[first + 1 : last]
    reads = set[str]().union(*(touched(step)[0] for step in between))
    writes = set[str]().union(*map(made_by, between))
    if not writes & (late[0] | late[1]) and not reads & late[1]:
        return first
    if not (reads | writes) & early[1] and not writes & early[0]:
        return last
    return None


@dataclass(frozen=True, slots=True)
class SplitRowLoop:
    """The two loops, and the buffers between them: a number of each dtype for each row.

    The buffers have names of their own kind until they are made.
    """

    first: Loop
    rest: Loop
    between: Mapping[str, torch.dtype]


def _split_row_loop(loop: Loop) -> SplitRowLoop | None:
    """The two; None where no element waits for a reduction, or rows have several axes."""
    level, element = levels(loop)
    stores = [p for p, i in enumerate(loop.body) if isinstance(i, Store) and element[p]]
    if len(loop.x) != 1 or not any(level[p] for p in stores):
        return None
    row = Var(loop.x[0].var)

    def of_rows(position: ValueId) -> tuple[ValueId, ...]:  # back to what reductions give
        instr = loop.body[position]
        return () if isinstance(instr, Reduce | ReducePart) else operands(instr)

    wanted = reached(stores, of_rows)
    rest, first = LoopBody(), list(loop.body)
    between: dict[str, torch.dtype] = {}
    for position in sorted(wanted):
        instr = loop.body[position]
        if isinstance(instr, Reduce | ReducePart):
            name = f"{loop.name}.{position}"
            between[name] = instr.dtype
            first.append(Store(name, row, position))
            instr = Load(name, row, instr.dtype)
        rest.copy(position, instr)
    for position in stores:
        first[position] = NOTHING
    sums = replace(loop, name=f"{loop.name}_sums", body=pruned(first))
    return SplitRowLoop(sums, replace(loop, body=tuple(rest.body)), between)


def _on_buffers(loop: Loop, names: Mapping[str, str]) -> Loop:
    """The loop on buffers of other names."""
    body = tuple(
        replace(i, buffer=names.get(i.buffer, i.buffer)) if isinstance(i, Load | Store) else i
        for i in loop.body
    )
    return replace(loop, body=body)


# --- one loop of two ----------------------------------------------------------------------------

PART, ROW, COLUMN = "x0", "x1", "r0"


@dataclass
class _Joining:
    """The making of one loop of two."""

    pair: Pair
    scratch: ScratchBuffers
    stored: dict[tuple[str, str], ValueId] = field(default_factory=dict)
    totals: dict[ValueId, ValueId] = field(default_factory=dict)

    def loops(self, inside: Container[str]) -> tuple[Loop, Loop] | None:
        """The loop, and the one that adds up its parts; what is `inside` nobody else reads."""
        whole = self._whole(False, inside)
        if whole is not None and live(whole) <= self.scratch.limits.light_registers[0]:
            whole = self._whole(True, inside)
        if whole is None:
            return None
        parts, partials = whole.x[0].size, dict[tuple[ValueId, int], str]()
        assert isinstance(parts, int)
        body = list(whole.body)
        for k, instr in enumerate(body):
            if isinstance(instr, Store) and instr.mode == "total":
                shape = (parts, self.pair.columns)
                name = self.scratch.new(self.pair.sums, shape, torch.float32)
                partials[int(instr.buffer), 0] = name
                body[k] = replace(instr, buffer=name)
        rest = rows_of_parts(self.pair.sums, parts, partials, self.scratch)
        return replace(whole, body=tuple(body)), rest

    def holds_rows(self) -> bool:
        """Whether a program has registers for rows of twice `most_across`."""
        whole, limits = self._whole(False, ()), self.scratch.limits
        within = self.pair.columns <= 2 * limits.most_across
        return within and whole is not None and live(whole) <= limits.light_registers[1]

    def _whole(self, light: bool, inside: Container[str]) -> Loop | None:
        """What both loops do, with a total for each sum; None where little is shared."""
        rows, columns = self.pair.rows, self.pair.columns
        loop, sums = self.pair.loop, self.pair.sums
        parts = parts_of(self.pair, self._wide(), light, self.scratch.limits)
        if parts is None:
            return None
        self.made, self.stored, self.totals = LoopBody(), {}, {}
        own = -(-rows // parts)
        parts = -(-rows // own)
        self.ranges: Ranges = {PART: (0, parts - 1), ROW: (0, own - 1), COLUMN: (0, columns - 1)}
        row, column = Var(PART) * own + Var(ROW), Var(COLUMN)
        both: list[tuple[Loop, Mapping[str, Expr]]] = [
            (loop, {loop.x[0].var: row, loop.r[0].var: column}),
            (sums, {sums.x[0].var: column, sums.r[0].var: row}),
        ]
        first, second = (self._take(*each) for each in (both if self.pair.first else both[::-1]))
        if first is None or second is None:
            return None
        shared = self._bytes(first & second)
        if shared < max(self.scratch.limits.across_bytes, self._bytes(second - first)):
            return None
        body = [
            NOTHING if isinstance(i, Store) and i.buffer in inside else i for i in self.made.body
        ]
        index = Var(PART) * columns + Var(COLUMN)
        body += [Store(str(k), index, value, "total") for k, value in self.totals.items()]
        x, r = (Axis(PART, parts), Axis(ROW, own)), (Axis(COLUMN, columns),)
        origins = tuple(dict.fromkeys((*loop.origins, *sums.origins)))
        return Loop(loop.name, x, r, pruned(body), origins, None if parts * own == rows else rows)

    def _take(self, loop: Loop, mapping: Mapping[str, Expr]) -> set[str] | None:
        """Append a loop; the buffers traversed, None if other elements are needed."""
        down, of_sums = loop is self.pair.sums, rows_stored(self.pair.sums)
        written = {name for name, _ in self.stored} | (set() if down else of_sums)
        walked: set[str] = set()
        new: dict[ValueId, ValueId] = {}
        for position, instr in enumerate(loop.body):
            if down and isinstance(instr, Reduce):
                self.totals[position] = new[instr.arg]
                continue
            if any(v not in new for v in operands(instr)):
                continue  # that is done with the sums
            if down and isinstance(instr, Store) and instr.buffer in of_sums:
                continue
            moved = reindexed(
                renumbered(instr, new), lambda e: simplify(e.substitute(mapping), self.ranges)
            )
            if isinstance(moved, Load | Store) and {ROW, COLUMN} <= moved.index.vars:
                walked.add(moved.buffer)
            if isinstance(moved, Load):
                value = self.stored.get((moved.buffer, moved.index.key))
                if value is not None and moved.mask is None:
                    new[position] = value
                    continue
                if moved.buffer in written:
                    return None
            new[position] = self.made.put(moved)
            if isinstance(moved, Store):
                self.stored[moved.buffer, moved.index.key] = moved.value
        return walked

    def _wide(self) -> bool:
        loads = [
            i for loop in (self.pair.loop, self.pair.sums) for i in loop.body if isinstance(i, Load)
        ]
        return any(i.dtype.itemsize > 2 for i in loads if len(i.index.vars) > 1)

    def _bytes(self, names: set[str]) -> int:
        points = self.pair.rows * self.pair.columns
        return sum(points * self.scratch.layout_of(name).dtype.itemsize for name in names)


def rows_stored(sums: Loop) -> set[str]:
    """The buffers that hold what is made of the sums."""
    row = sums.r[0].var
    return {i.buffer for i in sums.body if isinstance(i, Store) and row not in i.index.vars}


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


# --- sums down the columns of elements that are stored too --------------------------------------


def pipeline_columns(context: PassContext, program: Program) -> tuple[Program, int]:
    """Take loops that sum down columns as rows in turn, where that suits them."""
    scratch, steps = ScratchBuffers(program, context.limits), list[Step]()
    for step in program.steps:
        made = None
        if isinstance(step, RunLoop) and _sums_columns(step.loop, scratch):
            made = _in_turn(step.loop, scratch)
        steps += [step] if made is None else [RunLoop(loop) for loop in made]
    return rescheduled(program, steps, scratch.all())


def _in_turn(loop: Loop, scratch: ScratchBuffers) -> tuple[Loop, Loop] | None:
    """The loops in place of one that does nothing but sum down the columns of rows in memory."""
    columns, rows, limits = loop.x[0].size, loop.r[0].size, scratch.limits
    assert isinstance(columns, int) and isinstance(rows, int)
    taken = -(-columns // limits.across_columns) * limits.across_columns
    if columns < limits.across_columns or (taken - columns) * limits.pipelined_spare > columns:
        return None
    if not _stores_elements(loop, scratch):
        return None
    row = loop.r[0].var
    waits = zip(loop.body, levels(loop)[0], strict=True)
    stored = [NOTHING if level else instr for instr, level in waits]
    summed = [
        NOTHING if isinstance(instr, Store) and row in instr.index.vars else instr
        for instr in loop.body
    ]
    along = Loop(loop.name, loop.r, loop.x, pruned(stored), loop.origins)
    sums = Loop(loop.name, loop.x, loop.r, pruned(summed), loop.origins)
    return _Joining(Pair(along, sums, rows, columns, True, held=False), scratch).loops(())


def _stores_elements(loop: Loop, scratch: ScratchBuffers) -> bool:
    """Whether it stores elements, all narrow and side by side."""
    both, most = {loop.x[0].var, loop.r[0].var}, scratch.limits.pipelined_bytes
    found = [i for i in loop.body if isinstance(i, Load | Store) and both <= i.index.vars]
    return any(isinstance(i, Store) for i in found) and all(
        scratch.layout_of(i.buffer).dtype.itemsize <= most
        and i.index.coefficient(loop.x[0].var) == 1
        for i in found
    )
