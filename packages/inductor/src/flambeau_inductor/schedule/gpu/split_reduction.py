"""Split reductions: long rows shared by several programs.

In: a loop whose reductions leave most of the device idle. Out: loops that compute the same: parts
of each row reduced side by side, the parts combined in scratch buffers, and what is done with the
results. Invariant: parts have equally many elements; each store of the loop happens once. A loop is
peeled from the inside: its first reductions are split, and what remains is peeled again. What the
parts have stored is read by the rest where that is less than what it was computed from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, Var
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    ReducePart,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import LoopBody, levels, operands, pruned, reindexed, row_major
from flambeau_inductor.ir.program import Buffer, Layout, Program, RunLoop, Step
from flambeau_inductor.ir.steps import rescheduled
from flambeau_inductor.ir.tensors import flat_strides
from flambeau_inductor.reachability import reached
from flambeau_inductor.schedule.fuse.loop_order import normalised
from flambeau_inductor.scheduling_limits import Limits

NewBuffer = Callable[[tuple[int, ...], torch.dtype], str]
"""Makes a contiguous buffer and returns its name."""


class ScratchBuffers:
    """The buffers of a program, and those that a pass has made; the limits that it works by."""

    def __init__(self, program: Program, limits: Limits) -> None:
        self.limits = limits
        self._buffers = program.by_name
        self._counter = sum(name.startswith("buf") for name in self._buffers)

    def all(self) -> tuple[Buffer, ...]:
        """Those of the program, then the others."""
        return tuple(self._buffers.values())

    def layout_of(self, name: str) -> Layout:
        """The layout of either kind."""
        return self._buffers[name].layout

    def device_of(self, loop: Loop) -> torch.device | None:
        """The device that a loop stores to; None where it is not one."""
        found = {self.layout_of(i.buffer).device for i in loop.body if isinstance(i, Store)}
        return found.pop() if len(found) == 1 else None

    def new(self, loop: Loop, shape: tuple[int, ...], dtype: torch.dtype) -> str:
        """A new contiguous buffer, where a loop stores."""
        device = self.device_of(loop)
        assert device is not None
        name = f"buf{self._counter}"
        self._counter += 1
        self._buffers[name] = Buffer(name, Layout(shape, flat_strides(shape), dtype, device))
        return name


WINNERS = {"argmax": "max", "argmin": "min"}
"""Reductions to the position of a winner, and those to the winner itself."""


def split_reductions(context: PassContext, program: Program) -> tuple[Program, int]:
    """Share the long rows of loops out over the device that they run on."""
    scratch, steps = ScratchBuffers(program, context.limits), list[Step]()
    for step in program.steps:
        device = scratch.device_of(step.loop) if isinstance(step, RunLoop) else None
        made: tuple[Loop, ...] = ()
        if isinstance(step, RunLoop) and device and device.type in context.limits.split_on:
            made = split_loop(step.loop, context.limits, partial(scratch.new, step.loop))
        steps += [RunLoop(loop) for loop in made] if len(made) > 1 else [step]
    return rescheduled(program, steps, scratch.all())


def split_loop(loop: Loop, limits: Limits, new_buffer: NewBuffer) -> tuple[Loop, ...]:
    """The loops that stand for `loop`; itself alone where splitting does not pay."""
    parts = _parts(loop, limits)
    atomic = any(isinstance(i, Store) and i.mode != "set" for i in loop.body)
    if parts < 2 or atomic:
        return (loop,)
    return tuple(_Peeling(loop, parts, limits, new_buffer).loops())


def rows_of_parts(
    loop: Loop, parts: int, partials: dict[tuple[ValueId, int], str], scratch: ScratchBuffers
) -> Loop:
    """What is left of `loop`, which reduces once, where `partials` holds the parts of its rows:
    by the position of a reduction and which of its results, a buffer of parts times rows."""
    made = _Peeling(loop, parts, scratch.limits, partial(scratch.new, loop), partials)
    return made.combined({})


def _parts(loop: Loop, limits: Limits) -> int:
    sizes = [a.size for a in (*loop.x, *loop.r)]
    if not loop.r or not all(isinstance(size, int) for size in sizes):
        return 1
    rows = prod(_sizes(loop.x))
    length = prod(_sizes(loop.r))
    across = bool(loop.x) and _contiguous(loop, loop.x[-1]) > _contiguous(loop, loop.r[-1])
    programs = -(-rows // limits.split_columns) if across else rows
    part = min(limits.split_part, limits.split_length)
    # a program that sums down columns has few of them, and goes through the rows step by step
    least = min(4 * part, 2 * limits.split_length) if across else 2 * limits.split_length
    # ... and half as many of them as of others are enough
    if programs * (2 if across else 1) >= limits.split_programs or length < least:
        return 1
    wanted = -(-2 * limits.split_programs // programs)
    if across and not any(isinstance(i, Reduce) and i.kind == "welford" for i in loop.body):
        # measured on an H200: four times the programs take up to a sixth longer
        wanted = max(2, limits.split_programs // -(-2 * rows // limits.split_columns))
    wanted = min(wanted, length // part)
    return _divisor(_sizes(loop.r), wanted)


def _divisor(sizes: Sequence[int], wanted: int) -> int:
    """The largest number of parts up to `wanted` of whole outer axes and a share of the next."""
    taken = 1
    for size in sizes:
        if taken * size <= wanted:
            taken *= size
            continue
        share = max(d for d in range(1, wanted // taken + 1) if size % d == 0)
        return taken * share
    return taken


def _sizes(axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(a.size for a in axes if isinstance(a.size, int))


def _contiguous(loop: Loop, axis: Axis) -> int:
    """How many accesses traverse memory in order along `axis`, values of a row left out."""
    x, r = {a.var for a in loop.x}, {a.var for a in loop.r}
    found = [i.index for i in loop.body if isinstance(i, Load | Store)]
    return sum(
        index.coefficient(axis.var) == 1 for index in found if index.vars & x and index.vars & r
    )


@dataclass
class _Peeling:
    """One loop whose reductions at the first level are split into `parts`."""

    loop: Loop
    parts: int
    limits: Limits
    new_buffer: NewBuffer
    partials: dict[tuple[ValueId, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.level, self.element = levels(self.loop)
        at = zip(self.loop.body, self.level, strict=True)
        self.first = {p: i for p, (i, n) in enumerate(at) if isinstance(i, Reduce) and n == 1}

    def loops(self) -> list[Loop]:
        partial = self._partial()
        rest = self._rest()
        if not rest:
            return [partial, self.combined({})]
        results = {
            (position, part): self.new_buffer(_sizes(self.loop.x), reduce.dtype)
            for position, reduce in self.first.items()
            for part in range(_results(reduce))
        }
        combined = self.combined(results)
        return [partial, combined, *self._remaining(results, rest)]

    def _rest(self) -> list[ValueId]:
        """Stores that the combined rows cannot make: they vary along `r`, or reduce once more."""
        return [
            p
            for p, instr in enumerate(self.loop.body)
            if isinstance(instr, Store)
            and self.level[p] > 0
            and (self.element[p] or self.level[p] > 1)
        ]

    # -- the parts --------------------------------------------------------------------------------

    def _partial(self) -> Loop:
        """Each part of each row, and the stores that wait for no reduction."""
        split, inner, along = self._cut()
        body = LoopBody()
        loop = self.loop
        for position, instr in enumerate(loop.body):
            if self.level[position] == 0:
                # a row's own store, which waits for nothing, goes with the combined rows
                if not isinstance(instr, Store) or self.element[position]:
                    body.copy(position, reindexed(instr, lambda e: e.substitute(along)))
        place = (Axis("part", self.parts), *loop.x)
        at = row_major(place)
        for position, reduce in self.first.items():
            made = body.append(replace(reduce, arg=body.new[reduce.arg]))
            for part, dtype in enumerate(self._kept(reduce)):
                value = made
                if _results(reduce) > 1:
                    value = body.append(ReducePart(made, part, dtype))
                elif part == 1:  # the winner itself, with its position
                    value = body.append(Reduce(WINNERS[reduce.kind], body.new[reduce.arg], dtype))
                buffer = self.new_buffer((self.parts, *_sizes(loop.x)), dtype)
                self.partials[position, part] = buffer
                body.append(Store(buffer, at, value))
        # the one variable of the parts in terms of the axes that were taken off
        x = (*split, *loop.x)
        spelled = {"part": row_major(split)}
        instrs = tuple(reindexed(i, lambda e: e.substitute(spelled)) for i in pruned(body.body))
        return normalised(Loop(f"{loop.name}_parts", x, inner, instrs, loop.origins))

    def _kept(self, reduce: Reduce) -> tuple[torch.dtype, ...]:
        """The dtypes of what each part leaves of a reduction."""
        operand = self.loop.body[reduce.arg]
        if reduce.kind in WINNERS and not isinstance(operand, Store | Check):
            return reduce.dtype, operand.dtype
        return (reduce.dtype,) * _results(reduce)

    def _cut(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...], dict[str, Expr]]:
        """Axes over the parts, axes inside one, and the old variables in terms of both."""
        split: list[Axis] = []
        inner: list[Axis] = []
        along: dict[str, Expr] = {}
        left = self.parts
        for axis in self.loop.r:
            (size,) = _sizes((axis,))
            if left == 1:
                inner.append(axis)
                continue
            taken = size if left % size == 0 else left
            left //= taken
            split.append(Axis(f"{axis.var}p", taken))
            if taken < size:
                inner.append(Axis(axis.var, size // taken))
                along[axis.var] = Var(f"{axis.var}p") * (size // taken) + Var(axis.var)
            else:
                along[axis.var] = Var(f"{axis.var}p")
        return tuple(split), tuple(inner), along

    # -- the rows ---------------------------------------------------------------------------------

    def combined(self, results: Mapping[tuple[ValueId, int], str]) -> Loop:
        """Rows from their parts; what depends on them alone is computed and stored here."""
        loop = self.loop
        across = Axis("part", self.parts)
        at = row_major((across, *loop.x))
        row = row_major(loop.x)
        body = LoopBody()
        pieces = {position: self._combine(body, position, at) for position in self.first}
        for (position, part), buffer in results.items():
            body.append(Store(buffer, row, pieces[position][part]))
        for position, instr in enumerate(loop.body):
            if position in pieces:
                body.new[position] = pieces[position][0]
            elif isinstance(instr, ReducePart) and instr.arg in pieces:
                body.new[position] = pieces[instr.arg][instr.position]
            elif isinstance(instr, Check):
                continue  # the parts have made it
            elif not self.element[position] and not isinstance(instr, Reduce):
                if all(v in body.new for v in operands(instr)):
                    body.copy(position, instr)
        name = f"{loop.name}_rows"
        return normalised(Loop(name, loop.x, (across,), pruned(body.body), loop.origins))

    def _combine(self, body: LoopBody, position: ValueId, at: Expr) -> tuple[ValueId, ...]:
        reduce, put = self.first[position], body.append
        dtype = reduce.dtype
        kept = enumerate(self._kept(reduce))
        loads = [put(Load(self.partials[position, part], at, own)) for part, own in kept]
        if reduce.kind in WINNERS:
            return (self._winner(put, reduce, *loads),)
        if reduce.kind != "welford":
            return (put(Reduce(reduce.kind, loads[0], dtype)),)
        # Chan, Golub and LeVeque 1983: deviations inside the parts, and those of their means
        means, deviations = loads
        between = put(Reduce("welford", means, dtype))
        inside = put(Reduce("sum", deviations, dtype))
        count = put(Const(float(prod(_sizes(self.loop.r)) // self.parts), dtype))
        moved = put(Point("mul", (count, put(ReducePart(between, 1, dtype))), dtype))
        return put(ReducePart(between, 0, dtype)), put(Point("add", (inside, moved), dtype))

    def _winner(
        self, put: Callable[[Instr], ValueId], reduce: Reduce, place: ValueId, value: ValueId
    ) -> ValueId:
        """The first position in all parts where the winner of all is; NaN wins."""
        (_, operand), int64 = self._kept(reduce), torch.int64
        best = put(Reduce(WINNERS[reduce.kind], value, operand))
        wins = put(Point("eq", (value, best), torch.bool))
        if operand.is_floating_point:
            none = [put(Point("isnan", (each,), torch.bool)) for each in (value, best)]
            both = put(Point("logical_and", (none[0], none[1]), torch.bool))
            wins = put(Point("logical_or", (wins, both), torch.bool))
        length = prod(_sizes(self.loop.r)) // self.parts
        start = put(IndexValue(Var("part") * length, int64))
        index = put(Point("add", (start, place), int64))
        last = put(Const(torch.iinfo(int64).max, int64))
        return put(Reduce("min", put(Point("where", (wins, index, last), int64)), int64))

    # -- the rest ---------------------------------------------------------------------------------

    def _remaining(
        self, results: Mapping[tuple[ValueId, int], str], rest: Sequence[ValueId]
    ) -> list[Loop]:
        """What the rows are used for along `r`, with the rows read back."""
        loop = self.loop
        row = row_major(loop.x)
        body = LoopBody()
        given = self._read_back(rest)
        for position, instr in enumerate(loop.body):
            if isinstance(instr, Check) or (isinstance(instr, Store) and position not in rest):
                continue
            if position in given:
                body.new[position] = body.append(given[position])
            elif position in self.first:
                if (position, 1) not in results:
                    load = Load(results[position, 0], row, self.first[position].dtype)
                    body.new[position] = body.append(load)
            elif isinstance(instr, ReducePart) and instr.arg in self.first:
                load = Load(results[instr.arg, instr.position], row, instr.dtype)
                body.new[position] = body.append(load)
            else:
                body.copy(position, instr)
        instrs = pruned(body.body)
        name = f"{loop.name}_rest"
        if any(isinstance(instr, Reduce) for instr in instrs):
            again = normalised(Loop(name, loop.x, loop.r, instrs, loop.origins))
            return list(split_loop(again, self.limits, self.new_buffer))
        return [normalised(Loop(name, (*loop.x, *loop.r), (), instrs, loop.origins))]

    def _read_back(self, rest: Sequence[ValueId]) -> dict[ValueId, Load]:
        """Loads of what the parts have stored, for the values that the rest would compute from
        more bytes an element than it reads then; of values of values the last."""
        found: dict[ValueId, Load] = {}
        written = Counter(i.buffer for i in self.loop.body if isinstance(i, Store))
        stores = {
            i.value: i
            for p, i in enumerate(self.loop.body)
            if isinstance(i, Store) and self.level[p] == 0 and self.element[p]
            if i.mode == "set" and not i.scattered and written[i.buffer] == 1
        }
        for value in sorted(stores, reverse=True):
            made, store = self.loop.body[value], stores[value]
            if not isinstance(made, Point):
                continue
            load = Load(store.buffer, store.index, made.dtype)
            saved = self._read(rest, found) - self._read(rest, {**found, value: load})
            if saved > 0:
                found[value] = load
        return found

    def _read(self, rest: Sequence[ValueId], given: Mapping[ValueId, Load]) -> int:
        """Bytes that the rest reads an element of its rows."""
        along = {axis.var for axis in self.loop.r}

        def instr(position: ValueId) -> Instr:
            return given.get(position, self.loop.body[position])

        def later(positions: Iterable[ValueId]) -> Iterable[ValueId]:
            return (position for position in positions if position not in self.first)

        found = reached(later(rest), lambda position: later(operands(instr(position))))
        loads = {one for one in map(instr, found) if isinstance(one, Load)}
        return sum(load.dtype.itemsize for load in loads if load.index.vars & along)


def _results(reduce: Reduce) -> int:
    return 2 if reduce.kind == "welford" else 1
