"""Segments of the vector axis on which masks of positions are known.

In: a `LoopPlan`. Out: `Segment`s, each with the plan of what is done there; none where the masks
are to be computed. Invariant: together they have each point of the axis once, in order; an
instruction keeps its position in the body.

A padded or a joined tensor reads from where a comparison of positions says: compared for each
vector, its loads are lane by lane wherever a mask cuts one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import torch

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan
from flambeau_inductor.codegen.cpp.analysis.vectorization import dependences, whole_blocks
from flambeau_inductor.indexing import Expr, Var, as_expr, to_c
from flambeau_inductor.ir.loops import RANDOM, Const, IndexValue, Instr, Load, Point, Store, ValueId
from flambeau_inductor.ir.operands import operands, renumbered

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
