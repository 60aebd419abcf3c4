"""Plan of a C++ loop: vector axis, parallel axes, scratch rows, loop blocking.

In: a `Loop`. Out: a `LoopPlan`, plain data that `unit` prints. Invariant: an instruction that
depends on the vectorised axis is a vector, every other one is a scalar; an instruction of level `p`
needs the results of `p` passes over the reduction axes; a value in a scratch row is written in the
first pass that needs it and read in the later ones.

Segments of the vector axis on which masks of positions are known. In: a `LoopPlan`. Out:
`Segment`s, each with the plan of what is done there; none where the masks are to be computed.
Invariant: together they have each point of the axis once, in order; an instruction keeps its
position in the body. A padded or a joined tensor reads from where a comparison of positions says:
compared for each vector, its loads are lane by lane wherever a mask cuts one.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from math import prod

import torch

from flambeau_inductor.codegen.cpp.analysis.variant import RULES, Form
from flambeau_inductor.codegen.cpp.analysis.vectorization import (
    Axes,
    cost,
    dependences,
    result_dtype,
    vector_axis,
    whole_blocks,
)
from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.pointwise import cost_of, needs_error_flag
from flambeau_inductor.indexing import (
    Expr,
    Ranges,
    Var,
    as_expr,
    hint,
    is_open,
    surely_less,
    symbols_in,
    to_c,
)
from flambeau_inductor.ir.loops import (
    RANDOM,
    Axis,
    Check,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Scan,
    Store,
    ValueId,
)
from flambeau_inductor.ir.operands import operands, renumbered


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


SCRATCH_BYTES = 1 << 17
# a value cheaper than this is computed again
KEEP_COST = 6


def kept_values(loop: Loop, deps: tuple[Axes, ...], level: tuple[int, ...]) -> frozenset[ValueId]:
    """The values worth a row, dearest first; an open row is assumed to be short enough."""
    inner = frozenset(a.var for a in loop.r)
    length = prod(a.size for a in loop.r)
    chosen: set[ValueId] = set()
    room: int | Expr = SCRATCH_BYTES

    def needs() -> dict[ValueId, set[int]]:
        """In which passes each element value is computed or recalled."""
        found: dict[ValueId, set[int]] = {}
        have: set[ValueId] = set()
        for number in range(max(level, default=0) + 1):
            wanted: set[ValueId] = set()
            for position, instr in enumerate(loop.body):
                if isinstance(instr, Reduce) and level[instr.arg] == number:
                    wanted.add(instr.arg)
                elif isinstance(instr, Store) and level[position] == number:
                    wanted.update(operands(instr) if deps[position] & inner else ())
            for position in range(len(loop.body) - 1, -1, -1):
                if position in wanted and deps[position] & inner:
                    found.setdefault(position, set()).add(number)
                    if position not in have:
                        wanted.update(operands(loop.body[position]))
            have |= chosen & wanted
        return found

    def price(value: ValueId) -> int:
        """What computing `value` once more costs, given what is already kept."""
        total, seen, stack = 0, set[ValueId](), [value]
        while stack:
            position = stack.pop()
            if position in seen or not deps[position] & inner:
                continue
            seen.add(position)
            if position in chosen and position != value:
                total += 1
                continue
            instr = loop.body[position]
            total += cost_of(instr.op) if isinstance(instr, Point) else isinstance(instr, Load)
            stack.extend(operands(instr))
        return total

    while True:
        dearest: tuple[int, ValueId, int | Expr] | None = None
        for value, passes in needs().items():
            if len(passes) < 2 or value in chosen or loop.r[-1].var not in deps[value]:
                continue
            size = length * spelling_of(result_dtype(loop.body[value])).size
            dear = price(value)
            better = dear >= KEEP_COST and (dearest is None or dear > dearest[0])
            if better and surely_less(size - 1, room):
                dearest = dear, value, size
        if dearest is None:
            return frozenset(chosen)
        chosen.add(dearest[1])
        room = room - dearest[2]


# below this many operations on elements a second thread costs more than it brings
THREAD_WORK = 65536
# with fewer pieces of x than this, or than two for each processor, the passes over r are split
FEW_ROWS = 16
# elements that an axis of an open size is planned for at least
LIKELY = 1024


@dataclass(frozen=True, slots=True)
class LoopPlan:
    """Everything that `kernel` needs to know about the loop.

    `sizes` of open axes are estimates; the text has their `bound`, and what must hold for every
    size uses `exact`. `cost` is in operations on elements; `private`: axes along which points never
    share memory; `serial`: points may, so one thread runs them all; `split_rows`: threads share a
    row rather than the rows; `form`: choices in place of the rules'.
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


