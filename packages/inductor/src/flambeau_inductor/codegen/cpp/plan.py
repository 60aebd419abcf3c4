"""Decides how a loop becomes C++: levels, the vectorised axis, lanes, threads.

In: a `Loop`. Out: a `Plan`, plain data that `kernel` prints. Invariant: an instruction that depends
on the vectorised axis is a vector, every other one is a scalar; an instruction of level `p` needs
the results of `p` passes over the reduction axes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod

import torch

from flambeau_inductor.codegen.cpp.dtypes import held
from flambeau_inductor.codegen.cpp.errors import CppUnsupported
from flambeau_inductor.codegen.cpp.forms import RULES, Form
from flambeau_inductor.codegen.cpp.lanes import lane_step
from flambeau_inductor.codegen.cpp.points import COST, needs_error_flag
from flambeau_inductor.codegen.cpp.scratch import kept_values
from flambeau_inductor.indexing import Expr, Ranges, hint, is_open, symbols_in, to_c
from flambeau_inductor.ir.loops import (
    RANDOM,
    Axis,
    Check,
    IndexValue,
    Instr,
    Load,
    Loop,
    Part,
    Point,
    Reduce,
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import operands

# below this many operations on elements a second thread costs more than it brings
THREAD_WORK = 65536
# with fewer pieces of x than this the passes over r are split instead
FEW_ROWS = 16
# vectors of columns side by side: a row of 64 is a run of 4 KiB
TILES = (64, 32, 16, 8, 4, 2)
# as many pieces are to be left, or two for each processor where that is less
COLUMN_PIECES = 16
# bytes of what is held for the columns of a tile while their rows go by
TILE_BYTES = 24 << 10
# fewer rows than this are over before it matters where their accumulators are
MANY_ROWS = 32
# elements that an axis of an open size is planned for at least
LIKELY = 1024

# scans that take longer to compute than to read and store
COSTLY = frozenset({"logsumexp"})

Axes = frozenset[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `kernel` needs to know about the loop.

    `sizes` of axes whose size is open are for estimates; the text has their `bound`, and what must
    hold for every size asks `exact`. `cost` is in operations on
    elements; `private`: axes along which points never meet in
    memory; `serial`: points may meet in memory, so one thread runs
    them all; `split_rows`: threads share a row rather than the rows;
    `form`: what was asked for instead of what the rules say.
    """

    loop: Loop
    sizes: dict[str, int]
    deps: tuple[Axes, ...]
    level: tuple[int, ...]
    vector: str | None
    width: int
    cost: int
    private: Axes
    serial: bool
    errors: bool
    split_rows: bool
    scratch: frozenset[ValueId]
    form: Form = RULES

    def is_vector(self, value: ValueId) -> bool:
        """Whether the value has one number per lane."""
        return self.vector is not None and self.vector in self.deps[value]

    def is_element(self, value: ValueId) -> bool:
        """Whether the value changes along a reduction axis."""
        return any(a.var in self.deps[value] for a in self.loop.r)

    @property
    def ranges(self) -> Ranges:
        """Ranges of the loop variables, for the printers."""
        return {a.var: (0, a.size - 1) for a in self.axes}

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes."""
        return (*self.loop.x, *self.loop.r)

    def size(self, var: str) -> int | Expr:
        """The size of an axis."""
        return next(a.size for a in self.axes if a.var == var)

    def exact(self, var: str) -> int | None:
        """The size of an axis, None where it is open."""
        size = self.size(var)
        return size if isinstance(size, int) else None

    def bound(self, var: str) -> str:
        """The size of an axis as C++."""
        return to_c(self.size(var), {})

    @property
    def looks(self) -> bool:
        """Whether it looks at positions as it goes."""
        return any(isinstance(instr, Check) for instr in self.loop.body)

    @property
    def open(self) -> bool:
        """Whether some axis has an open size."""
        return is_open(a.size for a in self.axes)

    @property
    def length(self) -> int | Expr:
        """Elements of a row."""
        return prod(a.size for a in self.loop.r)

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the open sizes that the kernel takes."""
        found: set[str] = set()
        for axis in self.axes:
            found.update(s.name for s in symbols_in(axis.size))
        for instr in self.loop.body:
            if isinstance(instr, Load | Store | IndexValue):
                found.update(s.name for s in symbols_in(instr.index))
        return tuple(sorted(found, key=lambda name: (len(name), name)))


