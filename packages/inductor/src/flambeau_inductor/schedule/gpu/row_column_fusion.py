"""Row and column reduction fusion, with loop fission of rows too long for registers.

In: a GPU program's steps. Out: the same, where a loop over rows and one that sums down their
columns (gradients of a norm's input, and of its weight and bias) are a loop in parts: each part
goes through some of the rows, does what the first did and adds up its columns; a small loop adds up
the parts. Invariant: both read the same elements and neither waits for the other's sums; steps
between them see what they saw. Of rows longer than `most_across` a loop of its own keeps the
reductions, if the rows are read twice anyway, and the loop down the columns stores what was stored
along them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    Instr,
    Load,
    Loop,
    Reduce,
    ReducePart,
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import operands, pruned, renumbered
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import Compute, computing, rescheduled, touched
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.gpu.row_column_loops import Joining, Pair
from flambeau_inductor.schedule.gpu.split_reduction import (
    LayoutOf,
    NewBuffer,
    ScratchBuffers,
    device_of,
    facts_of,
)


def fuse_rows_and_columns(context: PassContext, program: Program) -> tuple[Program, int]:
    """Make such pairs one."""
    scratch = ScratchBuffers(program)
    found = computing(program)
    position = 0
    while position < len(found):
        made = next(
            _joinable(found, position, context.limits, scratch, program.owned.outlive), None
        )
        if made is None:
            position += 1
        else:
            found, position = made, 0
    return rescheduled(program, found, scratch.all())


def _joinable(
    steps: list[Compute], down: int, limits: Limits, scratch: ScratchBuffers, kept: Container[str]
) -> Iterator[list[Compute]]:
    """The steps with the sums at `down` taken into another loop, for each that might do."""
    sums, layout_of = _loop(steps[down]), scratch.layout_of
    device = None if sums is None else device_of(sums, layout_of)
    if sums is None or device is None or not sums_columns(sums, layout_of, limits):
        return
    for along, step in enumerate(steps):
        loop = _loop(step)
        if along == down or loop is None or device_of(loop, layout_of) != device:
            continue
        pair = _pair(loop, sums, along, down, limits)
        place = None if pair is None else _place(steps, pair)
        if pair is None or place is None:
            continue
        others = [each for k, each in enumerate(steps) if k not in (along, down)]
        read = set[str]().union(*(set.union(*touched(each)) for each in others))
        written = touched(steps[along])[1] | touched(steps[down])[1]
        inside = {name for name in written - read if name not in kept}
        made = _made(loop, sums, pair, inside, layout_of, limits, scratch.on(device))
        if made is not None:
            found: list[list[Compute]] = [[each] for each in steps]
            found[along], found[down] = [], []
            found[place] = [RunLoop(each) for each in made]
            yield [each for some in found for each in some]


def _made(
    loop: Loop,
    sums: Loop,
    pair: Pair,
    inside: Container[str],
    layout_of: LayoutOf,
    limits: Limits,
    new_buffer: NewBuffer,
) -> tuple[Loop, ...] | None:
    """The loops in place of the two; rows that no program holds are reduced first."""
    whole = Joining(loop, sums, pair, layout_of, limits, new_buffer)
    if pair.columns <= limits.most_across or whole.holds_rows():
        return whole.loops(inside)
    two = split_row_loop(loop) if _read_twice(loop, pair.columns, limits) else None
    if two is None or touched(RunLoop(two.first))[0] & touched(RunLoop(sums))[1]:
        return None
    pair = replace(pair, held=False)
    both = Joining(two.rest, sums, pair, layout_of, limits, new_buffer).loops(inside)
    if both is None:
        return None
    names = {name: new_buffer((pair.rows,), dtype) for name, dtype in two.between.items()}
    return tuple(renamed(each, names) for each in (two.first, *both))


def _read_twice(loop: Loop, columns: int, limits: Limits) -> bool:
    """Whether a loop reads its long rows again after reducing them, so that fusion saves."""
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    loads = [i for i in loop.body if isinstance(i, Load) and i.index.vars & along]
    elements = sum(bool(i.index.vars & rows) for i in loads)
    return columns > limits.most_held or 2 <= elements < len(loads)


def _loop(step: Compute) -> Loop | None:
    return step.loop if isinstance(step, RunLoop) else None


def _sizes(axes: Sequence[Axis]) -> tuple[int, ...] | None:
    sizes = tuple(axis.size for axis in axes if isinstance(axis.size, int))
    return sizes if len(sizes) == len(axes) else None


def sums_columns(loop: Loop, layout_of: LayoutOf, limits: Limits) -> bool:
    """Whether a loop does nothing but sums in float32 down the columns of rows in memory."""
    device = device_of(loop, layout_of)
    if device is None or device.type not in limits.split_on:
        return False
    if any(len(_sizes(axes) or ()) != 1 for axes in (loop.x, loop.r)):
        return False
    column, row = loop.x[0].var, loop.r[0].var
    walks = summed = False
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


def _pair(loop: Loop, sums: Loop, along: int, down: int, limits: Limits) -> Pair | None:
    (columns,), (rows,) = _sizes(sums.x) or (0,), _sizes(sums.r) or (0,)
    if (_sizes(loop.x), _sizes(loop.r)) != ((rows,), (columns,)) or columns < limits.least_across:
        return None
    ordered = any(
        isinstance(i, Scan | Check) or (isinstance(i, Store) and (i.mode != "set" or i.scattered))
        for i in loop.body
    )
    return None if ordered else Pair(along, down, rows, columns)


def _place(steps: Sequence[Compute], pair: Pair) -> int | None:
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


@dataclass(frozen=True, slots=True)
class SplitRowLoop:
    """The two loops, and the buffers between them: a number of each dtype for each row.

    The buffers have names of their own kind until they are made.
    """

    first: Loop
    rest: Loop
    between: Mapping[str, torch.dtype]


def split_row_loop(loop: Loop) -> SplitRowLoop | None:
    """The two; None where no element waits for a reduction, or rows have several axes."""
    facts = facts_of(loop)
    stores = [p for p, i in enumerate(loop.body) if isinstance(i, Store) and facts.element[p]]
    if len(loop.x) != 1 or not any(facts.level[p] for p in stores):
        return None
    row = Var(loop.x[0].var)
    wanted = _needed(loop, stores)
    rest: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    first: list[Instr] = list(loop.body)
    between: dict[str, torch.dtype] = {}
    for position in sorted(wanted):
        instr = loop.body[position]
        if isinstance(instr, Reduce | ReducePart):
            name = f"{loop.name}.{position}"
            between[name] = instr.dtype
            first.append(Store(name, row, position))
            instr = Load(name, row, instr.dtype)
        else:
            instr = renumbered(instr, new)
        new[position] = len(rest)
        rest.append(instr)
    for position in stores:
        first[position] = Const(0, torch.int64)  # which `pruned` drops
    sums = replace(loop, name=f"{loop.name}_sums", body=pruned(first))
    return SplitRowLoop(sums, replace(loop, body=tuple(rest)), between)


def _needed(loop: Loop, stores: list[ValueId]) -> set[ValueId]:
    """What the stores take, back to what reductions give."""
    found: set[ValueId] = set()
    todo = list(stores)
    while todo:
        position = todo.pop()
        if position not in found:
            found.add(position)
            instr = loop.body[position]
            if not isinstance(instr, Reduce | ReducePart):
                todo.extend(operands(instr))
    return found


def renamed(loop: Loop, names: Mapping[str, str]) -> Loop:
    """The loop on buffers of other names."""
    body = tuple(
        replace(i, buffer=names.get(i.buffer, i.buffer)) if isinstance(i, Load | Store) else i
        for i in loop.body
    )
    return replace(loop, body=body)
