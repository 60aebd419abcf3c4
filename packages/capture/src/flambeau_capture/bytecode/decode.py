"""Decoder: a code object to editable instructions.

In: a code object. Out: a `CodeBody`: instructions without caches or EXTENDED_ARG, jumps as
references, the exception table as `Region`s over instructions, superinstructions split into their
two halves.
Invariant: `assemble(decode(code))` decodes to the same body again.
Source: Objects/locations.md and Objects/exception_handling_notes.txt of CPython.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType

from flambeau_capture.bytecode.instruction import Instruction, OperandFlags, SourcePositions, clone
from flambeau_capture.bytecode.opcodes import (
    RUNNING,
    SUPERINSTRUCTIONS,
    OpcodeSpec,
    OpcodeTable,
    OperandKind,
)


class UnknownOpcode(ValueError):
    """Code of a newer Python than the tables of this package."""


@dataclass(eq=False, slots=True)
class Region:
    """Instructions whose exceptions go to `handler` (one row of the exception table).

    start, end: the first and the last instruction covered, both inclusive, in the body's order.
    depth: the stack is cut to this depth; then, if `lasti`, the raising instruction's offset is
        pushed, and then the exception.
    Where regions overlap, the innermost (latest start, then earliest end) holds.
    """

    start: Instruction
    end: Instruction
    handler: Instruction
    depth: int
    lasti: bool


@dataclass(eq=False, slots=True)
class CodeBody:
    """The instructions of a function, with the code object that gives all the rest."""

    instructions: list[Instruction]
    code: CodeType
    regions: list[Region] = field(default_factory=list)
    table: OpcodeTable = RUNNING

    def copy(self) -> tuple[CodeBody, dict[Instruction, Instruction]]:
        """A body of fresh instructions, and which of them stands for which of ours."""
        instructions, twin = clone(self.instructions)
        regions = [
            replace(r, start=twin[r.start], end=twin[r.end], handler=twin[r.handler])
            for r in self.regions
        ]
        return CodeBody(instructions, self.code, regions, self.table), twin


def local_slots(code: CodeType) -> tuple[str, ...]:
    """Names of the frame's slots: variables, cells that are not arguments, free variables."""
    own = code.co_varnames
    return (*own, *(name for name in code.co_cellvars if name not in own), *code.co_freevars)


def argument_count(code: CodeType) -> int:
    """How many of the code's variables are arguments, *args and **kwargs included."""
    extra = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_argcount + code.co_kwonlyargcount + extra


