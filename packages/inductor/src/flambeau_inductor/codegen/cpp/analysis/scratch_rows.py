"""Scratch rows: values that a later pass over the row finds in cache.

In: a loop with its dependences and levels. Out: positions of values to keep in a row of
temporaries. Invariant: a kept value is written in the first pass that needs it and read in the
later ones, and changes along the innermost axis, of whose lanes a row is made; all rows together
take at most `SCRATCH_BYTES` of a thread's stack.
"""

from __future__ import annotations

from math import prod

import torch

from flambeau_inductor.codegen.cpp.dtypes import spelling_of
from flambeau_inductor.codegen.cpp.emit.pointwise import cost_of
from flambeau_inductor.indexing import Expr, decide_less
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Reduce, Store, ValueId
from flambeau_inductor.ir.operands import operands

SCRATCH_BYTES = 1 << 17
# a value cheaper than this is computed again
KEEP_COST = 6


def kept_values(
    loop: Loop, deps: tuple[frozenset[str], ...], level: tuple[int, ...]
) -> frozenset[ValueId]:
    """The values worth a row, dearest first; an open row is assumed to be short enough."""
    inner = frozenset(a.var for a in loop.r)
    length = prod(a.size for a in loop.r)
    chosen: set[ValueId] = set()
    room: int | Expr = SCRATCH_BYTES
    while True:
        needs = _needs(loop, deps, level, inner, chosen)
        dearest: tuple[int, ValueId] | None = None
        for value, passes in needs.items():
            if len(passes) < 2 or value in chosen or loop.r[-1].var not in deps[value]:
                continue
            price = _price(loop, value, deps, inner, chosen)
            size = length * spelling_of(_dtype(loop.body[value])).size
            better = price >= KEEP_COST and (dearest is None or price > dearest[0])
            if better and not decide_less(room, size):
                dearest = price, value
        if dearest is None:
            return frozenset(chosen)
        chosen.add(dearest[1])
        room = room - length * spelling_of(_dtype(loop.body[dearest[1]])).size


def _needs(
    loop: Loop,
    deps: tuple[frozenset[str], ...],
    level: tuple[int, ...],
    inner: frozenset[str],
    chosen: set[ValueId],
) -> dict[ValueId, set[int]]:
    """In which passes each element value is computed or recalled."""
    needs: dict[ValueId, set[int]] = {}
    have: set[ValueId] = set()
    for number in range(max(level, default=0) + 1):
        wanted: set[ValueId] = set()
        for position, instr in enumerate(loop.body):
            if isinstance(instr, Reduce) and level[instr.arg] == number:
                wanted.add(instr.arg)
            elif isinstance(instr, Store) and level[position] == number and deps[position] & inner:
                wanted.update(operands(instr))
        for position in range(len(loop.body) - 1, -1, -1):
            if position not in wanted or not deps[position] & inner:
                continue
            needs.setdefault(position, set()).add(number)
            if position not in have:
                wanted.update(operands(loop.body[position]))
        have |= {v for v in chosen if v in wanted}
    return needs


def _price(
    loop: Loop,
    value: ValueId,
    deps: tuple[frozenset[str], ...],
    inner: frozenset[str],
    chosen: set[ValueId],
) -> int:
    """What computing `value` once more costs, given what is already kept."""
    total = 0
    seen: set[ValueId] = set()
    stack = [value]
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


def _dtype(instr: Instr) -> torch.dtype:
    if isinstance(instr, Store):
        raise TypeError("a store has no value to keep")
    return instr.dtype
