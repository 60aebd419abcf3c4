"""What must be the same before and after a round trip, as values that compare with ==."""

from __future__ import annotations

import math
import types
from collections.abc import Hashable, Iterator

from flambeau_capture.bytecode import CodeBody, assemble, decode

FIELDS = (
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_nlocals",
    "co_varnames",
    "co_cellvars",
    "co_freevars",
    "co_flags",
    "co_name",
    "co_qualname",
    "co_filename",
    "co_firstlineno",
)


def constant_key(value: object) -> Hashable:
    """Equal keys: constants that differ by identity at most."""
    kind = type(value)
    if kind in (int, bool, str, bytes):
        return kind, value
    if kind is float and isinstance(value, float):
        return kind, value.hex() if not math.isnan(value) else id(value)
    if kind is complex and isinstance(value, complex):
        return kind, constant_key(value.real), constant_key(value.imag)
    if kind is tuple and isinstance(value, tuple):
        return kind, tuple(constant_key(item) for item in value)
    return kind, "identity", id(value)


def meaning(body: CodeBody) -> tuple:
    """Opcodes, operands' meanings, jumps and regions by index, positions, flags."""
    where = {instruction: index for index, instruction in enumerate(body.instructions)}
    stream = [
        (
            i.opname,
            constant_key(i.argval),
            None if i.target is None else where[i.target],
            i.positions,
            i.flags,
        )
        for i in body.instructions
    ]
    regions = [
        (where[r.start], where[r.end], where[r.handler], r.depth, r.lasti) for r in body.regions
    ]
    return stream, regions


def fields(code: types.CodeType) -> dict[str, object]:
    return {name: getattr(code, name) for name in FIELDS}


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested(constant)


def rebuilt(code: types.CodeType) -> types.CodeType:
    """The code object assembled anew, and every code object inside it."""
    body = decode(code)
    for instruction in body.instructions:
        if isinstance(instruction.argval, types.CodeType):
            instruction.argval = rebuilt(instruction.argval)
    return assemble(body)


def function(code: types.CodeType, like: types.FunctionType | None = None) -> types.FunctionType:
    """A function of the code, with the globals, defaults and closure of another."""
    if like is None:
        return types.FunctionType(code, globals())
    made = types.FunctionType(
        code, like.__globals__, like.__name__, like.__defaults__, like.__closure__
    )
    made.__kwdefaults__ = like.__kwdefaults__
    return made
