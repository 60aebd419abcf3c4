"""Loop unrolling of short axes of a sum, on a GPU.

In: loops. Out: the same sums, with the elements of one short axis side by side in the body.
Invariant: the terms are the same, added in another order; what is known of a position on that axis
is decided here: which of several masked loads is made, which arm of a `where` is taken.

Numbers of four bits lie two in a byte. Unpacked by `stack`, their sum goes along an axis of two,
where the byte is looked at twice, each time through a mask; unrolled, bytes follow each other in
memory, are read once as whole vectors, and give two terms. Those that are put together by `cat`
are two halves of one axis, which is cut in two first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from flambeau_inductor.driver import PassContext
from flambeau_inductor.indexing import IntegerConstant, Var, bounds, simplify
from flambeau_inductor.ir.loops import (
    Axis,
    Check,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Store,
    ValueId,
    looked_up,
)
from flambeau_inductor.ir.operands import LoopBody, operands, pruned, renumbered
from flambeau_inductor.ir.program import Program, RunLoop, Step
from flambeau_inductor.ir.steps import rescheduled, touched
from flambeau_inductor.schedule.fuse.loop_order import normalised, ranges_of, substituted

SHORT = 4
"""Points of an axis that is unrolled, at most."""

DECIDED: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "logical_and": lambda a, b: bool(a and b),
    "logical_or": lambda a, b: bool(a or b),
}  # fmt: skip


def unroll_short_axes(context: PassContext, program: Program) -> tuple[Program, int]:
    """Unroll short axes of sums on a GPU along which masks choose what is read."""
    devices = {buffer.name: buffer.layout.device.type for buffer in program.buffers}
    steps, split_on = list[Step](), {*context.limits.split_on}
    for step in program.steps:
        there = isinstance(step, RunLoop) and {devices[name] for name in touched(step)[1]}
        if isinstance(step, RunLoop) and there and there <= split_on:
            made = unrolled(step.loop)
            steps.append(step if made is step.loop else RunLoop(made))
        else:
            steps.append(step)
    return rescheduled(program, steps)


def unrolled(loop: Loop) -> Loop:
    """The loop with its short axes unrolled; itself where it has none."""
    sums = [i for i in loop.body if isinstance(i, Reduce)]
    plain = all(r.kind == "sum" and r.dtype == torch.float32 for r in sums)
    if not sums or not plain:
        return loop
    cut = _cut(loop)
    for axis in reversed(cut.r):
        if (
            isinstance(axis.size, int)
            and 1 < axis.size <= SHORT
            and len(cut.r) > 1
            and _chooses(cut, axis.var)
        ):
            made = _Unrolling(cut, axis).loop()
            return loop if made is None else unrolled(normalised(made))
    return loop


def _cut(loop: Loop) -> Loop:
    """The loop with its axes cut in two where comparisons distinguish a few equal parts."""
    for place, axis in enumerate(loop.r):
        for length in _compared(loop, axis.var):
            if not isinstance(axis.size, int):
                continue
            parts, left = divmod(axis.size, length)
            if left or not 1 < parts <= SHORT or length <= SHORT:
                continue
            outer, inner = Axis(f"{axis.var}o", parts), Axis(f"{axis.var}i", length)
            made = replace(loop, r=(*loop.r[:place], outer, inner, *loop.r[place + 1 :]))
            spelled = {axis.var: Var(outer.var) * length + Var(inner.var)}
            return replace(made, body=substituted(loop.body, spelled, ranges_of(made)))
    return loop


def _compared(loop: Loop, var: str) -> list[int]:
    """Lengths of the parts of an axis in which comparisons of positions end one way."""
    found: list[int] = []
    ranges = ranges_of(loop)
    for instr in loop.body:
        if not isinstance(instr, Point) or instr.op not in DECIDED or len(instr.args) != 2:
            continue
        position, number = (loop.body[arg] for arg in instr.args)
        if isinstance(position, IndexValue) and isinstance(number, Const):
            step = position.index.coefficient(var)
            if not isinstance(step, int) or step < 1 or not isinstance(number.value, int):
                continue
            below = bounds(simplify(position.index - Var(var) * step, ranges), ranges)
            inside = below[0] >= 0 and below[1] is not None and below[1] < step
            if inside and number.value > 0 and number.value % step == 0:
                found.append(number.value // step)
    return found


def _chooses(loop: Loop, var: str) -> bool:
    """Whether a mask of a load depends on the axis."""
    depends: list[bool] = []
    for instr in loop.body:
        own = isinstance(instr, IndexValue) and var in instr.index.vars
        depends.append(own or any(depends[i] for i in operands(instr)))
    return any(isinstance(i, Load) and i.mask is not None and depends[i.mask] for i in loop.body)


@dataclass
class _Unrolling:
    """The body for each point of an axis, side by side; `at` has where its values are, by point."""

    source: Loop
    axis: Axis
    body: LoopBody = field(default_factory=LoopBody)
    at: list[dict[ValueId, ValueId]] = field(default_factory=list)

    def loop(self) -> Loop | None:
        """None where it does more than to sum."""
        assert isinstance(self.axis.size, int)
        self.at = [{} for _ in range(self.axis.size)]
        ranges = ranges_of(self.source)
        for position, instr in enumerate(self.source.body):
            if isinstance(instr, Store) and self.axis.var in instr.index.vars:
                return None
            if not isinstance(instr, Load | Const | IndexValue | Point | Reduce | Store | Check):
                return None
            if isinstance(instr, Reduce):
                total = self._sum([new[instr.arg] for new in self.at], instr.dtype)
                self._same(position, self.body.append(replace(instr, arg=total)))
            elif isinstance(instr, Store):
                if len({new[instr.value] for new in self.at}) > 1:
                    return None
                self._same(position, self.body.append(renumbered(instr, self.at[0])))
            else:
                for point, new in enumerate(self.at):
                    (made,) = substituted((instr,), {self.axis.var: point}, ranges)
                    new[position] = self._put(renumbered(made, new))
        left = tuple(axis for axis in self.source.r if axis is not self.axis)
        return replace(self.source, r=left, body=pruned(self.body.body))

    def _same(self, position: ValueId, value: ValueId) -> None:
        for new in self.at:
            new[position] = value

    def _sum(self, terms: Sequence[ValueId], dtype: torch.dtype) -> ValueId:
        total, *others = terms
        for term in others:
            total = self.body.put(Point("add", (total, term), dtype))
        return total

    def _put(self, instr: Instr) -> ValueId:
        """Where an instruction is, or what it is known to give."""
        body = self.body.body
        if isinstance(instr, IndexValue) and isinstance(instr.index, IntegerConstant):
            return self.body.put(Const(instr.index.value, instr.dtype))
        if isinstance(instr, Load) and instr.mask is not None:
            mask = body[instr.mask]
            if isinstance(mask, Const):
                whole = replace(instr, mask=None, other=0)
                return self.body.put(whole if mask.value else Const(instr.other, instr.dtype))
        if isinstance(instr, Point):
            args = [body[arg] for arg in instr.args]
            if instr.op == "where" and isinstance(args[0], Const):
                return instr.args[1 if args[0].value else 2]
            ends = [self._ends(arg) for arg in args]
            if len(args) == 2 and instr.op in DECIDED and None not in ends:
                made = {DECIDED[instr.op](a, b) for a in ends[0] or () for b in ends[1] or ()}
                monotonic = instr.op not in ("eq", "ne") or all(len({*e}) == 1 for e in ends if e)
                if len(made) == 1 and monotonic:
                    return self.body.put(Const(made.pop(), instr.dtype))
        return self.body.put(instr)

    def _ends(self, instr: Instr) -> tuple[Any, Any] | None:
        """The least and the largest value of a number or a position."""
        if isinstance(instr, IndexValue):
            return None if looked_up(instr.index) else bounds(instr.index, ranges_of(self.source))
        return (instr.value, instr.value) if isinstance(instr, Const) else None