def plan(loop: Loop, vector_bytes: int, form: Form = RULES) -> LoopPlan:
    """Choose levels, vector axis, width and parallel form for `loop`, as far as `form` does not."""
    vector_bytes = form.vector_bytes or vector_bytes
    if form.transposed:
        loop = transposed(loop)
    # an open axis will be long some day, whatever it is now
    sizes = {
        a.var: a.size if isinstance(a.size, int) else max(hint(a.size), LIKELY)
        for a in (*loop.x, *loop.r)
    }
    deps, level = dependences(loop)
    errors = any(
        isinstance(i, Check)
        or (isinstance(i, Point) and needs_error_flag(i.op, result_dtype(loop.body[i.args[-1]])))
        for i in loop.body
    )
    private = private_axes(loop, sizes)
    serial = bool(loop.x) and loop.x[0].var not in private
    vector, width = None, 1
    if not errors:
        vector, width = vector_axis(loop, sizes, deps, vector_bytes, form)
    work = prod(sizes.values()) * sum(cost(i) for i in loop.body)
    rows = prod(sizes[a.var] for a in loop.x)
    if loop.x and vector == loop.x[-1].var:
        rows = -(-rows // width)
    few = rows < min(FEW_ROWS, 2 * (os.cpu_count() or 1)) and not is_open(a.size for a in loop.x)
    scans = any(isinstance(i, Scan) for i in loop.body)
    split = bool(loop.r) and few and not scans and work >= 2 * THREAD_WORK and not serial
    scratch: frozenset[ValueId] = frozenset()
    if loop.r and not split and vector is not None and vector == loop.r[-1].var:
        scratch = kept_values(loop, deps, level)
    return LoopPlan(
        loop, sizes, deps, level, vector, width, work, private, serial, errors, split, scratch, form
    )


def transposed(loop: Loop) -> Loop:
    """The loop with the last two axes of its result in the other order."""
    *outer, one, other = loop.x
    return replace(loop, x=(*outer, other, one))


def shared_axis(plan: LoopPlan) -> str | None:
    """An inner axis whose parts threads may take, each with all points of the axes around it.

    Rows that are added where others may be: a thread adds its columns of all of them, in order.
    """
    if not plan.serial or plan.loop.r:
        return None
    wide = [a.var for a in plan.loop.x[1:] if a.var in plan.private and plan.sizes[a.var] >= 32]
    return wide[-1] if wide else None


def blocked_axis(plan: LoopPlan) -> str | None:
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


MOST = 8
"""Segments of an axis: each has a copy of the body."""
LONGEST = 96
"""Instructions of a body that is copied."""
MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
AND, OR = ("bitwise_and", "logical_and"), ("bitwise_or", "logical_or")
NOT = ("bitwise_not", "logical_not")


@dataclass(frozen=True, slots=True)
class Segment:
    """From `low` to `high`, as C++; `size` is the number of its points where that is known.
    `unread`: instructions that it has no use for."""

    low: str
    high: str
    size: int | None
    plan: LoopPlan
    unread: frozenset[ValueId]


def segments(plan: LoopPlan) -> tuple[Segment, ...]:
    """Those of the vector axis, if some loads are masked along it by nothing but positions."""
    loop, var = plan.loop, plan.vector
    size = plan.exact(var) if var is not None else None
    if var is None or size is None or loop.r or plan.serial or var != loop.x[-1].var:
        return ()
    if len(loop.body) > LONGEST or not _cut(plan, var):
        return ()
    for instr in loop.body:
        if isinstance(instr, Point) and instr.op in RANDOM:
            return ()
        if isinstance(instr, Load | Store | IndexValue) and not _linear(instr.index, var):
            return ()
    compared = {v: c for v, i in enumerate(loop.body) if (c := _compared(plan, i, var))}
    ends = {_key(b): b for parts, _ in compared.values() for b in parts}
    fixed = {b for b in ends.values() if isinstance(b, int)}
    found: list[Segment] = []
    if len(fixed) == len(ends):
        cuts = [0, *sorted(b for b in fixed if 0 < b < size), size]
        if len(cuts) < 3 or len(cuts) - 1 > MOST:
            return ()
        for low, high in itertools.pairwise(cuts):
            known = {
                v: _holds(op, [isinstance(b, int) and high <= b for b in parts])
                for v, (parts, op) in compared.items()
            }
            found.append(Segment(str(low), str(high), high - low, *_known(plan, known)))
    elif len(ends) == 1:
        (cut,) = ends.values()
        text = to_c(as_expr(cut), plan.ranges)
        text = f"(({text}) < 0 ? 0 : ({text}) > {size} ? {size} : ({text}))"
        for begin, end, before in (("0", text, True), (text, str(size), False)):
            known = {v: _holds(op, [before]) for v, (_, op) in compared.items()}
            found.append(Segment(begin, end, None, *_known(plan, known)))
    return () if any(_cut(s.plan, var) for s in found) else tuple(found)


def _cut(plan: LoopPlan, var: str) -> bool:
    """Whether a load has a mask that a vector may be cut by."""
    for instr in plan.loop.body:
        if not isinstance(instr, Load) or instr.mask is None or not plan.is_vector(instr.mask):
            continue
        mask = plan.loop.body[instr.mask]
        if isinstance(mask, Point) and len(mask.args) == 2:
            place, bound = (plan.loop.body[a] for a in mask.args)
            if isinstance(place, IndexValue) and isinstance(bound, Const):
                whole = whole_blocks(place.index - int(bound.value), var, plan.width)
                if whole and mask.op in ("lt", "ge"):
                    continue
        return True
    return False


def _linear(index: Expr, var: str) -> bool:
    return index.coefficient(var) is not None


def _key(bound: int | Expr) -> object:
    return bound if isinstance(bound, int) else bound.key


def _compared(plan: LoopPlan, instr: Instr, var: str) -> tuple[tuple[int | Expr, ...], str] | None:
    """Where the truth of a comparison along the axis changes, and what it is called: `below` that
    bound or `above`; `eq` and `ne` have two bounds."""
    if not isinstance(instr, Point) or instr.op not in MIRRORED or len(instr.args) != 2:
        return None
    sides = [_position(plan.loop.body[a]) for a in instr.args]
    if sides[0] is None or sides[1] is None:
        return None
    gap = sides[0] - sides[1]
    step = gap.coefficient(var)
    if step not in (1, -1):
        return None
    op = instr.op if step == 1 else MIRRORED[instr.op]
    rest = gap - Var(var) * step
    bound = as_expr(0) - rest if step == 1 else rest
    if any(v.startswith("%") for v in bound.vars):
        return None
    more = 1 if op in ("le", "gt") else 0
    first = _plain(bound + more)
    if op in ("eq", "ne"):
        return (first, _plain(bound + 1)), op
    return (first,), "below" if op in ("lt", "le") else "above"


def _position(instr: Instr) -> Expr | None:
    if isinstance(instr, IndexValue) and instr.dtype in (torch.int32, torch.int64):
        return instr.index
    if isinstance(instr, Const) and instr.dtype in (torch.int32, torch.int64):
        return as_expr(int(instr.value))
    return None


def _plain(bound: Expr) -> int | Expr:
    return bound if bound.vars else bound.value  # type: ignore[attr-defined,no-any-return]


def _holds(op: str, below: list[bool]) -> bool:
    """The comparison on a segment that lies below its bounds or above them."""
    if op in ("eq", "ne"):
        return (not below[0] and below[1]) == (op == "eq")
    return below[0] == (op == "below")


def _known(plan: LoopPlan, masks: dict[ValueId, bool]) -> tuple[LoopPlan, frozenset[ValueId]]:
    """The plan where some masks are constants, and what nobody reads then."""
    known: dict[ValueId, bool | None] = {}
    same: dict[ValueId, ValueId] = {}
    body: list[Instr] = []
    for position, instr in enumerate(plan.loop.body):
        same[position] = position
        made = renumbered(instr, same)
        truth = masks.get(position)
        if isinstance(instr, Const) and instr.dtype is torch.bool:
            truth = bool(instr.value)
        match made:
            case Load(mask=int(mask)) if (on := known.get(mask)) is not None:
                made = replace(made, mask=None) if on else Const(made.other, made.dtype)
            case Point(op="where", args=(mask, one, other)) if (on := known.get(mask)) is not None:
                same[position] = one if on else other
            case Point(op=op, args=(mask,)) if op in NOT and known.get(mask) is not None:
                truth = not known[mask]
            case Point(op=op, args=(one, other)) if op in AND or op in OR:
                decides = op in OR
                if decides in (known.get(one), known.get(other)):
                    truth = decides
                elif known.get(one) is not None:
                    same[position], truth = other, known.get(other)
                elif known.get(other) is not None:
                    same[position], truth = one, known.get(one)
        if truth is not None and isinstance(instr, Point) and instr.dtype is torch.bool:
            made = Const(truth, torch.bool)
            known[position] = truth
            same[position] = position
        body.append(made)
    needed: set[ValueId] = set()
    for position in range(len(body) - 1, -1, -1):
        instr = body[position]
        if isinstance(instr, Store) or position in needed:
            needed.update(operands(instr))
        elif not isinstance(instr, Const):
            body[position] = Const(0, instr.dtype)
    loop = replace(plan.loop, body=tuple(body))
    unread = frozenset(v for v, i in enumerate(body) if not isinstance(i, Store)) - needed
    return replace(plan, loop=loop, deps=dependences(loop)[0]), unread
