"""Numbers that a loop only moves, as integers of their size.

In: a `Loop` and the dtypes of its buffers. Out: both, where half-precision numbers and bools that
are read, chosen among, negated and stored, and nothing else, are 16-bit integers and bytes.
Invariant: the same bits are stored. A half-precision number in a register is a float32 and a bool
is a mask, so moving one takes two conversions, and half or a quarter of a vector's lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from flambeau_inductor.ir.loops import Const, Instr, Load, Loop, Point, Scalar, Store, ValueId
from flambeau_inductor.ir.operands import operands, renumbered

BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.bool: torch.uint8}
SIGN = -(1 << 15)
"""The sign of a half-precision number; the rest of it is the complement."""
SIGNED = {"neg": ("bitwise_xor", SIGN), "abs": ("bitwise_and", ~SIGN)}


def moved_as_bits(
    loop: Loop, dtypes: Mapping[str, torch.dtype]
) -> tuple[Loop, Mapping[str, torch.dtype]]:
    """`loop` and the dtypes by which its buffers are read and written."""
    moved = _moved(loop)
    if not moved or _transposes(loop):
        return loop, dtypes
    body: list[Instr] = []
    new: dict[ValueId, ValueId] = {}
    retyped = dict(dtypes)
    for position, instr in enumerate(loop.body):
        taken = renumbered(instr, new)
        if isinstance(instr, Store) and instr.value in moved:
            retyped[instr.buffer] = BITS[dtypes[instr.buffer]]
        elif position in moved:
            dtype = instr.dtype if isinstance(instr, Load | Const | Point) else None
            assert dtype is not None
            bits = BITS[dtype]
            match taken:
                case Load(buffer=buffer, other=other):
                    retyped[buffer] = bits
                    taken = replace(taken, dtype=bits, other=_bits(other, dtype))
                case Const(value=value):
                    taken = Const(_bits(value, dtype), bits)
                case Point(op=op, args=args) if op in SIGNED:
                    operation, constant = SIGNED[op]
                    body.append(Const(constant, bits))
                    taken = Point(operation, (*args, len(body) - 1), bits)
                case Point():
                    taken = replace(taken, dtype=bits)
        body.append(taken)
        new[position] = len(body) - 1
    return replace(loop, body=tuple(body)), retyped


def _transposes(loop: Loop) -> bool:
    """Whether it is read across the lanes: squares of float32 are transposed."""
    lanes = loop.x[-1].var if loop.x else ""
    loads = [i for i in loop.body if isinstance(i, Load)]
    return any(i.index.coefficient(lanes) not in (None, -1, 0, 1) for i in loads)


def _bits(value: Scalar, dtype: torch.dtype) -> int:
    return int(torch.tensor(value, dtype=dtype).view(BITS[dtype]).item())


def _data(instr: Instr) -> tuple[ValueId, ...]:
    """The operands that an instruction passes on."""
    match instr:
        case Point(op="where", args=(_, one, other)):
            return one, other
        case Point(op=op, args=args) if op in SIGNED:
            return args
        case Store(value=value, mode="set"):
            return (value,)
    return ()


def _moved(loop: Loop) -> set[ValueId]:
    """The values of `BITS` that are only moved, with all that is moved with them."""
    found: set[ValueId] = set()
    for position, instr in enumerate(loop.body):
        if isinstance(instr, Load | Const):
            kept = instr.dtype in BITS
        elif isinstance(instr, Point):
            kept = bool(_data(instr)) and instr.dtype in BITS
            kept = kept and (instr.dtype != torch.bool or instr.op == "where")
        else:
            kept = False
        if kept:
            found.add(position)
    while True:
        gone: set[ValueId] = set()
        whole: dict[str, bool] = {}
        for position, instr in enumerate(loop.body):
            if isinstance(instr, Load):
                whole[instr.buffer] = whole.get(instr.buffer, True) and position in found
            elif isinstance(instr, Store):
                fits = instr.mode == "set" and instr.value in found
                whole[instr.buffer] = whole.get(instr.buffer, True) and fits
        for position, instr in enumerate(loop.body):
            data = _data(instr)
            gone.update(v for v in operands(instr) if v not in data)
            passes_on = isinstance(instr, Store) or position in found
            passes_on = passes_on and all(v in found for v in data)
            if isinstance(instr, Load | Store):
                passes_on = passes_on and whole[instr.buffer]
            if not passes_on:
                gone.update((position, *data))
        if not gone & found:
            return found
        found -= gone
