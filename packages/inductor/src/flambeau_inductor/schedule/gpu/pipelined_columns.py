"""Software pipelining of column reductions whose kernels also store the elements.

In: a loop that sums down the columns of elements which it stores too (a bias' gradient and the
gradient that it is a sum of). Out: a loop in parts that goes through rows a few at a time, blocks
of which are on their way while one is computed, and a small loop that adds up the parts. Invariant:
the stored elements and the sums are the loop's own; elsewhere the loop stays as it is.
"""

from __future__ import annotations

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.ir.loops import Const, Instr, Load, Loop, Reduce, Store
from flambeau_inductor.ir.operands import operands, pruned
from flambeau_inductor.ir.program import Program, RunLoop, Step
from flambeau_inductor.ir.steps import rescheduled
from flambeau_inductor.limits import Limits
from flambeau_inductor.schedule.gpu.row_column_fusion import sums_columns
from flambeau_inductor.schedule.gpu.row_column_loops import Joining, Pair
from flambeau_inductor.schedule.gpu.split_reduction import (
    LayoutOf,
    NewBuffer,
    ScratchBuffers,
    device_of,
)


def pipeline_columns(context: PassContext, program: Program) -> tuple[Program, int]:
    """Take loops that sum down columns as rows in turn, where that suits them."""
    scratch, limits, steps = ScratchBuffers(program), context.limits, list[Step]()
    for step in program.steps:
        made = None
        if isinstance(step, RunLoop) and sums_columns(step.loop, scratch.layout_of, limits):
            device = device_of(step.loop, scratch.layout_of)
            assert device is not None
            made = _in_turn(step.loop, scratch.layout_of, limits, scratch.on(device))
        steps += [step] if made is None else [RunLoop(loop) for loop in made]
    return rescheduled(program, steps, scratch.all())


def _in_turn(
    loop: Loop, layout_of: LayoutOf, limits: Limits, new_buffer: NewBuffer
) -> tuple[Loop, Loop] | None:
    """The loops in place of one that does nothing but sum down the columns of rows in memory."""
    columns, rows = loop.x[0].size, loop.r[0].size
    assert isinstance(columns, int) and isinstance(rows, int)
    taken = -(-columns // limits.across_columns) * limits.across_columns
    if columns < limits.across_columns or (taken - columns) * limits.pipelined_spare > columns:
        return None
    if not _stores_elements(loop, layout_of, limits.pipelined_bytes):
        return None
    waiting: set[int] = set()
    for k, instr in enumerate(loop.body):
        if isinstance(instr, Reduce) or not waiting.isdisjoint(operands(instr)):
            waiting.add(k)
    nothing = Const(0, torch.int64)
    row = loop.r[0].var
    stored = [nothing if k in waiting else instr for k, instr in enumerate(loop.body)]
    summed: list[Instr] = [
        nothing if isinstance(instr, Store) and row in instr.index.vars else instr
        for instr in loop.body
    ]
    along = Loop(loop.name, loop.r, loop.x, pruned(stored), loop.origins)
    sums = Loop(loop.name, loop.x, loop.r, pruned(summed), loop.origins)
    pair = Pair(0, 1, rows, columns, held=False)
    return Joining(along, sums, pair, layout_of, limits, new_buffer).loops(())


def _stores_elements(loop: Loop, layout_of: LayoutOf, most: int) -> bool:
    """Whether it stores elements, all narrow and side by side."""
    both = {loop.x[0].var, loop.r[0].var}
    found = [i for i in loop.body if isinstance(i, Load | Store) and both <= i.index.vars]
    return any(isinstance(i, Store) for i in found) and all(
        layout_of(i.buffer).dtype.itemsize <= most and i.index.coefficient(loop.x[0].var) == 1
        for i in found
    )
