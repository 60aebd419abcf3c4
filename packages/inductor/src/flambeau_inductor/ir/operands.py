"""Operands of loop instructions, bodies in the making, and register pressure of row kernels.

In: instructions and bodies of `Loop`s. Out: the values that one reads; the same instructions,
renumbered; how deep each lies; estimates of registers an element, which decide how a loop is cut
and shared out, never what it computes. Invariant: an operand is the position of an earlier
instruction, whether it stands in a field or, as the variable `%<position>`, in an index expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from flambeau_inductor.indexing import Expr, Var, as_expr
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
    ReducePart,
    Scan,
    Store,
    ValueId,
    looked_up,
)


def operands(instr: Instr) -> tuple[ValueId, ...]:
    """Positions of the instructions that `instr` uses, those inside its index included."""
    if isinstance(instr, Point):
        return instr.args
    if isinstance(instr, Reduce | Scan | ReducePart | Check):
        return (instr.arg,)
    inside = () if isinstance(instr, Const) else looked_up(instr.index)
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
        own = isinstance(instr, Load | Store | IndexValue) and bool(instr.index.vars & along)
        own = own or isinstance(instr, Scan) or any(element[i] for i in read)
        element.append(own and not isinstance(instr, Reduce))
    return level, element


def renumbered(instr: Instr, new: Mapping[ValueId, ValueId]) -> Instr:
    """`instr` with its operands' positions replaced."""
    if isinstance(instr, Point):
        return replace(instr, args=tuple(new[a] for a in instr.args))
    if isinstance(instr, Reduce | Scan | ReducePart | Check):
        return replace(instr, arg=new[instr.arg])
    if isinstance(instr, Const):
        return instr
    made = replace(instr, index=_moved(instr.index, new))
    if isinstance(made, Load):
        return made if made.mask is None else replace(made, mask=new[made.mask])
    return replace(made, value=new[made.value]) if isinstance(made, Store) else made


def _moved(index: Expr, new: Mapping[ValueId, ValueId]) -> Expr:
    return index.substitute({f"%{v}": Var(f"%{new[v]}") for v in looked_up(index)})


def reindexed(instr: Instr, change: Callable[[Expr], Expr]) -> Instr:
    """`instr` with its index expressions changed."""
    if not isinstance(instr, Load | Store | IndexValue):
        return instr
    index = change(instr.index)
    made = instr if index is instr.index else replace(instr, index=index)
    if isinstance(made, Store) and made.apart:
        made = replace(made, apart=tuple(map(change, made.apart)))
    return made


@dataclass(slots=True)
class LoopBody:
    """Instructions in the making. `new`: where those of another body are among them."""

    body: list[Instr] = field(default_factory=list)
    known: dict[object, ValueId] = field(default_factory=dict)
    new: dict[ValueId, ValueId] = field(default_factory=dict)

    def append(self, instr: Instr) -> ValueId:
        """Where `instr` is from now on."""
        self.body.append(instr)
        return len(self.body) - 1

    def put(self, instr: Instr) -> ValueId:
        """The same, unless an equal one is there."""
        if isinstance(instr, Store):
            return self.append(instr)
        key: object = instr
        if isinstance(instr, Const):
            key = (repr(instr.value), instr.dtype)  # 0.0 and -0.0 are equal, but not the same
        elif isinstance(instr, Load) and repr(instr.other) not in ("0", "0.0", "False"):
            key = (instr, repr(instr.other))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.append(instr)
        return found

    def copy(self, position: ValueId, instr: Instr) -> None:
        """Append what stands at `position` of the other body."""
        self.new[position] = self.append(renumbered(instr, self.new))


def row_major(axes: Sequence[Axis]) -> Expr:
    """The place of a point of these axes, the last of which runs fastest."""
    index = as_expr(0)
    for axis in axes:
        index = index * as_expr(axis.size) + Var(axis.var)
    return index


def pruned(body: Sequence[Instr]) -> tuple[Instr, ...]:
    """The instructions that have an effect, and those that they need, renumbered."""
    needed: set[ValueId] = set()
    for position, instr in reversed(list(enumerate(body))):
        if isinstance(instr, Store | Check) or position in needed:
            needed.update((position, *operands(instr)))
    kept = LoopBody()
    for position in sorted(needed):
        kept.copy(position, body[position])
    return tuple(kept.body)


# --- registers ----------------------------------------------------------------------------------


def register_bytes(loop: Loop) -> float:
    """Sums down the columns, what all rows share (half precision two to a register), and all that
    waits for a reduction, be it at different times."""
    level, element = levels(loop)
    found = sum(load.dtype.itemsize / 4 for load in _of_all_rows(loop))
    waiting: set[int] = set()
    for i, instr in enumerate(loop.body):
        found += isinstance(instr, Store) and instr.mode == "total"
        if element[i]:
            waiting |= {k for k in operands(instr) if element[k] and level[k] < level[i]}
    return found + len(waiting)


def live(loop: Loop) -> int:
    """Sums down the columns, what all rows share, and what waits for a reduction at the same time,
    all in float32: values of 16 bits are kept as what they are computed with.

    With 32 elements a thread, registers that Triton 3.6 takes (sm_90): 3 are 124 to 128, 4 are 167
    to 191, 6 are 227 to 248.
    """
    level, element = levels(loop)
    shared = {load.buffer for load in _of_all_rows(loop)}
    totals = [i for i in loop.body if isinstance(i, Store) and i.mode == "total"]
    last = max(level, default=0)
    needed: dict[int, int] = {}
    for i, instr in enumerate(loop.body):
        until = level[i] - isinstance(instr, Reduce)
        if isinstance(instr, Store) and instr.mode == "total":
            until = last
        for k in operands(instr):
            source, value = loop.body[k], k
            while isinstance(source, Point) and source.op == "cast":  # to what it is computed with
                (value,) = source.args
                source = loop.body[value]
            if element[k] and not (isinstance(source, Load) and source.buffer in shared):
                needed[value] = max(needed.get(value, 0), until)
    waiting = (sum(level[k] <= at < until for k, until in needed.items()) for at in range(last))
    return len(totals) + len(shared) + max(waiting, default=0)


def pressure(loop: Loop, looped: bool) -> float:
    """Registers for each element of a row: the most values alive at once in the body's order (half
    precision two to a register, truths four), and a partial result of each reduction where rows
    are `looped` over in steps."""
    _, element = levels(loop)
    last = {k: i for i, instr in enumerate(loop.body) for k in operands(instr)}
    alive: set[int] = set()
    most = partial = 0.0
    for i, instr in enumerate(loop.body):
        if isinstance(instr, Reduce):
            partial += looped * (2 if instr.kind == "welford" else 1)
        elif element[i] and not isinstance(instr, Store | Check):
            alive.add(i)
        most = max(most, sum(_registers(loop.body[k]) for k in alive))
        alive = {k for k in alive if last.get(k, -1) > i}
    return partial + most


def _registers(instr: Instr) -> float:
    assert not isinstance(instr, Store | Check)
    return max(0.25 if instr.dtype == torch.bool else 0.5, instr.dtype.itemsize / 4)


def _of_all_rows(loop: Loop) -> list[Load]:
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    loads = [i for i in loop.body if isinstance(i, Load) and i.index.vars & along]
    return [load for load in loads if not load.index.vars & rows]
