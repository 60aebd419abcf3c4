"""Emission of loop instructions from tensor definitions.

In: nodes, and the coordinates (index expressions over loop variables) at which they are wanted.
Out: SSA instructions. Invariant: equal instructions are emitted once; a value with memory is read
from it unless it was computed in this same body at the very same coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from flambeau_inductor.indexing import (
    Expr,
    Ranges,
    Var,
    at_most,
    bounds,
    decide_max,
    known,
    plain,
    simplify,
)
from flambeau_inductor.ir.loops import (
    Const,
    IndexValue,
    Instr,
    Load,
    Point,
    Reduce,
    ReducePart,
    Scalar,
    Store,
    ValueId,
)
from flambeau_inductor.ir.loops import Scan as ScanInstr
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


@dataclass(slots=True)
class Emitter:
    """One loop body in the making. `ranges` are those of the loop variables."""

    where: Where
    ranges: dict[str, tuple[int, int | Expr]]
    body: list[Instr] = field(default_factory=list)
    known: dict[object, ValueId] = field(default_factory=dict)
    memo: dict[tuple[Node, Index, ValueId | None], ValueId] = field(default_factory=dict)
    members: dict[Node, ValueId] = field(default_factory=dict)
    member_index: dict[Node, Index] = field(default_factory=dict)
    reads: list[tuple[Node, Index]] = field(default_factory=list)

    def put(self, instr: Instr) -> ValueId:
        """Append `instr` unless an equal one is there."""
        key: object = instr
        if isinstance(instr, Const):
            key = (repr(instr.value), instr.dtype)  # 0.0 and -0.0 are equal, but not the same
        elif isinstance(instr, Load) and repr(instr.other) not in ("0", "0.0", "False"):
            key = (instr, repr(instr.other))
        found = self.known.get(key)
        if found is None:
            found = len(self.body)
            self.body.append(instr)
            self.known[key] = found
        return found

    def point(self, op: str, args: tuple[ValueId, ...], dtype: torch.dtype) -> ValueId:
        return self.put(Point(op, args, dtype))

    def member(self, node: Node, coordinates: Index, own: Index) -> ValueId:
        """Compute `node`, at `coordinates` (of its base, for a reduction); it is known at `own`."""
        define = node.define
        if isinstance(define, Reduction):
            value = self.put(_reduce(define, self.read(define.base, coordinates, None)))
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
        place = self.where(node)
        if place is None:
            raise AssertionError(f"{node.name} has no memory to be stored to")
        define = node.define
        if isinstance(define, Scatter):
            index = self.target(define, own)
            apart = tuple(i for i, p in zip(index, define.index) if isinstance(p, Expr))
            flat = self._flat(index, place)
            count = None if define.mode == "set" else plain(define.src.numel)
            self.body.append(Store(place.buffer, flat, value, define.mode, apart, count))
            return
        self.body.append(Store(place.buffer, self._flat(own, place), value))

    def target(self, define: Scatter | Gather, index: Index) -> Index:
        """The coordinates in the base, some of them looked up, of the element at `index`."""
        return tuple(
            simplify(at((part,), index)[0], self.ranges)
            if isinstance(part, Expr)
            else _looked_up(self, part, index, None)
            for part in define.index
        )

    def read(self, node: Node, index: Index, mask: ValueId | None) -> ValueId:
        """The element of `node` at `index`; where `mask` is false any value, reading nothing."""
        if node in self.members and (mask is None or self.member_index[node] == index):
            if self.member_index[node] != index:
                raise AssertionError(
                    f"{node.name} is known at {self.member_index[node]}, wanted at {index}"
                )
            return self.members[node]
        key = (node, index, mask)
        found = self.memo.get(key)
        if found is None:
            place = self.where(node)
            found = (
                self.define(node, index, mask)
                if place is None
                else self._load(node, index, mask, place)
            )
            self.memo[key] = found
        return found

    def _load(self, node: Node, index: Index, mask: ValueId | None, place: NodeStorage) -> ValueId:
        self.reads.append((node, index))
        other: Scalar = False if node.dtype == torch.bool else 0
        flat = self._flat(index, place)
        return self.put(Load(place.buffer, flat, node.dtype, mask, other))

    def _flat(self, index: Index, place: NodeStorage) -> Expr:
        return simplify(dot(index, place.stride, place.offset), self.ranges)

    def define(self, node: Node, index: Index, mask: ValueId | None) -> ValueId:
        """Compute an element from its definition."""
        return _DEFINITIONS[type(node.define)](self, node, index, mask)

    def guard(self, guard: IndexCondition, index: Index) -> ValueId | bool:
        """The condition as a bool value, or the bool itself where the ranges decide it."""
        (position,) = at((guard.index,), index)
        position = simplify(position, self.ranges)
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


def _reduce(define: Reduction, value: ValueId) -> Reduce:
    dtype = torch.int64 if define.kind in ("argmax", "argmin") else define.base.dtype
    return Reduce(define.kind, value, dtype)


def _literal(e: Emitter, node: Node, index: Index, mask: ValueId | None) -> ValueId:
    define = node.define
    if not isinstance(define, Literal):
        raise TypeError(node.name)
    return e.put(Const(define.value, node.dtype))


def _position(e: Emitter, node: Node, index: Index, mask: ValueId | None) -> ValueId:
    define = node.define
    if not isinstance(define, Position):
        raise TypeError(node.name)
    (position,) = at((define.index,), index)
    return e.put(IndexValue(simplify(position, e.ranges), node.dtype))


def _pointwise(e: Emitter, node: Node, index: Index, mask: ValueId | None) -> ValueId:
    define = node.define
    if not isinstance(define, Pointwise):
        raise TypeError(node.name)
    args = tuple(e.read(a, index, mask) for a in define.args)
    return args[0] if define.op == "clone" else e.point(define.op, args, node.dtype)


def _view(e: Emitter, node: Node, index: Index, mask: ValueId | None) -> ValueId:
    define = node.define
    if not isinstance(define, View):
        raise TypeError(node.name)
    moved = tuple(simplify(p, e.ranges) for p in at(define.index, index))
    return e.read(define.base, moved, mask)


def _choose(e: Emitter, node: Node, index: Index, mask: ValueId | None) -> ValueId:
    define = node.define
    if not isinstance(define, Choose):
        raise TypeError(node.name)
    chosen: list[tuple[ValueId, ValueId]] = []
    result: ValueId | None = None
    for guards, branch in define.branches:
        condition: ValueId | None = None
        possible = True
        for guard in guards:
            holds = e.guard(guard, index)
            if holds is False:
                possible = False
                break
            if holds is not True:
                condition = e.both(condition, holds)
        if not possible:
            continue
        value = e.read(branch, index, e.both(mask, condition))
        if condition is None:
            result = value
            break
        chosen.append((condition, value))
    if result is None:
        result = e.read(define.other, index, mask)
    for condition, value in reversed(chosen):
        result = _merge(e, condition, value, result, mask, node.dtype)
    return result


def _merge(
    e: Emitter,
    condition: ValueId,
    value: ValueId,
    other: ValueId,
    mask: ValueId | None,
    dtype: torch.dtype,
) -> ValueId:
    """`value` where `condition`, else `other`: one load where that is all there is to it."""
    load, constant = e.body[value], e.body[other]
    if isinstance(load, Load) and isinstance(constant, Const) and _is_filler(load):
        if load.mask == e.both(mask, condition):
            return e.put(Load(load.buffer, load.index, dtype, load.mask, constant.value))
    return e.point("where", (condition, value, other), dtype)


def _is_filler(load: Load) -> bool:
    """Whether what the load gives under a false mask was never asked for."""
    return load.mask is not None and load.other == 0


def _gather(e: Emitter, node: Node, index: Index, mask: ValueId | None) -> ValueId:
    define = node.define
    if not isinstance(define, Gather):
        raise TypeError(node.name)
    coordinates: list[Expr] = []
    for part in define.index:
        if isinstance(part, Expr):
            coordinates.append(simplify(at((part,), index)[0], e.ranges))
        else:
            coordinates.append(_looked_up(e, part, index, mask))
    return e.read(define.base, tuple(coordinates), mask)


def _looked_up(e: Emitter, lookup: IndexLookup, index: Index, mask: ValueId | None) -> Expr:
    where = tuple(simplify(p, e.ranges) for p in at(lookup.index, index))
    value = e.read(lookup.node, where, mask)
    if lookup.node.dtype != torch.int64:
        value = e.point("cast", (value,), torch.int64)
    if lookup.wrap:
        zero = e.put(Const(0, torch.int64))
        size = e.whole(lookup.size)
        negative = e.point("lt", (value, zero), torch.bool)
        wrapped = e.point("add", (value, size), torch.int64)
        value = e.point("where", (negative, wrapped, value), torch.int64)
    e.ranges[f"%{value}"] = (0, decide_max(lookup.size - 1, 0))
    return Var(f"%{value}")


_DEFINITIONS: Mapping[type, Callable[[Emitter, Node, Index, ValueId | None], ValueId]] = {
    Literal: _literal,
    Position: _position,
    Pointwise: _pointwise,
    View: _view,
    Choose: _choose,
    Gather: _gather,
}


def ranges_of(sizes: Mapping[str, int]) -> Ranges:
    """Ranges of loop variables from their sizes."""
    return {name: (0, decide_max(size - 1, 0)) for name, size in sizes.items()}
