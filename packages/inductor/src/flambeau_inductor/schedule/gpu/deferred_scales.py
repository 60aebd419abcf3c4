"""Deferred row scales: a norm before a product of one vector is computed by the product.

In: a program's loops. Out: the same, where a loop over a single row that scales it by a reduction
of it (a norm) is part of the loops that multiply the row by a matrix. Invariant: a sum over elements
that have a factor of the row is the sum of them without it, times the factor, so that what the
factor is reduced from is read in the same pass; such elements are not rounded to half precision in
between.

On a GPU a loop over one row takes as long as its launch, and the next one waits for it; the loops
that read a matrix have the row at hand, and time for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import Expr, Var, as_expr, simplify
from flambeau_inductor.ir.loops import Check, Load, Loop, Point, Reduce, Scan, Store, ValueId
from flambeau_inductor.ir.operands import LoopBody, levels, pruned, reindexed, renumbered
from flambeau_inductor.ir.program import Program, RunLoop
from flambeau_inductor.ir.steps import computing, rescheduled, touched
from flambeau_inductor.schedule.fuse.loop_order import ranges_of
from flambeau_inductor.schedule.gpu.rematerialize import computed_by_readers


@dataclass(frozen=True, slots=True)
class _Row:
    """A loop over one row, and what it stores, by buffer."""

    loop: Loop
    stored: Mapping[str, Store]


def defer_row_scales(context: PassContext, program: Program) -> tuple[Program, int]:
    """Leave out loops over one row whose readers multiply it by a matrix, on a GPU."""
    steps, position, limits = computing(program), 0, context.limits
    devices = {buffer.name: buffer.layout.device.type for buffer in program.buffers}
    while position < len(steps):
        step, made = steps[position], None
        row = _row(step.loop, limits.deferred_row) if isinstance(step, RunLoop) else None
        there = all(devices[name] in limits.split_on for name in touched(step)[1])
        if row is not None and there and not row.stored.keys() & program.owned.outlive:
            most = limits.row_scalar_readers
            made = computed_by_readers(steps, position, most, lambda loop: _reading(loop, row))  # noqa: B023
        if made is None:
            position += 1
        else:
            steps = made
    return rescheduled(program, steps)


def _row(loop: Loop, most: int) -> _Row | None:
    length = loop.r[0].size if len(loop.r) == 1 else 0
    if any(axis.size != 1 for axis in loop.x) or not isinstance(length, int) or length > most:
        return None
    stored: dict[str, Store] = {}
    for instr in loop.body:
        if isinstance(instr, Check | Scan):
            return None
        if isinstance(instr, Store):
            if instr.mode != "set" or instr.scattered or instr.buffer in stored:
                return None
            stored[instr.buffer] = instr
    return _Row(loop, stored) if any(isinstance(i, Reduce) for i in loop.body) else None


def _reading(loop: Loop, row: _Row) -> Loop | None:
    """A loop that computes the row that it read; None where it does not multiply it by a matrix,
    or waits for what the row is scaled by."""
    if len(loop.r) != 1 or loop.r[0].size != row.loop.r[0].size or not _reads_a_matrix(loop):
        return None
    own: dict[str, Expr] = {axis.var: as_expr(0) for axis in row.loop.x}
    own[row.loop.r[0].var] = Var(loop.r[0].var)
    ranges, body, new = ranges_of(loop), LoopBody(), dict[ValueId, ValueId]()

    def moved(index: Expr) -> Expr:
        return simplify(index.substitute(own), ranges)

    for position, instr in enumerate(row.loop.body):
        if not isinstance(instr, Store):
            new[position] = body.put(reindexed(renumbered(instr, new), moved))
    for position, instr in enumerate(loop.body):
        if not isinstance(instr, Load) or instr.buffer not in row.stored:
            body.new[position] = body.put(renumbered(instr, body.new))
            continue
        store = row.stored[instr.buffer]
        if instr.mask is not None or moved(store.index).key != instr.index.key:
            return None
        body.new[position] = new[store.value]
    origins = tuple(dict.fromkeys((*row.loop.origins, *loop.origins)))
    return scaled_sums(replace(loop, body=tuple(body.body), origins=origins))


def _reads_a_matrix(loop: Loop) -> bool:
    rows, along = {axis.var for axis in loop.x}, {axis.var for axis in loop.r}
    loads = (i.index.vars for i in loop.body if isinstance(i, Load))
    return any(names & rows and names & along for names in loads)


def scaled_sums(loop: Loop) -> Loop | None:
    """The same with sums multiplied by what all of their elements were, in one pass over the row;
    None where an element waits for a reduction in another way."""
    level, element = levels(loop)
    made, scales = LoopBody(), dict[ValueId, ValueId]()

    def times(one: ValueId, other: ValueId) -> ValueId:
        return made.put(Point("mul", (one, other), torch.float32))

    for position, instr in enumerate(loop.body):
        waits = element[position] and level[position] > 0
        if waits and isinstance(instr, Point) and instr.op == "cast":
            (value,) = instr.args
            if not instr.dtype.is_floating_point:
                return None
            made.new[position], scales[position] = made.new[value], scales[value]
        elif waits and isinstance(instr, Point) and instr.op == "mul":
            if instr.dtype != torch.float32:
                return None
            rest = [made.new[v] for v in instr.args if element[v]]
            factors = [scales.get(v, made.new[v]) for v in instr.args if level[v] > 0]
            made.new[position] = times(*rest) if len(rest) == 2 else rest[0]
            scales[position] = times(*factors) if len(factors) == 2 else factors[0]
        elif waits:
            return None
        elif isinstance(instr, Reduce) and instr.arg in scales:
            if instr.kind != "sum" or instr.dtype != torch.float32:
                return None
            total = made.put(replace(instr, arg=made.new[instr.arg]))
            made.new[position] = times(total, scales[instr.arg])
        else:
            made.new[position] = made.put(renumbered(instr, made.new))
    return replace(loop, body=pruned(made.body))
