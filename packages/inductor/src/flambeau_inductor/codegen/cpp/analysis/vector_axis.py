"""Choice of the vector axis and its width.

In: a `Loop`, its sizes and what each instruction depends on. Out: the axis and its width, or None
and 1. Invariant: a vector has room for the widest number that it is to hold.
"""

from __future__ import annotations

from flambeau_inductor.codegen.cpp.analysis.instructions import Axes, cost
from flambeau_inductor.codegen.cpp.analysis.lanes import lane_step
from flambeau_inductor.codegen.cpp.analysis.variant import Form
from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.ir.loops import (
    RANDOM,
    IndexValue,
    Load,
    Loop,
    Point,
    Reduce,
    ReducePart,
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import operands

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
            continue  # one number after the other is read, added and stored sooner than apart
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
            regular = lane_step(instr.index, var, width) in (0, 1) and not scattered
            gain += 1.0 if regular else -1.0
        else:
            gain += 0.9 * cost(instr)
    return gain


def _lane_size(loop: Loop, var: str, deps: tuple[Axes, ...]) -> int:
    """Bytes of the widest lane that is a vector along `var`."""
    size = 4
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
