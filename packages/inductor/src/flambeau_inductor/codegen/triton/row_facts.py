"""Facts of a loop for Triton: use of its values, accesses along its rows, waiting reductions.

In: a `Loop`. Out: sets of values, numbers and yes or no. Invariant: nothing here depends on how the
loop is cut into programs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from flambeau_inductor.codegen.triton.dtypes import HALF
from flambeau_inductor.codegen.triton.pointwise import ENDS_IN_HALF, instructions_of
from flambeau_inductor.ir.loops import Check, Const, Instr, Load, Loop, Point, Reduce, Store
from flambeau_inductor.ir.operands import levels, operands
from flambeau_inductor.reachability import reached


def only_read_by(loop: Loop, such: Callable[[Instr], bool]) -> frozenset[int]:
    """Values that nothing reads but instructions such as these."""
    by_such: set[int] = set()
    otherwise: set[int] = set()
    for instr in loop.body:
        (by_such if such(instr) else otherwise).update(operands(instr))
    return frozenset(by_such - otherwise)


def ends_in(loop: Loop, dtypes: frozenset[torch.dtype]) -> frozenset[int]:
    """Floating-point values of which nothing is stored but in one of these dtypes, and on which no
    truth, integer or address depends."""
    otherwise: set[int] = set()
    for place, instr in reversed(tuple(enumerate(loop.body))):
        if isinstance(instr, Store):
            fits = dtype_of(loop.body[instr.value]) in dtypes
            otherwise.update(v for v in operands(instr) if not fits or v != instr.value)
        elif isinstance(instr, Check) or place in otherwise or not instr.dtype.is_floating_point:
            otherwise.update(operands(instr))
    return frozenset(range(len(loop.body))) - otherwise


def one_plus(loop: Loop, add: Point) -> Point | None:
    """erf or tanh where `add` is 1 + that in float32: the sum needs no more accuracy near zero
    than it keeps, which makes it cheaper than the two. Not where the function has other uses."""
    if add.op != "add" or add.dtype != torch.float32:
        return None
    for left, right in (add.args, add.args[::-1]):
        function, constant = loop.body[left], loop.body[right]
        if isinstance(constant, Const) and constant.value == 1.0:
            if isinstance(function, Point) and function.op in ("erf", "tanh"):
                used = sum(left in operands(instr) for instr in loop.body)
                return function if used == 1 else None
    return None


def dtype_of(instr: Instr) -> torch.dtype:
    """The dtype of a value."""
    assert not isinstance(instr, Store | Check)
    return instr.dtype


def elements_of(loop: Loop) -> list[Load]:
    """What is read of each element of each row."""
    along, rows = {axis.var for axis in loop.r}, {axis.var for axis in loop.x}
    loads = [i for i in loop.body if isinstance(i, Load)]
    return [i for i in loads if i.index.vars & along and i.index.vars & rows]


def widest(loop: Loop) -> int:
    """Bytes of the widest element that is read for each element of each row."""
    return max((load.dtype.itemsize for load in elements_of(loop)), default=1)


def along_rows(loop: Loop) -> tuple[bool, int]:
    """Whether a row has several operands, and values that all rows share besides; and the bytes of
    the widest of their elements."""
    along = {axis.var for axis in loop.r}
    loads = [i for i in loop.body if isinstance(i, Load) and i.index.vars & along]
    elements = len(elements_of(loop))
    return 2 <= elements < len(loads), max((i.dtype.itemsize for i in loads), default=1)


def reads_halves(loop: Loop, most: int | None = None) -> bool:
    """Whether all that is read along a row is values of 16 bits, at most so many an element."""
    along = {axis.var for axis in loop.r}
    read = [i for i in loop.body if isinstance(i, Load) and i.index.vars & along]
    plain = all(i.dtype in HALF and i.mask is None for i in read)
    return plain and 0 < len(read) <= (most or len(read))


def depth(loop: Loop) -> int:
    """How many reductions wait for each other."""
    return max(levels(loop)[0], default=0)


def computed_again(loop: Loop) -> int:
    """Instructions an element that a row costs which stays in registers as it was read: what a
    reduction or a store takes is computed for each of them that waits for others."""
    level, element = levels(loop)

    def taken(instr: Instr) -> list[int]:
        return [k for k in operands(instr) if element[k]]

    needed: dict[int, set[int]] = {}
    for instr, deep in zip(loop.body, level, strict=True):
        if isinstance(instr, Reduce | Store | Check):
            found = needed.setdefault(deep - isinstance(instr, Reduce), set())
            found.update(reached(taken(instr), lambda k: taken(loop.body[k])))
    once = set[int]().union(*needed.values())
    to_half = ends_in(loop, frozenset(HALF))
    each = [_instructions(loop.body[k], k in to_half) for found in needed.values() for k in found]
    return sum(each) - sum(_instructions(loop.body[k], k in to_half) for k in once)


def _instructions(instr: Instr, ends_in_half: bool) -> int:
    if not isinstance(instr, Point):
        return 0
    if ends_in_half and instr.op in ENDS_IN_HALF:
        return ENDS_IN_HALF[instr.op][1]
    return instructions_of(instr.op)


def read_once(loop: Loop) -> bool:
    """Whether nothing is stored along a row, and no reduction waits for another."""
    along = {axis.var for axis in loop.r}
    stores = [i for i in loop.body if isinstance(i, Store)]
    return depth(loop) == 1 and not any(i.index.vars & along for i in stores)


def shared_by_rows(loop: Loop) -> tuple[int, int, int]:
    """Bytes that are read of each element of a row, once: its own, and those that neighbours share,
    as matrices do that are multiplied by vectors; and vectors a matrix, or a part of one. Zeros
    where there is nothing of the kind."""
    along = {axis.var for axis in loop.r}
    if not loop.x or not read_once(loop):
        return 0, 0, 0
    inner, row = loop.r[-1].var, loop.x[-1].var
    loads = [i for i in loop.body if isinstance(i, Load) and i.index.vars & along]
    own = [i for i in loads if row in i.index.vars and i.index.coefficient(inner)]
    shared = sum(i.dtype.itemsize for i in loads if row not in i.index.vars)
    if not own or not shared:
        return 0, 0, 0
    sums = sum(isinstance(i, Reduce) for i in loop.body)
    return sum(i.dtype.itemsize for i in own), shared, -(-sums // len(own))


def reduces_across(loop: Loop) -> bool:
    """Whether neighbours in memory belong to different rows, by what is read of every element.

    What has one value a row, or the same values for all rows, weighs nothing against that; nor
    does what has one value for all neighbours of the innermost axis of `x`.
    """
    along = {axis.var for axis in loop.r}
    inner, outer = loop.r[-1].var, loop.x[-1].var
    elements = [
        access.index
        for access in (i for i in loop.body if isinstance(i, Load | Store))
        if access.index.vars & along and outer in access.index.vars
    ]
    return sum(index.coefficient(outer) == 1 for index in elements) > sum(
        index.coefficient(inner) == 1 for index in elements
    )
