"""Whole numbers in a loop: casts that change nothing, products that are exact.

In: a loop. Out: the same without casts of small whole numbers to half precision, or whether a
product and a sum may be one operation. Invariant: the numbers are the same, to the last bit.

Weights in bytes are converted to the dtype of what they are multiplied by, which is read as
float32: half precision holds all whole numbers up to a power of two, so that they may be converted
at once. And the product of two numbers of few bits is exact in float32, where it makes no
difference to a sum whether it is rounded first.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from flambeau_inductor.codegen.triton.dtypes import HALF
from flambeau_inductor.codegen.triton.row_facts import dtype_of, ends_in
from flambeau_inductor.ir.loops import (
    Check,
    Const,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Store,
    ValueId,
    holds,
)
from flambeau_inductor.ir.operands import LoopBody, pruned, renumbered

Range = tuple[int, int]
"""The least and the largest value of a whole number."""

BYTES = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.bool: (0, 1)}
FACTOR = 1 << 12
"""Whole numbers up to this have at most half as many bits as float32 holds."""

SMALL = 1 << 22
"""Whole numbers up to this become float32 by an addition to the bits of one."""

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
}
LOGIC = frozenset({"where", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"})
BITS = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"})
APART = LOGIC | BITS | {"cast", "clone", "mul", "add", "sub", "neg", "logical_not"}
"""Operations that are spelled as one instruction, or several that hold no product and sum."""


def ranges_of(body: Sequence[Instr]) -> list[Range | None]:
    """What is known of each value that is surely a whole number, exactly so in its dtype."""
    found: list[Range | None] = []
    for instr in body:
        made = None if isinstance(instr, Store | Check) else _range(instr, found)
        if made is not None and not holds(dtype_of(instr), *made):
            made = None
        found.append(made)
    return found


def conversion(instr: Instr, known: Range | None) -> str:
    """The device function that makes a number float32 at once; "" if it may be any."""
    dtype = dtype_of(instr)
    if dtype in BYTES and isinstance(instr, Load):  # several lie in a register
        return "" if dtype == torch.bool else "byte_to_float32"
    if dtype in (torch.int8, torch.uint8, torch.int16):
        return "small_to_float32"
    if dtype not in (torch.int32, torch.int64) or known is None:
        return ""
    return "small_to_float32" if max(-known[0], known[1]) <= SMALL else ""


def _range(instr: Instr, found: Sequence[Range | None]) -> Range | None:
    if isinstance(instr, Load):
        known = BYTES.get(instr.dtype)
        if known is None or instr.mask is None:
            return known
        return _both(known, _of_number(instr.other))
    if isinstance(instr, Const):
        return _of_number(instr.value)
    if not isinstance(instr, Point):
        return None
    args = [found[arg] for arg in instr.args]
    if instr.op in ("cast", "clone"):
        return args[0]
    if instr.op == "where":
        return _both(args[1], args[2])
    if instr.op == "bitwise_and":  # as many bits as either of them, if that has no sign
        masks = [each[1] for each in args if each is not None and each[0] >= 0]
        return (0, min(masks)) if masks else None
    if len(args) != 2:
        return None
    first, other = args
    if first is None or other is None:
        return None
    least, largest = first
    if instr.op == "shift_right" and other[0] == other[1] and 0 <= other[0] < 8:
        return least >> other[0], largest >> other[0]
    if instr.op in ARITHMETIC:
        ends = [ARITHMETIC[instr.op](a, b) for a in (least, largest) for b in other]
        return min(ends), max(ends)
    return None


def _of_number(value: object) -> Range | None:
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return int(value), int(value)
    return None


def _both(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def widened_at_once(loop: Loop) -> Loop:
    """The loop in which small whole numbers become float32 without being half precision before."""
    known, body = ranges_of(loop.body), LoopBody()
    for position, instr in enumerate(loop.body):
        source = _source(loop.body, position, known) if isinstance(instr, Point) else position
        if source == position:
            body.copy(position, instr)
        elif dtype_of(loop.body[source]) == torch.float32:
            body.new[position] = body.new[source]
        else:
            cast = Point("cast", (source,), torch.float32)
            body.new[position] = body.append(renumbered(cast, body.new))
    made = pruned(body.body)
    return loop if len(made) == len(loop.body) else replace(loop, body=made)


def _source(body: Sequence[Instr], position: ValueId, known: Sequence[Range | None]) -> ValueId:
    """What a cast of half precision to float32 may read in its place; itself if nothing."""
    instr = body[position]
    if not isinstance(instr, Point) or instr.op != "cast" or instr.dtype != torch.float32:
        return position
    (source,) = instr.args
    while isinstance(cast := body[source], Point) and cast.op == "cast":
        if known[source] is None or cast.dtype not in HALF or known[cast.args[0]] is None:
            break
        (source,) = cast.args
    return position if source == instr.args[0] else source


def sums_exact_products(loop: Loop) -> bool:
    """Whether each product that is added to something is exact in float32, and nothing else in the
    loop has a product and a sum: they may be one operation."""
    body, known, to_half = loop.body, ranges_of(loop.body), ends_in(loop, frozenset(HALF))
    added: set[ValueId] = set()
    for position, instr in reversed(list(enumerate(body))):
        if isinstance(instr, Reduce):
            if instr.kind != "sum":
                return False
            added.add(instr.arg)
        elif isinstance(instr, Point):
            if instr.op not in APART and not (instr.op == "sigmoid" and position in to_half):
                return False
            if instr.op in ("add", "sub") or (instr.op in ("neg", "clone") and position in added):
                added.update(instr.args)
    products = [body[i] for i in added]
    found = [p for p in products if isinstance(p, Point) and p.op == "mul"]
    floats = [p for p in found if p.dtype.is_floating_point]
    return bool(floats) and all(
        p.dtype == torch.float32 and all(_is_short(body, arg, known) for arg in p.args)
        for p in floats
    )


def _is_short(body: Sequence[Instr], position: ValueId, known: Sequence[Range | None]) -> bool:
    """Whether a number has at most half as many bits as float32 holds."""
    instr, numbers = body[position], known[position]
    if numbers is not None and max(-numbers[0], numbers[1]) <= FACTOR:
        return True
    if not isinstance(instr, Point) or instr.op != "cast":
        return False
    return dtype_of(body[instr.args[0]]) in (*HALF, *BYTES)
