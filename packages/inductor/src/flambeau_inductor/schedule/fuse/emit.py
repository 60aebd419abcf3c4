"""Emission of loop instructions from tensor definitions.

In: nodes, and the coordinates (index expressions over loop variables) at which they are wanted.
Out: SSA instructions. Invariant: equal instructions are emitted once; a value with memory is read
from it unless it was computed in this same body at the very same coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from flambeau_inductor.indexing import (
    Expr,
    Ranges,
    Var,
    at_least,
    at_most,
    bounds,
    known,
    plain,
    simplify,
)
from flambeau_inductor.ir.loops import (
    Const,
    IndexValue,
    Load,
    Point,
    Reduce,
    ReducePart,
    Scalar,
    Store,
    ValueId,
)
from flambeau_inductor.ir.loops import Scan as ScanInstr
from flambeau_inductor.ir.operands import LoopBody
from flambeau_inductor.ir.tensors import (
    Choose,
    Gather,
    Index,
    IndexCondition,
    IndexLookup,
    Literal,
    Node,
    Pointwise,
    Position,
    Reduction,
    Scatter,
    TensorScan,
    View,
    at,
    dot,
)
from flambeau_inductor.schedule.materialize.plan import NodeStorage

Where = Callable[[Node], NodeStorage | None]
"""A node's memory; None: it has none and is computed where it is read."""


