"""Narrowing of one-hot comparisons to int32, as in cross-entropy backward.

In: a `Loop`. Out: a `Loop` that computes the same. Invariant: no value changes; a comparison with a
position from `low` to `high` is the same when the other side is first brought into the range from
`low - 1` to `high + 1`.

The gradient of a cross entropy is zero but where the position is the label. Its sum over a row is
that one value, and the label, which has 64 bits, is brought down to 32 once a row: the comparisons
of the row then fill twice the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch

from flambeau_inductor.codegen.cpp.rewrite.rewrite import COMPARISONS, short_ranges
from flambeau_inductor.indexing import Var, bounds
from flambeau_inductor.ir.loops import (
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    ReducePart,
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import operands, pruned, renumbered

WIDE, NARROW = torch.int64, torch.int32

Emit = Callable[[Instr], ValueId]


def one_hot(loop: Loop) -> Loop:
    """Sums of what is zero but at one position without a pass; comparisons in 32 bits."""
    axes = loop.r or loop.x
    compared = any(isinstance(i, Point) and i.op in COMPARISONS for i in loop.body)
    if not axes or not compared or not any(isinstance(i, IndexValue) for i in loop.body):
        return loop
    inner = frozenset(a.var for a in loop.r) or {axes[-1].var}
    moving = _moving(loop, inner)
    body: list[Instr] = []
    new: dict[ValueId, ValueId] = {}

    def emit(instr: Instr) -> ValueId:
        body.append(instr)
        return len(body) - 1

    changed = False
    for position, instr in enumerate(loop.body):
        made = _only_one(loop, instr, moving, new, emit)
        if made is None:
            made = _compared(loop, instr, moving, new, emit)
        changed |= made is not None
        new[position] = emit(renumbered(instr, new)) if made is None else made
    return replace(loop, body=pruned(body)) if changed else loop


def _moving(loop: Loop, inner: frozenset[str] | set[str]) -> set[ValueId]:
    """The values that change along the inner axes."""
    found: set[ValueId] = set()
    for position, instr in enumerate(loop.body):
        if isinstance(instr, Reduce | ReducePart):
            continue
        own = isinstance(instr, Load | IndexValue | Store) and bool(instr.index.vars & inner)
        if own or isinstance(instr, Scan) or any(v in found for v in operands(instr)):
            found.add(position)
    return found


def _only_one(
    loop: Loop, instr: Instr, moving: set[ValueId], new: dict[ValueId, ValueId], emit: Emit
) -> ValueId | None:
    """The sum of `where(position == label, value, 0)` over all positions: `value`, if there is such
    a position."""
    if not isinstance(instr, Reduce) or instr.kind != "sum" or len(loop.r) != 1:
        return None
    chosen = loop.body[instr.arg]
    if not isinstance(chosen, Point) or chosen.op != "where":
        return None
    test, other = loop.body[chosen.args[0]], loop.body[chosen.args[2]]
    if not isinstance(other, Const) or other.value != 0 or chosen.args[1] in moving:
        return None
    if not isinstance(test, Point) or test.op != "eq":
        return None
    (axis,) = loop.r
    for place, label in (test.args, test.args[::-1]):
        at = loop.body[place]
        if not isinstance(at, IndexValue) or at.dtype is not WIDE or at.index != Var(axis.var):
            continue
        if label in moving or not isinstance(axis.size, int):
            continue
        zero = emit(Const(0, WIDE))
        size = emit(Const(axis.size, WIDE))
        above = emit(Point("ge", (new[label], zero), torch.bool))
        below = emit(Point("lt", (new[label], size), torch.bool))
        nothing = emit(Const(other.value, instr.dtype))
        found = emit(Point("where", (above, new[chosen.args[1]], nothing), instr.dtype))
        found = emit(Point("where", (below, found, nothing), instr.dtype))
        return emit(Point("add", (found, nothing), instr.dtype))  # a sum has no -0
    return None


def _compared(
    loop: Loop, instr: Instr, moving: set[ValueId], new: dict[ValueId, ValueId], emit: Emit
) -> ValueId | None:
    """A comparison of a position with a number of the row, in 32 bits."""
    if not isinstance(instr, Point) or instr.op not in COMPARISONS:
        return None
    ranges = short_ranges((*loop.x, *loop.r))
    for k in range(2):
        place, label = instr.args[k], instr.args[1 - k]
        at, number = loop.body[place], loop.body[label]
        if not isinstance(at, IndexValue) or at.dtype is not WIDE or place not in moving:
            continue
        if label in moving or isinstance(number, Const | IndexValue | Store):
            continue
        if any(v.startswith("%") for v in at.index.vars):
            continue
        low, high = bounds(at.index, ranges)
        if low <= -(2**31) or high >= 2**31 - 1:
            continue
        most, least = emit(Const(high + 1, WIDE)), emit(Const(low - 1, WIDE))
        inside = emit(Point("minimum", (new[label], most), WIDE))
        inside = emit(Point("maximum", (inside, least), WIDE))
        sides = [emit(IndexValue(at.index, NARROW)), emit(Point("cast", (inside,), NARROW))]
        return emit(Point(instr.op, (sides[k], sides[1 - k]), torch.bool))
    return None
