"""Loop rewrites before C++ emission, in order.

In: a `Loop`. Out: a `Loop` that computes the same. Invariant: only what C++ kernels profit from is
changed here; Triton reads the loop as the schedule made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import prod

import torch

from flambeau_inductor.indexing import Expr, Ranges, bounds, decide_less, hint
from flambeau_inductor.ir.loops import (
    Axis,
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
from flambeau_inductor.ir.operands import operands, renumbered

COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
CLOSED = frozenset(["add", "sub", "where", "maximum", "minimum"])
# a row this long is still in cache when its variance is summed in a second pass
TWO_PASS_ELEMENTS = 16384
# what axes of open sizes are assumed to be shorter than where positions are computed with
SHORT = 2**30


def two_pass_variance(loop: Loop) -> Loop:
    """`welford` over a row that fits in cache: the mean first, then the squared deviations.

    Columns, and longer rows, are read once, since they do not wait in cache: sums of float32
    numbers and of their squares are formed in float64, where the difference of the two keeps all
    its digits up to means of 10,000 deviations.
    """
    count = prod(axis.size for axis in loop.r)
    if hint(count) < 1:
        return loop
    long = hint(count) > TWO_PASS_ELEMENTS
    once = long or (bool(loop.r) and bool(loop.x) and _crosses_rows(loop))
    if not any(isinstance(i, Reduce) and i.kind == "welford" for i in loop.body):
        return loop
    body: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    parts: dict[ValueId, tuple[ValueId, ValueId]] = {}

    def emit(instr: Instr) -> ValueId:
        body.append(instr)
        return len(body) - 1

    for position, instr in enumerate(loop.body):
        if isinstance(instr, Reduce) and instr.kind == "welford":
            dtype, arg = instr.dtype, new[instr.arg]
            if once and dtype is torch.float32:
                parts[position] = _sums(emit, arg, count)
                continue
            if long:
                new[position] = emit(renumbered(instr, new))
                continue
            total = emit(Reduce("sum", arg, dtype))
            if isinstance(count, Expr):
                size = emit(IndexValue(count, dtype))
            else:
                size = emit(Const(float(count), dtype))
            mean = emit(Point("div", (total, size), dtype))
            gap = emit(Point("sub", (arg, mean), dtype))
            square = emit(Point("mul", (gap, gap), dtype))
            parts[position] = (mean, emit(Reduce("sum", square, dtype)))
        elif isinstance(instr, ReducePart) and instr.arg in parts:
            new[position] = parts[instr.arg][instr.position]
        else:
            new[position] = emit(renumbered(instr, new))
    return replace(loop, body=tuple(body))


def _sums(
    emit: Callable[[Instr], ValueId], arg: ValueId, count: int | Expr
) -> tuple[ValueId, ValueId]:
    """Mean and sum of squared deviations of float32 numbers from two sums in float64."""
    wide = torch.float64
    value = emit(Point("cast", (arg,), wide))
    total = emit(Reduce("sum", value, wide))
    squares = emit(Reduce("sum", emit(Point("mul", (value, value), wide)), wide))
    size = emit(IndexValue(count, wide) if isinstance(count, Expr) else Const(float(count), wide))
    mean = emit(Point("div", (total, size), wide))
    apart = emit(Point("sub", (squares, emit(Point("mul", (total, mean), wide))), wide))
    least = emit(Const(0.0, wide))
    around = emit(Point("maximum", (apart, least), wide))
    narrow = (emit(Point("cast", (v,), torch.float32)) for v in (mean, around))
    return next(narrow), next(narrow)


def _crosses_rows(loop: Loop) -> bool:
    """Whether what is reduced lies apart in memory: its cache lines are shared with other rows."""
    inner = loop.r[-1].var
    return not any(isinstance(i, Load) and i.index.coefficient(inner) == 1 for i in loop.body)


def short_ranges(axes: Iterable[Axis]) -> Ranges:
    """Ranges of loop variables; axes of open sizes are assumed to be shorter than 2**30."""
    found: dict[str, tuple[int, int]] = {}
    for axis in axes:
        if isinstance(axis.size, int):
            found[axis.var] = (0, axis.size - 1)
        elif decide_less(axis.size, SHORT):
            found[axis.var] = (0, SHORT - 1)
    return found


def narrow_indices(loop: Loop) -> Loop:
    """Hold positions that are only compared in 32 bits: twice the lanes of 64."""
    if not any(isinstance(i, IndexValue) for i in loop.body):
        return loop
    ranges = short_ranges((*loop.x, *loop.r))
    limits: dict[ValueId, tuple[int, int]] = {}
    for position, instr in enumerate(loop.body):
        found = _limits(instr, limits, ranges)
        if found is not None and found[0] >= -(2**31) and found[1] < 2**31:
            limits[position] = found
    chosen = {v for v in limits if getattr(loop.body[v], "dtype", None) is torch.int64}
    changed = True
    while changed:
        changed = False
        for position, instr in enumerate(loop.body):
            wide = [o for o in _valued(instr) if _dtype(loop, o) is torch.int64]
            if not wide:
                continue
            together = [*wide, position] if position in limits else wide
            if isinstance(instr, Point) and (
                instr.op in COMPARISONS or (instr.op in CLOSED and position in chosen)
            ):
                keep = all(v in chosen for v in together)
            else:
                keep = isinstance(instr, Point) and instr.op == "cast"
            if not keep and any(v in chosen for v in together):
                chosen.difference_update(together)
                changed = True
    if not chosen:
        return loop
    body = tuple(
        replace(i, dtype=torch.int32) if v in chosen and not isinstance(i, Store) else i
        for v, i in enumerate(loop.body)
    )
    return replace(loop, body=body)


def _valued(instr: Instr) -> tuple[ValueId, ...]:
    """Operands by value: an index expression reads its values as 64-bit whatever they are."""
    match instr:
        case Load() | IndexValue():
            return ()
        case Store(value=value):
            return (value,)
    return operands(instr)


def _dtype(loop: Loop, value: ValueId) -> torch.dtype | None:
    return getattr(loop.body[value], "dtype", None)


def _limits(
    instr: Instr, known: dict[ValueId, tuple[int, int]], ranges: Ranges
) -> tuple[int, int] | None:
    match instr:
        case Const(value=value, dtype=torch.int64):
            return int(value), int(value)
        case IndexValue(index=index, dtype=torch.int64):
            return bounds(index, ranges)
        case Point(op=op, args=args, dtype=torch.int64) if op in CLOSED:
            parts = [known.get(a) for a in (args[1:] if op == "where" else args)]
            if None in parts:
                return None
            (a, b), (c, d) = parts[0] or (0, 0), parts[1] or (0, 0)
            if op == "add":
                return a + c, b + d
            if op == "sub":
                return a - d, b - c
            return min(a, c), max(b, d)
    return None
