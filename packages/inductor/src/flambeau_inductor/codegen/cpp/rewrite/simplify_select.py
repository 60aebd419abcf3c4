"""Constant folding of arithmetic on selects with constant arms.

In: a `Loop`. Out: a `Loop` that computes the same. Invariant: numbers are rounded as they were.

A mask as a number is one or zero, so what is computed of it and a constant is one of two constants:
the mask of a dropout, divided by what is kept, takes a division of each element otherwise.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from flambeau_inductor.ir.loops import Const, Instr, Loop, Point, ValueId
from flambeau_inductor.ir.operands import renumbered

ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}
"""In float64, whose results for float32 numbers are the right ones once they are rounded again."""


def choose_constants(loop: Loop) -> Loop:
    """Where a mask as a number meets a constant: the one or the other of two constants."""
    body: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    for position, instr in enumerate(loop.body):
        found = _chosen(loop, instr)
        if found is None:
            body.append(renumbered(instr, new))
        else:
            mask, pair = found
            for value in pair:
                body.append(Const(value, torch.float32))
            body.append(Point("where", (new[mask], len(body) - 2, len(body) - 1), torch.float32))
        new[position] = len(body) - 1
    return replace(loop, body=tuple(body)) if len(body) > len(loop.body) else loop


def _chosen(loop: Loop, instr: Instr) -> tuple[ValueId, tuple[float, float]] | None:
    """The mask, and what comes out where it is set and where it is not."""
    if not isinstance(instr, Point) or instr.dtype != torch.float32 or len(instr.args) != 2:
        return None
    compute = ARITHMETIC.get(instr.op)
    masks = [_mask(loop, a) for a in instr.args]
    numbers = [_number(loop, a) for a in instr.args]
    if compute is None or masks.count(None) != 1 or numbers.count(None) != 1:
        return None
    mask = next(m for m in masks if m is not None)
    try:
        found = [
            _rounded(compute(*(_rounded(value if n is None else n) for n in numbers)))
            for value in (1.0, 0.0)
        ]
    except (ZeroDivisionError, OverflowError):
        return None
    return mask, (found[0], found[1])


def _rounded(value: float) -> float:
    """The nearest float32; OverflowError where that is none."""
    (found,) = struct.unpack("f", struct.pack("f", value))
    return float(found)


def _mask(loop: Loop, value: ValueId) -> ValueId | None:
    """The mask that a value is the number of."""
    instr = loop.body[value]
    if not isinstance(instr, Point) or instr.op != "cast" or instr.dtype != torch.float32:
        return None
    (source,) = instr.args
    return source if getattr(loop.body[source], "dtype", None) == torch.bool else None


def _number(loop: Loop, value: ValueId) -> float | None:
    instr = loop.body[value]
    return float(instr.value) if isinstance(instr, Const) else None
