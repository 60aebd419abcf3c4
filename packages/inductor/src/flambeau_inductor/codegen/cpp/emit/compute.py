"""Emission of pure instructions.

In: `KernelVariables` and the position of an instruction. Out: lines that declare `v<position>`, or
a condition of a check. Invariant: outside the lanes in use (`n`) nothing is read from memory.
"""

from __future__ import annotations

import torch

from flambeau_inductor.codegen.cpp.dtypes import ROUNDED, literal, spelling_of
from flambeau_inductor.codegen.cpp.emit.memory import load
from flambeau_inductor.codegen.cpp.emit.pointwise import NEIGHBOURS, point, random_name
from flambeau_inductor.codegen.cpp.emit.variables import KernelVariables
from flambeau_inductor.codegen.cpp.loop_rewrites import short_ranges
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.indexing import bounds
from flambeau_inductor.ir.loops import RANDOM, Check, Const, IndexValue, Load, Point, ValueId


def compute(values: KernelVariables, value: ValueId) -> None:
    """Declare the variable of a pure instruction."""
    instr = values.plan.loop.body[value]
    vector = values.plan.is_vector(value)
    match instr:
        case Load():
            load(values, value, instr)
        case Const(value=number, dtype=dtype):
            values.declare(value, literal(number, dtype))
        case IndexValue():
            _index_value(values, value, instr, vector)
        case Point(op=op) if vector and op in RANDOM:
            _random(values, value, instr)
        case Point(op=op, args=args, dtype=dtype):
            kinds = [values.dtype(a) for a in args]
            operands = [values.operand(a, vector) for a in args]
            rounds = dtype is not torch.float16 or value not in values.only_stored
            constant, called = values.constant(vector), op in values.called
            text = point(op, kinds, dtype, operands, constant, rounds, called)
            values.declare(value, text)
        case Check(arg=arg):
            _check(values, arg)
        case _:
            raise CppUnsupported(f"cannot compute {type(instr).__name__} here")


def _check(values: KernelVariables, asked: ValueId) -> None:
    """One comparison, and a point that is left out where it fails: masks would be computed for
    every element."""
    both = values.plan.loop.body[asked]
    parts = [values.plan.loop.body[a] for a in both.args] if isinstance(both, Point) else []
    match parts:
        case [Point(op="ge", args=(place, low)), Point(op="lt", args=(same, end))]:
            if place != same or values.plan.is_vector(asked) or values.plan.loop.r:
                raise CppUnsupported("a check of vectors, of two values, or of rows")
        case _:
            raise CppUnsupported("a check of something else than a range")
    found, first, last = (f"(unsigned long){values.name(v)}" for v in (place, low, end))
    beyond = f"{found} - {first} >= {last} - {first}"
    values.text(f"if (__builtin_expect({beyond}, 0)) {{ outside = 1; continue; }}")


def _random(values: KernelVariables, value: ValueId, instr: Point) -> None:
    """Neighbours by blocks where positions are known to be; any others one by one."""
    seed, position = instr.args
    counted = values.plan.loop.body[position]
    name = random_name(instr.op, instr.dtype)
    rounds = instr.op == "philox_normal" and instr.dtype in ROUNDED
    whole = (
        isinstance(counted, IndexValue)
        and values.step(counted.index) == 1
        and values.width >= 4
        and name in NEIGHBOURS
        and not values.plan.is_vector(seed)
    )
    if whole and isinstance(counted, IndexValue):
        first = f"(i64)({values.address(counted.index)})"
        numbers = f"{name}_{values.width}({values.name(seed)}, {first})"
        values.declare(value, f"{ROUNDED[instr.dtype]}({numbers})" if rounds else numbers)
        return
    each = f"{name}({_lane(values, seed)}, {_lane(values, position)})"
    values.by_lanes(value, f"{ROUNDED[instr.dtype]}({each})" if rounds else each, "0", None)


def _lane(values: KernelVariables, value: ValueId) -> str:
    """One lane, number `l`, of a value."""
    instr = values.plan.loop.body[value]
    if isinstance(instr, IndexValue):
        return f"(i64)({values.address(instr.index, 'l')})"
    return f"{values.name(value)}[l]" if values.plan.is_vector(value) else values.name(value)


def _index_value(values: KernelVariables, value: ValueId, instr: IndexValue, vector: bool) -> None:
    target = spelling_of(instr.dtype).value
    if instr.dtype is torch.bool:
        raise CppUnsupported("positions as bools: compare them instead")

    def converted(text: str) -> str:
        text = f"to_{target}({text})"
        return f"{ROUNDED[instr.dtype]}({text})" if instr.dtype in ROUNDED else text

    if not vector:
        values.declare(value, converted(f"(i64)({values.address(instr.index)})"))
        return
    step = values.step(instr.index)
    low, high = bounds(instr.index, short_ranges(values.plan.axes))
    if step is None or low < -(2**31) or high + abs(step) * values.width >= 2**31:
        each = converted(f"(i64)({values.address(instr.index, 'l')})")
        values.by_lanes(value, each, "0", None)
        return
    first = f"splat{values.width}((i32)({values.address(instr.index)}))"
    moving = f"{first} + lanes{values.width}() * {step}" if step else first
    values.declare(value, converted(moving))
