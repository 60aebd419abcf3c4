"""Vectorisation analysis: dependences, lane strides, the vector axis and its width.

In: a `Loop` and its sizes. Out: what each instruction depends on, its pass and cost; the step of an
index between neighbouring lanes, None where it varies; the axis to vectorise and its width.
Invariant: a lane step holds for every block of lanes that starts at a multiple of the width; a
vector has room for the widest number in it.
"""

from __future__ import annotations

import torch

from flambeau_inductor.codegen.cpp.analysis.variant import Form
from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.pointwise import cost_of
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.indexing import Add, Expr, FloorDiv, IntegerConstant, Mod, Mul, Var, terms_of
from flambeau_inductor.ir.loops import (
    RANDOM,
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
    axes_of,
)
from flambeau_inductor.ir.operands import operands

Axes = frozenset[str]


def result_dtype(instr: Instr) -> torch.dtype:
    """The dtype of an instruction's value."""
    if isinstance(instr, Store):
        raise CppUnsupported("a store has no value")
    return instr.dtype


def cost(instr: Instr) -> int:
    """Relative cost of one element."""
    if isinstance(instr, Point):
        return cost_of(instr.op)
    return 1 if isinstance(instr, Load | Store | Reduce | Scan) else 0


def dependences(loop: Loop) -> tuple[tuple[Axes, ...], tuple[int, ...]]:
    axes = frozenset(a.var for a in (*loop.x, *loop.r))
    outer = frozenset(a.var for a in loop.x)
    deps: list[Axes] = []
    level: list[int] = []
    for instr in loop.body:
        own = axes_of(loop, instr)
        height = 0
        for value in operands(instr):
            own |= deps[value]
            height = max(height, level[value])
        if isinstance(instr, Reduce):
            # done in the pass of its argument, known to the next
            own, height = outer, height + 1
        elif isinstance(instr, Scan):
            own |= axes - outer
        deps.append(own)
        level.append(height)
    return tuple(deps), tuple(level)


def lane_step(expr: Expr, var: str, width: int) -> int | None:
    """Step of `expr` when `var` moves by one inside a block; None when it is not constant."""
    if var not in expr.vars:
        return 0
    if isinstance(expr, Var):
        return 1
    if isinstance(expr, Add):
        total = 0
        for arg in expr.args:
            step = lane_step(arg, var, width)
            if step is None:
                return None
            total += step
        return total
    if isinstance(expr, Mul) and isinstance(expr.args[0], IntegerConstant) and len(expr.args) == 2:
        step = lane_step(expr.args[1], var, width)
        return None if step is None else step * expr.args[0].value
    if isinstance(expr, FloorDiv | Mod) and isinstance(expr.b, IntegerConstant):
        step = lane_step(expr.a, var, width)
        if step == 0:
            return 0
        if step is None or step < 0:
            return None
        reach = step * width
        if expr.b.value % reach == 0 and _divisible(expr.a, var, width, reach):
            return 0 if isinstance(expr, FloorDiv) else step
    return None


def whole_blocks(expr: Expr, var: str, width: int) -> bool:
    """Whether a block of lanes lies on one side of zero: `expr < 0` is the same for all of them."""
    return lane_step(expr, var, width) == 1 and _divisible(expr, var, width, width)


def _divisible(expr: Expr, var: str, width: int, by: int) -> bool:
    """Whether `expr` is a multiple of `by` at the first lane of every block."""
    terms, constant = terms_of(expr)
    if constant % by:
        return False
    return all(
        (c * (width if isinstance(t, Var) and t.name == var else 1)) % by == 0
        for t, c in terms.items()
    )