@dataclass(slots=True, kw_only=True)
class Emitter(LoopBody):
    """One loop body in the making. `ranges` are those of the loop variables."""

    where: Where
    ranges: dict[str, tuple[int, int | Expr]]
    memo: dict[tuple[Node, Index, ValueId | None], ValueId] = field(default_factory=dict)
    members: dict[Node, ValueId] = field(default_factory=dict)
    member_index: dict[Node, Index] = field(default_factory=dict)
    reads: list[tuple[Node, Index]] = field(default_factory=list)

    def point(self, op: str, args: tuple[ValueId, ...], dtype: torch.dtype) -> ValueId:
        return self.put(Point(op, args, dtype))

    def member(self, node: Node, coordinates: Index, own: Index) -> ValueId:
        """Compute `node`, at `coordinates` (of its base, for a reduction); it is known at `own`."""
        define = node.define
        if isinstance(define, Reduction):
            dtype = torch.int64 if define.kind in ("argmax", "argmin") else define.base.dtype
            arg = self.read(define.base, coordinates, None)
            value = self.put(Reduce(define.kind, arg, dtype))
            if define.part is not None:
                value = self.put(ReducePart(value, define.part, node.dtype))
        else:
            if isinstance(define, TensorScan):
                arg = self.read(define.base, coordinates, None)
                value = self.put(ScanInstr(define.kind, arg, define.base.dtype))
                if node.dtype != define.base.dtype:
                    value = self.point("cast", (value,), node.dtype)
            elif isinstance(define, Scatter):
                self.target(define, coordinates)
                value = self.read(define.src, coordinates, None)
            else:
                value = self.define(node, coordinates, None)
        self.members[node] = value
        self.member_index[node] = own
        return value

    def store(self, node: Node, own: Index, value: ValueId) -> None:
        """Write a member to its memory."""
        place, define = self.where(node), node.define
        assert place is not None, f"{node.name} has no memory to be stored to"
        if isinstance(define, Scatter):
            index = self.target(define, own)
            apart = tuple(i for i, p in zip(index, define.index) if isinstance(p, Expr))
            flat = self._flat(index, place)
            count = None if define.mode == "set" else plain(define.src.numel)
            self.body.append(Store(place.buffer, flat, value, define.mode, apart, count))
            return
        self.body.append(Store(place.buffer, self._flat(own, place), value))

    def target(self, define: Scatter | Gather, index: Index, mask: ValueId | None = None) -> Index:
        """The coordinates in the base, some of them looked up, of the element at `index`."""
        return tuple(
            self._at((part,), index)[0]
            if isinstance(part, Expr)
            else self._looked_up(part, index, mask)
            for part in define.index
        )

    def _looked_up(self, lookup: IndexLookup, index: Index, mask: ValueId | None) -> Expr:
        value = self.read(lookup.node, self._at(lookup.index, index), mask)
        if lookup.node.dtype != torch.int64:
            value = self.point("cast", (value,), torch.int64)
        if lookup.wrap:
            zero, size = self.put(Const(0, torch.int64)), self.whole(lookup.size)
            negative = self.point("lt", (value, zero), torch.bool)
            wrapped = self.point("add", (value, size), torch.int64)
            value = self.point("where", (negative, wrapped, value), torch.int64)
        self.ranges[f"%{value}"] = (0, at_least(lookup.size - 1, 0))
        return Var(f"%{value}")

    def read(self, node: Node, index: Index, mask: ValueId | None) -> ValueId:
        """The element of `node` at `index`; where `mask` is false any value, reading nothing."""
        if node in self.members:
            own = self.member_index[node]
            assert mask is not None or own == index, (
                f"{node.name} is known at {own}, wanted at {index}"
            )
            if own == index or self._is_one_place(node, own, index):
                return self.members[node]
        key = (node, index, mask)
        found = self.memo.get(key)
        if found is None:
            place = self.where(node)
            if place is None:
                found = self.define(node, index, mask)
            else:
                self.reads.append((node, index))
                other: Scalar = False if node.dtype == torch.bool else 0
                flat = self._flat(index, place)
                found = self.put(Load(place.buffer, flat, node.dtype, mask, other))
            self.memo[key] = found
        return found

    def _is_one_place(self, node: Node, own: Index, index: Index) -> bool:
        """Whether both coordinates are the same element: under a mask those of a dimension that is
        passed over in one step may be counted on in the next."""
        place = self.where(node)
        return place is not None and self._flat(own, place) == self._flat(index, place)

    def _flat(self, index: Index, place: NodeStorage) -> Expr:
        return simplify(dot(index, place.stride, place.offset), self.ranges)

    def define(self, node: Node, index: Index, mask: ValueId | None) -> ValueId:
        """Compute an element from its definition."""
        match node.define:
            case Literal(value):
                return self.put(Const(value, node.dtype))
            case Position(position):
                return self.put(IndexValue(self._at((position,), index)[0], node.dtype))
            case Pointwise(op, operands):
                args = tuple(self.read(a, index, mask) for a in operands)
                return args[0] if op == "clone" else self.point(op, args, node.dtype)
            case View(base, coordinates):
                return self.read(base, self._at(coordinates, index), mask)
            case Gather() as gather:
                return self.read(gather.base, self.target(gather, index, mask), mask)
            case Choose() as choose:
                return self._choose(choose, node.dtype, index, mask)
            case other:
                raise TypeError(f"{node.name}: {type(other).__name__} is no element of others")

    def _at(self, exprs: Index, index: Index) -> Index:
        return tuple(simplify(e, self.ranges) for e in at(exprs, index))

    def _choose(
        self, choose: Choose, dtype: torch.dtype, index: Index, mask: ValueId | None
    ) -> ValueId:
        """The first branch whose guards hold; those that the ranges decide are left out."""
        chosen: list[tuple[ValueId, ValueId]] = []
        result: ValueId | None = None
        for guards, branch in choose.branches:
            condition: ValueId | None = None
            for guard in guards:
                holds = self.guard(guard, index)
                if holds is False:
                    break
                if holds is not True:
                    condition = self.both(condition, holds)
            else:
                value = self.read(branch, index, self.both(mask, condition))
                if condition is None:
                    result = value
                    break
                chosen.append((condition, value))
        if result is None:
            result = self.read(choose.other, index, mask)
        for condition, value in reversed(chosen):
            load, constant = self.body[value], self.body[result]
            if isinstance(load, Load) and isinstance(constant, Const) and load.mask is not None:
                if load.other == 0 and load.mask == self.both(mask, condition):  # a masked load
                    result = self.put(replace(load, dtype=dtype, other=constant.value))
                    continue
            result = self.point("where", (condition, value, result), dtype)
        return result

    def guard(self, guard: IndexCondition, index: Index) -> ValueId | bool:
        """The condition as a bool value, or the bool itself where the ranges decide it."""
        (position,) = self._at((guard.index,), index)
        low, high = bounds(position, self.ranges)
        if isinstance(guard.bound, int):
            always, never = _DECIDED[guard.op](low, high, guard.bound)
        else:
            always, never = _below(position, guard, self.ranges)
        if always or never:
            return bool(always)
        left = self.put(IndexValue(position, torch.int64))
        right = self.whole(guard.bound)
        return self.point(guard.op, (left, right), torch.bool)

    def whole(self, size: int | Expr) -> ValueId:
        """An integer that may be an open size."""
        if isinstance(size, Expr):
            return self.put(IndexValue(size, torch.int64))
        return self.put(Const(size, torch.int64))

    def both(self, a: ValueId | None, b: ValueId | None) -> ValueId | None:
        """The conjunction of two masks; None is true."""
        if a is None or b is None or a == b:
            return b if a is None else a
        return self.point("logical_and", (a, b), torch.bool)


def _below(position: Expr, guard: IndexCondition, ranges: Ranges) -> tuple[bool, bool]:
    """Whether a condition with an open bound holds everywhere, and whether nowhere."""
    most = at_most(position, {name: top for name, (low, top) in ranges.items() if low >= 0})
    below = most is not None and known("lt", most, guard.bound) is True
    return (guard.op == "lt" and below, guard.op in ("ge", "eq") and below)


_DECIDED: Mapping[str, Callable[[int, int, int], tuple[bool, bool]]] = {
    "lt": lambda low, high, bound: (high < bound, low >= bound),
    "ge": lambda low, high, bound: (low >= bound, high < bound),
    "eq": lambda low, high, bound: (low == high == bound, bound < low or bound > high),
}
