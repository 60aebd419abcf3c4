"""Operands of loop instructions, and renumbering.

In: instructions and bodies of `Loop`s. Out: the same, renumbered; the values that one reads.
Invariant: an operand is the position of an earlier instruction, whether it stands in a field or,
as the variable `%<position>`, in an index expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flambeau_inductor.indexing import Expr, Var
from flambeau_inductor.ir.loops import (
    Check,
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


def operands(instr: Instr) -> tuple[ValueId, ...]:
    """Positions of the instructions that `instr` uses, those inside its index included."""
    if isinstance(instr, Point):
        return instr.args
    if isinstance(instr, Reduce | Scan | ReducePart | Check):
        return (instr.arg,)
    inside: tuple[ValueId, ...] = ()
    if isinstance(instr, Load | Store | IndexValue):
        inside = tuple(int(v[1:]) for v in instr.index.vars if v.startswith("%"))
    if isinstance(instr, Load) and instr.mask is not None:
        return (instr.mask, *inside)
    return (instr.value, *inside) if isinstance(instr, Store) else inside


def levels(loop: Loop) -> tuple[list[int], list[bool]]:
    """How many reductions each value waits for, and whether it has one for each element of a
    row."""
    along = {axis.var for axis in loop.r}
    level: list[int] = []
    element: list[bool] = []
    for instr in loop.body:
        read = operands(instr)
        level.append(max((level[i] for i in read), default=0) + isinstance(instr, Reduce))
        indexed = isinstance(instr, Load | Store | IndexValue) and bool(instr.index.vars & along)
        element.append(not isinstance(instr, Reduce) and (indexed or any(element[i] for i in read)))
    return level, element


def renumbered(instr: Instr, new: Mapping[ValueId, ValueId]) -> Instr:
    """`instr` with its operands' positions replaced."""
    if isinstance(instr, Point):
        return replace(instr, args=tuple(new[a] for a in instr.args))
    if isinstance(instr, Reduce | Scan | ReducePart | Check):
        return replace(instr, arg=new[instr.arg])
    if isinstance(instr, Load):
        mask = None if instr.mask is None else new[instr.mask]
        return replace(instr, index=_moved(instr.index, new), mask=mask)
    if isinstance(instr, IndexValue):
        return replace(instr, index=_moved(instr.index, new))
    if isinstance(instr, Store):
        return replace(instr, index=_moved(instr.index, new), value=new[instr.value])
    return instr


def _moved(index: Expr, new: Mapping[ValueId, ValueId]) -> Expr:
    names = [v for v in index.vars if v.startswith("%")]
    return index.substitute({v: Var(f"%{new[int(v[1:])]}") for v in names}) if names else index


def pruned(body: Sequence[Instr]) -> tuple[Instr, ...]:
    """The instructions that have an effect, and those that they need, renumbered."""
    needed: set[ValueId] = set()
    for position in range(len(body) - 1, -1, -1):
        instr = body[position]
        if isinstance(instr, Store | Check) or position in needed:
            needed.update(operands(instr))
    new: dict[ValueId, ValueId] = {}
    kept: list[Instr] = []
    for position, instr in enumerate(body):
        if isinstance(instr, Store | Check) or position in needed:
            new[position] = len(kept)
            kept.append(renumbered(instr, new))
    return tuple(kept)
