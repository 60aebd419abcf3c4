"""Loop rewrites before C++ emission: variance, constant selects, one-hot, narrow indices.

In: a `Loop`. Out: a `Loop` that computes the same, rounded the same. Invariant: only what C++
kernels profit from is changed here; Triton reads the loop as the schedule made it.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import prod

import torch

from flambeau_inductor.codegen.cpp.dtypes import ROUNDED
from flambeau_inductor.codegen.cpp.emit.pointwise import EXACT
from flambeau_inductor.indexing import Expr, IntegerConstant, Ranges, Var, bounds, hint, surely_less
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
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import LoopBody, operands, pruned, reindexed, renumbered

COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
CLOSED = frozenset(["add", "sub", "where", "maximum", "minimum"])
# a row this long is still in cache when its variance is summed in a second pass
TWO_PASS_ELEMENTS = 16384
# what axes of open sizes are assumed to be shorter than where positions are computed with
SHORT = 2**30
# the share of a sum of squared deviations that may be rounding, a vector's lane being a chain of
# terms: equal numbers have no variance
ROUNDING = {torch.float32: 2.0**-16, torch.float64: 2.0**-45}
# above it squares of a number's rounding errors may overflow
LARGE = {torch.float32: 2.0**60, torch.float64: 2.0**500}


def two_pass_variance(loop: Loop) -> Loop:
    """`welford` over a row that fits in cache: the mean first, then the squared deviations.

    What the mean's rounding left out is the mean of the deviations, which corrects both (Chan,
    Golub and LeVeque, Algorithms for Computing the Sample Variance, 1983): of equal numbers the
    mean is exact, and what is left of the squares nothing but rounding.
    Columns, and longer rows, are read once, since they do not wait in cache: sums of float32
    numbers and of their squares are formed in float64, less the row's first number, which is exact.
    The difference of the two is then at least a share of it of one by the row's length (the same
    paper), so that it keeps all digits of float32, and of equal numbers there is none.
    """
    count = prod(axis.size for axis in loop.r)
    if hint(count) < 1:
        return loop
    long = hint(count) > TWO_PASS_ELEMENTS
    inner = loop.r[-1].var if loop.r and loop.x else None
    # strided elements: their cache lines are shared with other rows
    once = long or (
        inner is not None
        and not any(isinstance(i, Load) and i.index.coefficient(inner) == 1 for i in loop.body)
    )
    if not any(isinstance(i, Reduce) and i.kind == "welford" for i in loop.body):
        return loop
    writer = LoopBody()
    body, new, emit = writer.body, writer.new, writer.append
    parts: dict[ValueId, tuple[ValueId, ValueId]] = {}

    for position, instr in enumerate(loop.body):
        if isinstance(instr, Reduce) and instr.kind == "welford":
            dtype, arg = instr.dtype, new[instr.arg]
            if once and dtype is torch.float32:
                parts[position] = _sums(emit, arg, _first(body, loop.r, arg), count)
                continue
            if long:
                new[position] = emit(renumbered(instr, new))
                continue
            if isinstance(count, Expr):
                one, size = emit(Const(1.0, dtype)), emit(IndexValue(count, dtype))
                share = emit(Point("div", (one, size), dtype))
            else:
                share = emit(Const(1.0 / count, dtype))
            # each element's share of the mean: a sum of elements may overflow where no mean does
            mean = emit(Reduce("sum", emit(Point("mul", (arg, share), dtype)), dtype))
            parts[position] = _corrected(emit, arg, mean, share, dtype)
        elif isinstance(instr, ReducePart) and instr.arg in parts:
            new[position] = parts[instr.arg][instr.position]
        else:
            new[position] = emit(renumbered(instr, new))
    return replace(loop, body=tuple(body))


def _corrected(
    emit: Callable[[Instr], ValueId],
    arg: ValueId,
    mean: ValueId,
    share: ValueId,
    dtype: torch.dtype,
) -> tuple[ValueId, ValueId]:
    """Mean and sum of squared deviations, from the deviations from a rounded mean. Those from a
    large one are scaled by a power of two: squares of what is its rounding would overflow."""

    def point(op: str, *args: ValueId) -> ValueId:
        return emit(Point(op, args, dtype))

    def number(value: float) -> ValueId:
        return emit(Const(value, dtype))

    large = emit(Point("gt", (point("abs", mean), number(LARGE[dtype])), torch.bool))
    scale = point("where", large, number(1 / LARGE[dtype]), number(1.0))
    back = point("where", large, number(LARGE[dtype]), number(1.0))
    gap = point("fma", arg, scale, point("neg", point("mul", mean, scale)))
    left = emit(Reduce("sum", gap, dtype))
    squares = emit(Reduce("sum", point("mul", gap, gap), dtype))
    shift = point("mul", left, share)
    apart = point("sub", squares, point("mul", left, shift))
    least = point("mul", squares, number(ROUNDING[dtype]))
    rounding = emit(Point("lt", (apart, least), torch.bool))  # NaN is none of it, nor is infinity
    around = point("where", rounding, number(0.0), apart)
    bounded, finite = (emit(Point("isfinite", (v,), torch.bool)) for v in (squares, left))
    around = point("mul", point("where", bounded, around, squares), point("mul", back, back))
    refined = point("add", mean, point("mul", shift, back))
    return point("where", finite, refined, mean), around


def _first(body: list[Instr], along: Iterable[Axis], arg: ValueId) -> ValueId:
    """Append the value of `arg` at the start of the row, and give its position."""
    start = {axis.var: IntegerConstant(0) for axis in along}
    needed = {arg}
    for position in range(arg, -1, -1):
        if position in needed and not isinstance(body[position], Reduce | ReducePart):
            needed.update(operands(body[position]))
    new: dict[ValueId, ValueId] = {}
    for position in sorted(needed):
        made = instr = body[position]
        if isinstance(instr, Scan):  # of one number: itself
            made = Point("cast", (new[instr.arg],), instr.dtype)
        elif not isinstance(instr, Reduce | ReducePart):
            made = reindexed(renumbered(instr, new), lambda index: index.substitute(start))
        new[position] = position if made == instr else len(body)
        if made != instr:
            body.append(made)
    return new[arg]


def _sums(
    emit: Callable[[Instr], ValueId], arg: ValueId, first: ValueId, count: int | Expr
) -> tuple[ValueId, ValueId]:
    """Mean and sum of squared deviations of float32 numbers from two sums in float64 of how far
    they are from the first."""
    wide = torch.float64
    start = emit(Point("cast", (first,), wide))
    value = emit(Point("sub", (emit(Point("cast", (arg,), wide)), start), wide))
    total = emit(Reduce("sum", value, wide))
    squares = emit(Reduce("sum", emit(Point("mul", (value, value), wide)), wide))
    size = emit(IndexValue(count, wide) if isinstance(count, Expr) else Const(float(count), wide))
    shift = emit(Point("div", (total, size), wide))
    apart = emit(Point("sub", (squares, emit(Point("mul", (total, shift), wide))), wide))
    around = emit(Point("maximum", (apart, emit(Const(0.0, wide))), wide))
    mean = emit(Point("add", (start, shift), wide))
    narrow = (emit(Point("cast", (v,), torch.float32)) for v in (mean, around))
    return next(narrow), next(narrow)


def short_ranges(axes: Iterable[Axis]) -> Ranges:
    """Ranges of loop variables; axes of open sizes are assumed to be shorter than 2**30."""
    found: dict[str, tuple[int, int]] = {}
    for axis in axes:
        if isinstance(axis.size, int):
            found[axis.var] = (0, axis.size - 1)
        elif surely_less(axis.size, SHORT):
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
            read = [(v, getattr(loop.body[v], "dtype", None)) for v in _valued(instr)]
            wide = [v for v, dtype in read if dtype is torch.int64]
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


def larger_or_smaller(loop: Loop) -> Loop:
    """A choice of integers by which of the two is larger, as their maximum or minimum: without a
    mask, whose lanes are of another size than theirs."""
    body = list(loop.body)
    for position, instr in enumerate(body):
        if not isinstance(instr, Point) or instr.op != "where" or instr.dtype.is_floating_point:
            continue
        mask = body[instr.args[0]]
        if instr.dtype is torch.bool or not isinstance(mask, Point) or mask.op not in ORDERS:
            continue
        chosen = instr.args[1:]
        if (same := {mask.args: True, mask.args[::-1]: False}.get(chosen)) is not None:
            larger = same == (ORDERS[mask.op] == "gt")
            op = "maximum" if larger else "minimum"
            body[position] = Point(op, chosen, instr.dtype)
    return replace(loop, body=pruned(body)) if body != list(loop.body) else loop


ORDERS = {"lt": "lt", "le": "lt", "gt": "gt", "ge": "gt"}
ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}
"""In float64, whose results for float32 numbers are the right ones once they are rounded again."""


def choose_constants(loop: Loop) -> Loop:
    """Arithmetic on a mask as a number and a constant as a select of two constants."""
    body: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    for position, instr in enumerate(loop.body):
        found = _chosen(loop, instr)
        if found is None:
            body.append(renumbered(instr, new))
        else:
            mask, pair = found
            for value in pair:
                body.append(Const(value, torch.float32))
            body.append(Point("where", (new[mask], len(body) - 2, len(body) - 1), torch.float32))
        new[position] = len(body) - 1
    return replace(loop, body=tuple(body)) if len(body) > len(loop.body) else loop


def _chosen(loop: Loop, instr: Instr) -> tuple[ValueId, tuple[float, float]] | None:
    """The mask, and what comes out where it is set and where it is not."""
    if not isinstance(instr, Point) or instr.dtype != torch.float32 or len(instr.args) != 2:
        return None
    compute = ARITHMETIC.get(instr.op)
    masks = [_mask(loop, a) for a in instr.args]
    given = [loop.body[a] for a in instr.args]
    numbers = [float(i.value) if isinstance(i, Const) else None for i in given]
    if compute is None or masks.count(None) != 1 or numbers.count(None) != 1:
        return None
    mask = next(m for m in masks if m is not None)
    try:
        found = [
            _rounded(compute(*(_rounded(value if n is None else n) for n in numbers)))
            for value in (1.0, 0.0)
        ]
    except (ZeroDivisionError, OverflowError):
        return None
    return mask, (found[0], found[1])


def _rounded(value: float) -> float:
    """The nearest float32; OverflowError where that is none."""
    (found,) = struct.unpack("f", struct.pack("f", value))
    return float(found)


def _mask(loop: Loop, value: ValueId) -> ValueId | None:
    """The mask that a value is the number of."""
    instr = loop.body[value]
    if not isinstance(instr, Point) or instr.op != "cast" or instr.dtype != torch.float32:
        return None
    (source,) = instr.args
    return source if getattr(loop.body[source], "dtype", None) == torch.bool else None


Emit = Callable[[Instr], ValueId]


def exact_in_half(loop: Loop) -> Loop:
    """What half-precision numbers are converted for, and is exact in their dtype, in that dtype.

    The conversion back would round what needs no rounding.
    """
    writer = LoopBody()
    body, new, emit = writer.body, writer.new, writer.append
    found: dict[tuple[ValueId, torch.dtype], ValueId | None] = {}

    def narrow(value: ValueId, dtype: torch.dtype) -> ValueId | None:
        """The value in `dtype`, if that is exact."""
        if (value, dtype) not in found:
            found[value, dtype] = _in_half(loop, value, dtype, new, emit, narrow)
        return found[value, dtype]

    changed = False
    for position, instr in enumerate(loop.body):
        made = None
        if isinstance(instr, Point) and instr.op == "cast" and instr.dtype in ROUNDED:
            source = loop.body[instr.args[0]]
            if isinstance(source, Point) and source.op in EXACT:
                made = narrow(instr.args[0], instr.dtype)
        changed |= made is not None
        new[position] = emit(renumbered(instr, new)) if made is None else made
    return replace(loop, body=pruned(body)) if changed else loop


def _in_half(
    loop: Loop,
    value: ValueId,
    dtype: torch.dtype,
    new: Mapping[ValueId, ValueId],
    emit: Emit,
    narrow: Callable[[ValueId, torch.dtype], ValueId | None],
) -> ValueId | None:
    match loop.body[value]:
        case Const(value=number, dtype=torch.float32):
            rounded = float(torch.tensor(number, dtype=dtype))
            return emit(Const(rounded, dtype)) if rounded == number else None
        case Point(op="cast", args=(source,), dtype=torch.float32):
            same = getattr(loop.body[source], "dtype", None) is dtype
            return new[source] if same else None
        case Point(op=op, args=args, dtype=torch.float32) if op in EXACT:
            data = args[1:] if op == "where" else args
            parts = [narrow(v, dtype) for v in data]
            if any(p is None for p in parts):
                return None
            chosen = [new[args[0]]] if op == "where" else []
            given = (*chosen, *(p for p in parts if p is not None))
            return emit(Point(op, given, dtype))
    return None


WIDE, NARROW = torch.int64, torch.int32


def one_hot(loop: Loop) -> Loop:
    """Sums of what is zero but at one position without a pass; comparisons in 32 bits."""
    axes = loop.r or loop.x
    compared = any(isinstance(i, Point) and i.op in COMPARISONS for i in loop.body)
    if not axes or not compared or not any(isinstance(i, IndexValue) for i in loop.body):
        return loop
    inner = frozenset(a.var for a in loop.r) or {axes[-1].var}
    moving = _moving(loop, inner)
    writer = LoopBody()
    body, new, emit = writer.body, writer.new, writer.append

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
