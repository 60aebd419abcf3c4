"""Register pressure of a row-wise kernel.

In: a `Loop` with one reduction axis. Out: numbers of registers an element. Invariant: an estimate:
it decides how a loop is cut and shared out, never what it computes.
"""

from __future__ import annotations

from flambeau_inductor.ir.loops import Load, Loop, Point, Reduce, Store
from flambeau_inductor.ir.operands import levels, operands


def register_bytes(loop: Loop) -> float:
    """Sums down the columns, what all rows share (half precision two to a register), and all that
    waits for a reduction, be it at different times."""
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    level, element = levels(loop)
    found = 0.0
    waiting: set[int] = set()
    for i, instr in enumerate(loop.body):
        if isinstance(instr, Load) and instr.index.vars & along and not instr.index.vars & rows:
            found += instr.dtype.itemsize / 4
        found += isinstance(instr, Store) and instr.mode == "total"
        if element[i]:
            waiting |= {k for k in operands(instr) if element[k] and level[k] < level[i]}
    return found + len(waiting)


def live(loop: Loop) -> int:
    """Sums down the columns, what all rows share, and what waits for a reduction at the same time,
    all in float32: values of 16 bits are kept as what they are computed with.

    With 32 elements a thread, registers that Triton 3.6 takes (sm_90): 3 are 124 to 128, 4 are 167
    to 191, 6 are 227 to 248.
    """
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    level, element = levels(loop)
    shared = {
        i.buffer
        for i in loop.body
        if isinstance(i, Load) and i.index.vars & along and not i.index.vars & rows
    }
    totals = [i for i in loop.body if isinstance(i, Store) and i.mode == "total"]
    last = max(level, default=0)
    needed: dict[int, int] = {}
    for i, instr in enumerate(loop.body):
        until = level[i] - isinstance(instr, Reduce)
        if isinstance(instr, Store) and instr.mode == "total":
            until = last
        for k in operands(instr):
            value = _narrow(loop, k)
            if element[k] and not _of_all_rows(loop, value, shared):
                needed[value] = max(needed.get(value, 0), until)
    waiting = (sum(level[k] <= at < until for k, until in needed.items()) for at in range(last))
    return len(totals) + len(shared) + max(waiting, default=0)


def _narrow(loop: Loop, value: int) -> int:
    """The value that casts were made of."""
    instr = loop.body[value]
    while isinstance(instr, Point) and instr.op == "cast":
        (value,) = instr.args
        instr = loop.body[value]
    return value


def _of_all_rows(loop: Loop, value: int, shared: set[str]) -> bool:
    instr = loop.body[value]
    return isinstance(instr, Load) and instr.buffer in shared
