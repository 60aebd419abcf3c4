"""Parallel axes: those along which iterations never share memory.

In: a `Loop` and its sizes. Out: the axes. Invariant: where nothing is known of a position, points
may meet.
"""

from __future__ import annotations

from flambeau_inductor.codegen.cpp.analysis.instructions import Axes
from flambeau_inductor.indexing import Expr
from flambeau_inductor.ir.loops import Loop, Store


def private_axes(loop: Loop, sizes: dict[str, int]) -> Axes:
    """The axes of `x` along which no two points store to one element."""
    found = frozenset(a.var for a in loop.x)
    for instr in loop.body:
        if isinstance(instr, Store) and instr.scattered:
            apart: set[str] = set()
            for index in instr.apart:
                apart |= _injective_axes(index, sizes)
            found &= apart
        elif isinstance(instr, Store) and instr.mode != "set":
            return frozenset()
    return found


def _injective_axes(index: Expr, sizes: dict[str, int]) -> set[str]:
    """Axes of an expression that has another value at each of their points."""
    if any(v.startswith("%") for v in index.vars):
        return set()
    terms = [(index.coefficient(v), v) for v in index.vars if v in sizes]
    steps = [(c, v) for c, v in terms if isinstance(c, int) and c > 0]
    if len(steps) < len(terms):
        return set()
    reach = 0
    for step, var in sorted(steps):
        if step <= reach:
            return set()
        reach += step * (sizes[var] - 1)
    return {var for _, var in steps}
