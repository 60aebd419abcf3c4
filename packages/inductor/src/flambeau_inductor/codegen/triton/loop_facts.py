"""Facts of a loop's instructions that do not depend on tiling.

In: a `Loop`. Out: which of its values are only used in some way, which buffers it touches.
Invariant: nothing here depends on how the loop is cut into programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from flambeau_inductor.ir.loops import Check, Const, Instr, Load, Loop, Point, Store
from flambeau_inductor.ir.operands import operands


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
    than it keeps, which makes it cheaper than the two apart. Not where the function is there
    anyway, because it is used besides."""
    if add.op != "add" or add.dtype != torch.float32:
        return None
    for left, right in (add.args, add.args[::-1]):
        function, constant = loop.body[left], loop.body[right]
        if isinstance(constant, Const) and constant.value == 1.0:
            if isinstance(function, Point) and function.op in ("erf", "tanh"):
                used = sum(left in operands(instr) for instr in loop.body)
                return function if used == 1 else None
    return None


def buffers(loop: Loop) -> Iterator[str]:
    """The buffers that a loop touches, once for each time."""
    for instr in loop.body:
        if isinstance(instr, Load | Store):
            yield instr.buffer


def dtype_of(instr: Instr) -> torch.dtype:
    """The dtype of a value."""
    assert not isinstance(instr, Store | Check)
    return instr.dtype
