"""Streaming stores and prefetch, for memory that no cache holds.

In: a `LoopPlan`. Out: the stores that are streamed; the loads of a row that are fetched rows ahead,
and the pass that does so. Invariant: only the time a kernel takes depends on it.

A plain store of a line that is in no cache reads the line first. Where a row takes several passes,
only the first waits for memory: one of the others prefetches the rows to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import torch

from flambeau_inductor.codegen.cpp.analysis.plan import LoopPlan, blocked_axis
from flambeau_inductor.codegen.cpp.analysis.vectorization import cost, lane_step
from flambeau_inductor.ir.loops import Load, Reduce, Store, ValueId
from flambeau_inductor.ir.operands import operands
from flambeau_inductor.tuning import host_tuning

LINE = 64
"""Bytes of a line of a cache."""
AHEAD = 2
"""Rows between the one that is worked on and the one that is fetched."""
NEAR = 32 << 10
"""Bytes of rows, from this one to the one that is fetched, that the smallest cache has room for."""
DOWN = 8
"""Rows between the one that columns are at and the one that is fetched for them."""
FEW = 4
"""Points of the first axis that are not worth another order."""

DtypeOf = Callable[[str], torch.dtype]


@dataclass(frozen=True, slots=True)
class Ahead:
    """Pass `level` fetches what `loads` read `rows` rows further along `axis`; `near`: into the
    smallest cache."""

    level: int
    loads: tuple[ValueId, ...]
    axis: str
    rows: int
    near: bool


def streamed(plan: LoopPlan, dtype_of: DtypeOf) -> frozenset[ValueId]:
    """Stores of large results that nothing in the loop reads, each line by one thread at once."""
    loop = plan.loop
    found: set[ValueId] = set()
    if plan.open or plan.serial or plan.vector is None:
        return frozenset()
    touched = [i.buffer for i in loop.body if isinstance(i, Load | Store)]
    large = host_tuning().streamed_bytes
    for position, instr in enumerate(loop.body):
        if not isinstance(instr, Store) or instr.mode != "set" or instr.scattered:
            continue
        index, itemsize = instr.index, dtype_of(instr.buffer).itemsize
        axes = [a.var for a in plan.axes if a.var in index.vars]
        if any(v not in axes for v in index.vars) or any(a.var not in axes for a in loop.x):
            continue
        if lane_step(index, plan.vector, plan.width) != 1 or touched.count(instr.buffer) > 1:
            continue
        # what is written piece by piece is to be written in order
        whole = plan.width * itemsize >= LINE or (
            blocked_axis(plan) is None and plan.vector == plan.axes[-1].var
        )
        if whole and itemsize > 1 and prod(plan.sizes[v] for v in axes) * itemsize >= large:
            found.add(position)
    return frozenset(found)


def fetched_ahead(plan: LoopPlan, dtype_of: DtypeOf) -> Ahead | None:
    """What the dearest pass after the first fetches for the first passes of other rows."""
    loop = plan.loop
    last = max(plan.level, default=0)
    if not loop.x or not loop.r or last < 1 or plan.split_rows or plan.vector != loop.r[-1].var:
        return None
    axis = loop.x[-1].var
    passes = [
        k
        for k in range(1, last + 1)
        # one that reads other rows itself does not leave memory idle
        if _elements(plan, k)
        and _rows(plan, [k], axis).keys() <= _rows(plan, range(k), axis).keys()
    ]
    if not passes:
        return None

    def price(number: int) -> int:
        """What the values that are new in a pass cost."""
        made = (p for p in range(len(loop.body)) if plan.level[p] == number and plan.is_element(p))
        return sum(cost(loop.body[p]) for p in made)

    level = max(passes, key=price)
    loads = _rows(plan, range(level), axis)
    row = sum(dtype_of(buffer).itemsize for buffer, _ in loads) * prod(
        plan.sizes[a.var] for a in loop.r
    )
    tuning, size = host_tuning(), row * prod(plan.sizes[a.var] for a in loop.x)
    if size < tuning.fetched_bytes or (AHEAD + 1) * row > tuning.far_bytes:
        return None
    return Ahead(level, tuple(loads.values()), axis, AHEAD, (AHEAD + 1) * row <= NEAR)


def fetched_down(plan: LoopPlan, dtype_of: DtypeOf) -> Ahead | None:
    """What columns that are taken side by side read a few rows further down."""
    loop = plan.loop
    if not loop.r or plan.vector is None or plan.vector == loop.r[-1].var:
        return None
    axis = loop.r[-1].var
    loads: dict[tuple[str, object], ValueId] = {}
    for position, instr in enumerate(loop.body):
        if not isinstance(instr, Load) or instr.mask is not None or axis not in instr.index.vars:
            continue
        if any(v.startswith("%") for v in instr.index.vars):
            continue
        size = dtype_of(instr.buffer).itemsize * prod(
            plan.sizes[a.var] for a in plan.axes if a.var in instr.index.vars
        )
        large = size >= host_tuning().fetched_bytes
        if large and lane_step(instr.index, plan.vector, plan.width) == 1:
            loads.setdefault((instr.buffer, instr.index), position)
    return Ahead(0, tuple(loads.values()), axis, DOWN, True) if loads else None


def repeated_rows(plan: LoopPlan, dtype_of: DtypeOf) -> int:
    """How many points of the second axis to take for each one of the first, where what they read
    besides is the same for all of that: angles that are the same for all heads. 0: all of them."""
    loop = plan.loop
    if loop.r or plan.open or plan.serial or plan.vector is None or len(loop.x) < 3:
        return 0
    first, second = loop.x[0].var, loop.x[1].var
    row, large = 0, False
    for buffer, index in dict.fromkeys(
        (i.buffer, i.index) for i in loop.body if isinstance(i, Load | Store)
    ):
        axes = [a.var for a in plan.axes if a.var in index.vars]
        if any(v not in axes for v in index.vars):
            return 0
        size = dtype_of(buffer).itemsize * prod(plan.sizes[v] for v in axes)
        if first in axes:
            large = large or size >= host_tuning().fetched_bytes
        elif second in axes:
            row += size // plan.sizes[second]
    repeated = row * plan.sizes[second] >= host_tuning().repeated_bytes
    if not large or not repeated or second == plan.vector:
        return 0
    return max(NEAR // 2 // row, 1) if plan.sizes[first] >= FEW else 0


def fetched_squares(plan: LoopPlan, dtype_of: DtypeOf, var: str) -> tuple[ValueId, ...]:
    """Strided loads of a transposition, along the lanes or `var`, of arrays that no cache holds."""
    found: dict[tuple[str, object], ValueId] = {}
    for position, instr in enumerate(plan.loop.body):
        if not isinstance(instr, Load) or instr.mask is not None or plan.vector is None:
            continue
        axes = [a.var for a in plan.axes if a.var in instr.index.vars]
        if any(v not in axes for v in instr.index.vars) or not {var, plan.vector} <= set(axes):
            continue
        size = dtype_of(instr.buffer).itemsize * prod(plan.sizes[v] for v in axes)
        if size >= host_tuning().fetched_bytes:
            found.setdefault((instr.buffer, instr.index), position)
    return tuple(found.values())


def _elements(plan: LoopPlan, level: int) -> list[ValueId]:
    """What is reduced, or stored for each element, in a pass."""
    found: list[ValueId] = []
    for position, instr in enumerate(plan.loop.body):
        if isinstance(instr, Reduce) and plan.level[instr.arg] == level:
            found.append(instr.arg)
        elif isinstance(instr, Store) and plan.level[position] == level:
            found += [v for v in operands(instr) if plan.is_element(v)]
    return found


def _rows(plan: LoopPlan, levels: Iterable[int], axis: str) -> dict[tuple[str, object], ValueId]:
    """What some passes read of the rows that lie along `axis`, side by side for the lanes."""
    wanted = {v for k in levels for v in _elements(plan, k)}
    found: dict[tuple[str, object], ValueId] = {}
    for position in range(len(plan.loop.body) - 1, -1, -1):
        instr = plan.loop.body[position]
        if position not in wanted:
            continue
        wanted.update(v for v in operands(instr) if plan.is_element(v))
        if not isinstance(instr, Load) or instr.mask is not None or axis not in instr.index.vars:
            continue
        if any(v.startswith("%") for v in instr.index.vars) or plan.vector is None:
            continue
        if lane_step(instr.index, plan.vector, plan.width) == 1:
            found[instr.buffer, instr.index] = position
    return found