def plan(loop: Loop, vector_bytes: int, form: Form = RULES) -> Plan:
    """Choose levels, vector axis, width and parallel form for `loop`, as far as `form` does not."""
    vector_bytes = form.vector_bytes or vector_bytes
    if form.turned:
        loop = turned(loop)
    sizes = {a.var: _likely(a) for a in (*loop.x, *loop.r)}
    deps, level = _dependences(loop)
    errors = any(
        isinstance(i, Check)
        or (isinstance(i, Point) and needs_error_flag(i.op, result_dtype(loop.body[i.args[-1]])))
        for i in loop.body
    )
    private = _private(loop, sizes)
    serial = bool(loop.x) and loop.x[0].var not in private
    vector, width = None, 1
    if not errors:
        vector, width = _vector_axis(loop, sizes, deps, vector_bytes, form)
    work = prod(sizes.values()) * sum(cost(i) for i in loop.body)
    rows = prod(sizes[a.var] for a in loop.x)
    if loop.x and vector == loop.x[-1].var:
        rows = -(-rows // width)
    few = rows < FEW_ROWS and not is_open(a.size for a in loop.x)
    scans = any(isinstance(i, Scan) for i in loop.body)
    split = bool(loop.r) and few and not scans and work >= 2 * THREAD_WORK and not serial
    scratch: frozenset[ValueId] = frozenset()
    if loop.r and not split and vector is not None and vector == loop.r[-1].var:
        scratch = kept_values(loop, deps, level)
    return Plan(
        loop, sizes, deps, level, vector, width, work, private, serial, errors, split, scratch, form
    )


def turned(loop: Loop) -> Loop:
    """The loop with the last two axes of its result in the other order."""
    *outer, one, other = loop.x
    return replace(loop, x=(*outer, other, one))


def _likely(axis: Axis) -> int:
    """What a loop is planned for: an open axis will be long some day, whatever it is now."""
    return axis.size if isinstance(axis.size, int) else max(hint(axis.size), LIKELY)


def result_dtype(instr: Instr) -> torch.dtype:
    """The dtype of an instruction's value."""
    if isinstance(instr, Store):
        raise CppUnsupported("a store has no value")
    return instr.dtype


def cost(instr: Instr) -> int:
    """Relative cost of one element."""
    if isinstance(instr, Point):
        return COST.get(instr.op, 1)
    return 1 if isinstance(instr, Load | Store | Reduce | Scan) else 0


def _dependences(loop: Loop) -> tuple[tuple[Axes, ...], tuple[int, ...]]:
    axes = frozenset(a.var for a in (*loop.x, *loop.r))
    outer = frozenset(a.var for a in loop.x)
    deps: list[Axes] = []
    level: list[int] = []
    for instr in loop.body:
        own: Axes = frozenset()
        height = 0
        if isinstance(instr, Load | Store | IndexValue):
            own = instr.index.vars & axes
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


def _vector_axis(
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
        if isinstance(instr, Store | Part) or position in counters:
            continue
        if isinstance(instr, Reduce):
            if instr.kind not in ("argmax", "argmin"):
                size = max(size, held(instr.dtype).size)
            elif var in own:
                size = max(size, 8)
        elif var in own:
            size = max(size, held(instr.dtype).size)
    return size


def _private(loop: Loop, sizes: dict[str, int]) -> Axes:
    """The axes of `x` along which no two points store to one element."""
    found = frozenset(a.var for a in loop.x)
    for instr in loop.body:
        if isinstance(instr, Store) and instr.scattered:
            apart: set[str] = set()
            for index in instr.apart:
                apart |= _told_apart(index, sizes)
            found &= apart
        elif isinstance(instr, Store) and instr.mode != "set":
            return frozenset()
    return found


def _told_apart(index: Expr, sizes: dict[str, int]) -> set[str]:
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


def columns_at_once(plan: Plan) -> int:
    """How many vectors of columns a reduction over rows takes side by side."""
    loop = plan.loop
    if not loop.r or not loop.x or plan.vector != loop.x[-1].var or plan.split_rows:
        return 1
    vectors = plan.sizes[plan.vector] // plan.width
    if plan.form.columns is not None:
        return max(1, min(plan.form.columns, vectors))
    others = prod(plan.sizes[a.var] for a in loop.x[:-1])
    pieces = min(COLUMN_PIECES, 2 * (os.cpu_count() or 1))
    most = vectors if prod(plan.sizes[a.var] for a in loop.r) >= MANY_ROWS else 4
    if _held(plan) * TILES[0] > TILE_BYTES:
        most = min(most, max(TILE_BYTES // _held(plan), COLUMN_PIECES))
    for tile in TILES:
        if tile <= min(most, vectors) and others * vectors // tile >= pieces:
            return tile
    return 1


def _held(plan: Plan) -> int:
    """Bytes of accumulators, and of values of columns that elements are made with, a vector."""
    body = plan.loop.body
    used = {v for p, i in enumerate(body) if plan.is_element(p) for v in operands(i)}
    held_back = sum(plan.is_vector(v) and not plan.is_element(v) for v in used)
    reduced = sum(isinstance(i, Reduce | Scan) for i in body)
    return (2 * reduced + held_back) * plan.width * 8


def shared_axis(plan: Plan) -> str | None:
    """An inner axis whose parts threads may take, each with all points of the axes around it.

    Rows that are added where others may be: a thread adds its columns of all of them, in order.
    """
    if not plan.serial or plan.loop.r:
        return None
    wide = [a.var for a in plan.loop.x[1:] if a.var in plan.private and plan.sizes[a.var] >= 32]
    return wide[-1] if wide else None


def blocked_axis(plan: Plan) -> str | None:
    """The outer axis along which memory is contiguous for an access that the lanes cross.

    A transposition reads along one axis and writes along another: blocks of both stay in cache.
    """
    loop = plan.loop
    if loop.r or plan.vector is None or len(loop.x) < 2:
        return None
    for instr in loop.body:
        if not isinstance(instr, Load | Store) or instr.index.coefficient(plan.vector) in (0, 1):
            continue
        for axis in reversed(loop.x[:-1]):
            if instr.index.coefficient(axis.var) == 1 and plan.sizes[axis.var] >= 16:
                return axis.var
    return None