def decode(code: CodeType, table: OpcodeTable = RUNNING) -> CodeBody:
    """Decode a code object; its quickened or instrumented form does not matter.

    table: of the Python that compiled it, for what has the attributes of another's code object.
    """
    slots = local_slots(code)
    positions = [SourcePositions(*entry) for entry in code.co_positions()]
    instructions: list[Instruction] = []
    at: dict[int, Instruction] = {}  # by first byte, EXTENDED_ARG included
    last_at: dict[int, Instruction] = {}  # the same, the second half of a superinstruction
    jumps: list[tuple[Instruction, int]] = []
    for start, offset, row, arg in _operations(code.co_code, table):
        place = positions[offset // 2]
        halves = _split(row, arg, table)
        for half, half_arg in halves:
            instruction = _instruction(half, half_arg, code, slots, table)
            instruction.positions, instruction.offset = place, offset
            instructions.append(instruction)
            at.setdefault(start, instruction)
            last_at[start] = instruction
            if half.kind is OperandKind.JUMP:
                jumps.append((instruction, _jump_goal(half, half_arg, offset, table)))
    for instruction, goal in jumps:
        instruction.target = at[goal]
    if "LOAD_CLOSURE" not in table.names.values():
        _name_closure_loads(instructions, code)
    return CodeBody(instructions, code, list(_regions(code, at, last_at)), table)


def _operations(raw: bytes, table: OpcodeTable) -> Iterator[tuple[int, int, OpcodeSpec, int]]:
    """(first byte, opcode's byte, row, operand) of each instruction, caches skipped."""
    offset, start, high = 0, 0, 0
    while offset < len(raw):
        name, arg = table.names.get(raw[offset]), high | raw[offset + 1]
        if name is None:
            raise UnknownOpcode(f"instruction number {raw[offset]}, unknown to this package")
        if name == "EXTENDED_ARG":
            high = arg << 8
            offset += 2
            continue
        row = table.spec(name)
        yield start, offset, row, arg
        offset += 2 + 2 * row.caches
        start, high = offset, 0


def _split(row: OpcodeSpec, arg: int, table: OpcodeTable) -> tuple[tuple[OpcodeSpec, int], ...]:
    if row.opname not in SUPERINSTRUCTIONS:
        return ((row, arg),)
    first, second = SUPERINSTRUCTIONS[row.opname]
    return (table.spec(first), arg >> 4), (table.spec(second), arg & 15)


def _jump_goal(row: OpcodeSpec, arg: int, offset: int, table: OpcodeTable) -> int:
    distance = -arg if row.opname in table.backward else arg
    return offset + 2 + 2 * row.caches + 2 * distance


def _instruction(
    row: OpcodeSpec, arg: int, code: CodeType, slots: tuple[str, ...], table: OpcodeTable
) -> Instruction:
    opname = table.fixed.get((row.opname, arg)) or table.canonical.get(row.opname, row.opname)
    if table.spec(opname).kind is OperandKind.NONE:
        return Instruction(opname)
    index = arg >> row.shift
    flags = OperandFlags(**{name: bool(arg & bit) for name, bit in row.bits})
    argval: object
    match row.kind:
        case OperandKind.NAME:
            argval = code.co_names[index]
        case OperandKind.CONST:
            argval = code.co_consts[index]
        case OperandKind.LOCAL | OperandKind.CELL:
            argval = slots[index]
        case OperandKind.SMALL_INT:
            return Instruction(opname, argval=arg)
        case kind if kind in table.operators:
            argval = table.operators[kind][index]
        case OperandKind.JUMP:
            argval = None
        case _:
            argval = arg
    return Instruction(opname, arg, argval, flags=flags)


def _name_closure_loads(instructions: list[Instruction], code: CodeType) -> None:
    """Say LOAD_CLOSURE where LOAD_FAST (3.13 on) certainly reads a cell, as 3.11 and 3.12 do.

    A slot that an inlined comprehension borrows (LOAD_FAST_AND_CLEAR) holds a cell at one time and
    a plain value at another: there LOAD_FAST stays, meaning "whatever the slot holds".
    """
    borrowed = {i.argval for i in instructions if i.opname == "LOAD_FAST_AND_CLEAR"}
    cells = set(code.co_cellvars) | set(code.co_freevars)
    for instruction in instructions:
        if instruction.opname == "LOAD_FAST" and instruction.argval in cells - borrowed:
            instruction.opname = "LOAD_CLOSURE"


def _regions(
    code: CodeType, at: dict[int, Instruction], last_at: dict[int, Instruction]
) -> Iterator[Region]:
    starts = sorted(last_at)
    previous = dict(zip(starts[1:], starts))
    previous[len(code.co_code)] = starts[-1]
    for start, end, handler, depth, lasti in exception_rows(code.co_exceptiontable):
        yield Region(at[start], last_at[previous[end]], at[handler], depth, lasti)


def exception_rows(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """(first byte, byte after the last, handler's byte, depth, lasti) of each table row."""
    data = iter(table)
    for first in data:
        start = _varint(first, data)
        length = _varint(next(data), data)
        handler = _varint(next(data), data)
        packed = _varint(next(data), data)
        yield 2 * start, 2 * (start + length), 2 * handler, packed >> 1, bool(packed & 1)


def _varint(first: int, data: Iterator[int]) -> int:
    """A number in groups of 6 bits, the highest first; bit 6 says that more follow."""
    value, more = first & 63, first & 64
    while more:
        byte = next(data)
        value, more = value << 6 | byte & 63, byte & 64
    return value