TRANSPOSED = (
    *(torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64),
)
"""Dtypes of what is transposed in registers."""
SHORT = frozenset([torch.int8, torch.uint8, torch.int16])
# what is one instruction, or a few, for a whole vector of them
SHORT_OPS = frozenset(
    [
        *("add", "sub", "mul", "neg", "abs", "sign", "maximum", "minimum"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
    ]
)
# scans that take longer to compute than to read and store
COSTLY = frozenset({"logsumexp"})


def vector_axis(
    loop: Loop, sizes: dict[str, int], deps: tuple[Axes, ...], vector_bytes: int, form: Form
) -> tuple[str | None, int]:
    """The innermost axis of r or of x, whichever moves memory in order; none where neither pays."""
    best: tuple[float, str | None, int] = (0.0, None, 1)
    scans = [i.kind for i in loop.body if isinstance(i, Scan)]
    cheap = bool(scans) and not set(scans) & COSTLY
    for kind, axes in (("r", () if scans else loop.r), ("x", loop.x)):
        if not axes or form.lanes not in (None, kind):
            continue
        var = axes[-1].var
        width = vector_bytes // _lane_size(loop, var, deps)
        if width < 2 or sizes[var] < min(width, 4):
            continue
        if cheap and not in_order(loop, var):
            continue  # contiguous scalars are faster than strided lanes
        gain = _gain(loop, var, width, deps) * min(1.0, sizes[var] / width)
        if gain > best[0]:
            best = gain, var, width
    return best[1], best[2]


def in_order(loop: Loop, var: str) -> bool:
    """Whether lanes along `var` find their numbers side by side, or one for all of them."""
    accesses = [i.index for i in loop.body if isinstance(i, Load | Store)]
    return all(index.coefficient(var) in (0, 1) for index in accesses)


def _gain(loop: Loop, var: str, width: int, deps: tuple[Axes, ...]) -> float:
    gain = 0.0
    for instr, own in zip(loop.body, deps):
        if var not in own:
            # computed once for all the lanes
            gain += cost(instr) if isinstance(instr, Point) else 0.5
        elif isinstance(instr, Load | Store):
            scattered = any(v.startswith("%") and var in deps[int(v[1:])] for v in instr.index.vars)
            ways = (0, 1, -1) if isinstance(instr, Load) else (0, 1)
            regular = lane_step(instr.index, var, width) in ways and not scattered
            gain += 1.0 if regular else 0.0 if _transposable(loop, instr) else -1.0
        else:
            gain += 0.9 * cost(instr)
    return gain


def _transposable(loop: Loop, instr: Instr) -> bool:
    """Whether squares of what is loaded are read in order along another axis, and transposed."""
    if not isinstance(instr, Load) or instr.mask is not None or instr.dtype not in TRANSPOSED:
        return False
    return any(instr.index.coefficient(a.var) == 1 for a in loop.x[:-1])


def _lane_size(loop: Loop, var: str, deps: tuple[Axes, ...]) -> int:
    """Bytes of the widest lane that is a vector along `var`; at least four where there are masks,
    conversions or accumulators, whose lanes are 32 bits wide."""
    size = _short_numbers(loop, var, deps) or 4
    counters = _counters(loop)
    for position, (instr, own) in enumerate(zip(loop.body, deps)):
        if isinstance(instr, Store | ReducePart) or position in counters:
            continue
        if isinstance(instr, Reduce):
            if instr.kind not in ("argmax", "argmin"):
                size = max(size, spelling_of(instr.dtype).size)
            elif var in own:
                size = max(size, 8)
        elif var in own:
            size = max(size, spelling_of(instr.dtype).size)
    return size


def _short_numbers(loop: Loop, var: str, deps: tuple[Axes, ...]) -> int:
    """Bytes of the widest, where vectors along `var` are full, and of integers of less than four
    bytes alone; else 0."""
    widest = 1
    for instr, own in zip(loop.body, deps):
        if isinstance(instr, Store):
            # what is stored may be one number for all lanes
            dtype = result_dtype(loop.body[instr.value])
            if dtype not in SHORT:
                return 0
            widest = max(widest, dtype.itemsize)
            continue
        if var not in own:
            continue
        if not isinstance(instr, Load | Const | Point) or instr.dtype not in SHORT:
            return 0
        if isinstance(instr, Point) and instr.op not in SHORT_OPS:
            return 0
        if isinstance(instr, Load) and (instr.mask is not None and var in deps[instr.mask]):
            return 0
        widest = max(widest, instr.dtype.itemsize)
    (size,) = (a.size for a in (*loop.x, *loop.r) if a.var == var)
    full = isinstance(size, int) and size >= 64 // widest
    return widest if full and not loop.r else 0


def _counters(loop: Loop) -> set[ValueId]:
    """Positions that only random numbers are made of: those are given the first lane's alone."""
    found: set[ValueId] = set()
    for instr in loop.body:
        if isinstance(instr, Point) and instr.op in RANDOM:
            found.add(instr.args[1])
    for instr in loop.body:
        other = operands(instr)
        if isinstance(instr, Point) and instr.op in RANDOM:
            other = instr.args[:1]
        found.difference_update(other)
    return {v for v in found if isinstance(loop.body[v], IndexValue)}
