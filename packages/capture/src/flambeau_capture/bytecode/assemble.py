"""Assembler: instructions back to a code object.

In: a body. Out: `assemble`: its code object, with jumps spelt and operands widened until their
distances fit, and the side tables co_exceptiontable (sorted, disjoint rows: CPython searches it by
halving) and co_linetable. Invariant: operand widths only grow while offsets settle, so the search
ends. Source: Objects/exception_handling_notes.txt and Objects/locations.md of CPython.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from types import CodeType
from typing import Any

from flambeau_capture.bytecode.decode import CodeBody, local_slots
from flambeau_capture.bytecode.flow import covering, positions_in
from flambeau_capture.bytecode.instruction import NOWHERE, Instruction, SourcePositions
from flambeau_capture.bytecode.opcodes import INVERSE, RUNNING, OpcodeSpec, OpcodeTable, OperandKind
from flambeau_capture.bytecode.pools import (
    AssembleError,
    ConstantPool,
    Slots,
    before_their_cell,
    possibly_unbound,
)
from flambeau_capture.bytecode.stack import entry_depth, max_depth, number

_NO_COLUMNS, _LONG, _NONE = 13, 14, 15
_UNITS_PER_ENTRY = 8


def exception_table(rows: Iterable[tuple[int, int, int, int, bool]]) -> bytes:
    """Rows (start, end, handler, depth, lasti), the first three in code units, end exclusive."""
    out = bytearray()
    floor = 0
    for start, end, handler, depth, lasti in rows:
        if not floor <= start < end:
            raise ValueError(f"exception table rows overlap or are empty at unit {start}")
        floor = end
        _big_endian(out, start, first=True)
        _big_endian(out, end - start)
        _big_endian(out, handler)
        _big_endian(out, depth << 1 | int(lasti))
    return bytes(out)


def line_table(entries: Iterable[tuple[int, SourcePositions]], first_line: int) -> bytes:
    """Entries (code units, position); neighbours of one position are written as one run."""
    out = bytearray()
    line = first_line
    for positions, run in groupby(entries, key=itemgetter(1)):
        units = sum(count for count, _ in run)
        while units > 0:
            taken = min(units, _UNITS_PER_ENTRY)
            line = _location(out, taken, positions, line)
            units -= taken
    return bytes(out)


def _location(out: bytearray, units: int, positions: SourcePositions, line: int) -> int:
    """Append one entry; answer the line that the next one counts from."""
    lineno, end_lineno, column, end_column = positions
    if lineno is None:
        out.append(_head(_NONE, units))
        return line
    delta = lineno - line
    if column is None or end_column is None:
        if end_lineno is None or end_lineno == lineno:
            out.append(_head(_NO_COLUMNS, units))
            _signed(out, delta)
            return lineno
        column = end_column = -1
    if end_lineno is None:
        end_lineno = lineno
    one_line = end_lineno == lineno and column >= 0
    if one_line and delta == 0 and column < 80 and 0 <= end_column - column < 16:
        out.append(_head(column >> 3, units))
        out.append((column & 7) << 4 | end_column - column)
    elif one_line and 0 <= delta <= 2 and column < 128 and 0 <= end_column < 128:
        out.append(_head(10 + delta, units))
        out.extend((column, end_column))
    else:
        out.append(_head(_LONG, units))
        _signed(out, delta)
        _little_endian(out, end_lineno - lineno)
        _little_endian(out, column + 1)
        _little_endian(out, end_column + 1)
    return lineno


def _head(code: int, units: int) -> int:
    return 128 | code << 3 | units - 1


def _little_endian(out: bytearray, value: int) -> None:
    """Groups of 6 bits, the lowest first; bit 6 says that more follow."""
    if value < 0:
        raise ValueError(f"a position cannot end before it starts: {value}")
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)


def _signed(out: bytearray, value: int) -> None:
    _little_endian(out, -value << 1 | 1 if value < 0 else value << 1)


def _big_endian(out: bytearray, value: int, *, first: bool = False) -> None:
    """Groups of 6 bits, the highest first; bit 7 marks the first byte of a row."""
    groups = [value & 63]
    while value := value >> 6:
        groups.append(64 | value & 63)
    groups.reverse()
    groups[0] |= 128 if first else 0
    out.extend(groups)


_OR_POP = ("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")


@dataclass(frozen=True, slots=True)
class CodeLayout:
    """Bytes, and for each instruction its first code unit and how many it takes."""

    code: bytes
    starts: dict[Instruction, int]
    units: dict[Instruction, int]


@dataclass(eq=False, slots=True)
class _Op:
    """One opcode to be written; `goal` is the op a jump goes to."""

    row: OpcodeSpec
    operand: int = 0
    to: Instruction | None = None
    goal: _Op | None = None
    start: int = 0
    extended: int = 0

    @property
    def units(self) -> int:
        return self.extended + 1 + self.row.caches


def lay_out(
    instructions: Sequence[Instruction],
    operands: Mapping[Instruction, int],
    opnames: Mapping[Instruction, str],
    table: OpcodeTable = RUNNING,
) -> CodeLayout:
    """Place the instructions.

    operands: those of the instructions without a target.
    opnames: what to write in place of an instruction's own opcode, where it is to be another.
    """
    where = {instruction: index for index, instruction in enumerate(instructions)}
    groups: list[list[_Op]] = []
    for index, instruction in enumerate(instructions):
        if instruction.target is None:
            opname = opnames.get(instruction, instruction.opname)
            groups.append([_Op(table.spec(opname), operands[instruction])])
        else:
            backward = where[instruction.target] <= index
            groups.append(_jump(instruction, instruction.target, table, backward=backward))
    # A spelling that skips over a helper jump goes to whatever is written next.
    heads = [group[0] for group in groups]
    for index, group in enumerate(groups):
        for op in group:
            if op.to is not None:
                op.goal = heads[where[op.to]]
            elif op.row.kind is OperandKind.JUMP and op.goal is None:
                if index + 1 == len(groups):
                    raise AssembleError(f"{instructions[index]!r} falls off the end of the body")
                op.goal = heads[index + 1]
    ops = [op for group in groups for op in group]
    _settle(ops, table)
    return CodeLayout(
        b"".join(_encode(op, table) for op in ops),
        {instruction: head.start for instruction, head in zip(instructions, heads)},
        {one: sum(op.units for op in group) for one, group in zip(instructions, groups)},
    )


def _jump(
    instruction: Instruction, target: Instruction, table: OpcodeTable, *, backward: bool
) -> list[_Op]:
    """Spell a jump; where there is no backward form, as a forward one around a plain jump."""
    name = instruction.opname
    forward_name, backward_name = table.directions[name]
    if not backward:
        return [_Op(table.spec(forward_name), to=target)]
    if backward_name is not None:
        return [_Op(table.spec(backward_name), to=target)]
    back = _Op(table.spec("JUMP_BACKWARD"), to=target)
    if name in INVERSE:
        return [_Op(table.spec(table.directions[INVERSE[name]][0])), back]
    if name in _OR_POP:
        return [_Op(table.spec(name), goal=back), _Op(table.spec("JUMP_FORWARD")), back]
    raise AssembleError(f"{instruction!r}: CPython has no backward {name}")


def _settle(ops: list[_Op], table: OpcodeTable) -> None:
    """Widen operands until every offset is consistent with the operands made from it."""
    for op in ops:
        op.extended = _extension(op.operand)
    moved = True
    while moved:
        moved = False
        unit = 0
        for op in ops:
            op.start = unit
            unit += op.units
        for op in ops:
            if op.goal is None:
                continue
            op.operand = _distance(op, op.goal, table)
            needed = _extension(op.operand)
            if needed > op.extended:
                op.extended, moved = needed, True


def _distance(op: _Op, goal: _Op, table: OpcodeTable) -> int:
    after = op.start + op.units
    distance = after - goal.start if op.row.opname in table.backward else goal.start - after
    if distance < 0:
        raise AssembleError(f"{op.row.opname} at unit {op.start} goes the wrong way")
    return distance


def _extension(operand: int) -> int:
    if not 0 <= operand < 1 << 32:
        raise AssembleError(f"operand {operand} does not fit in 32 bits")
    return (operand > 0xFF) + (operand > 0xFFFF) + (operand > 0xFFFFFF)


def _encode(op: _Op, table: OpcodeTable) -> bytes:
    out = bytearray()
    for shift in range(8 * op.extended, 0, -8):
        out += bytes((table.spec("EXTENDED_ARG").code, op.operand >> shift & 0xFF))
    out += bytes((op.row.code, op.operand & 0xFF))
    return bytes(out) + bytes(2 * op.row.caches)


CO_VARARGS, CO_VARKEYWORDS = 0x04, 0x08


@dataclass(frozen=True, slots=True)
class _Pools:
    table: OpcodeTable
    names: dict[str, int]  # in order of first use
    constants: ConstantPool
    slots: Slots


def assemble(body: CodeBody, **changed: Any) -> CodeType:
    """Assemble a body. `changed` are fields of a code object without their `co_` (name, qualname,
    filename, firstlineno, flags, argcount, posonlyargcount, kwonlyargcount, varnames, cellvars,
    freevars); the others are the template's.

    Variables that the instructions use and nobody declares become local variables; cells and free
    variables must be declared, because MAKE_CELL, COPY_FREE_VARS and the function's closure depend
    on them. Constants and names are collected anew, in order of first use; the template's first
    constant keeps its place, where functions have their docstring.

    From 3.12 on, reads of variables that may be unbound become checked ones: the compiler left the
    check out for the roads of the original code, an edit may have opened others.

    Raises AssembleError or StackError (both ValueError) if the instructions make no code object.
    """
    code, table = body.code, body.table
    _check(body)

    def field(name: str) -> Any:
        return changed[name] if name in changed else getattr(code, f"co_{name}")

    slots = Slots(code, *(tuple(field(name)) for name in ("varnames", "cellvars", "freevars")))
    slots.declare(body.instructions, table)
    _check_cells(body, slots)
    given = argument_slots(field("argcount") + field("kwonlyargcount"), field("flags"))
    if given > len(slots.varnames):
        raise AssembleError(f"{given} arguments, but the variables are {slots.varnames}")
    opnames: dict[Instruction, str] = {}
    if table.checked_load is not None:
        bound = {*slots.varnames[:given], *slots.cellvars, *slots.freevars}
        opnames = dict.fromkeys(possibly_unbound(body, bound), table.checked_load)
    pools = _Pools(table, {}, ConstantPool(code.co_consts[:1]), slots)
    operands = {i: _operand(i, pools) for i in body.instructions if i.target is None}
    layout = lay_out(body.instructions, operands, opnames, table)
    line = field("firstlineno")
    fields = {
        **changed,
        "nlocals": len(slots.varnames),
        "varnames": slots.varnames,
        "cellvars": slots.cellvars,
        "freevars": slots.freevars,
        "stacksize": max_depth(body, entry=entry_depth(code, field("flags"), table)),
        "code": layout.code,
        "consts": pools.constants.values(),
        "names": tuple(pools.names),
        "linetable": line_table(_placed(body, layout, line), line),
        "exceptiontable": exception_table(_rows(body, layout)),
    }
    made = code.replace(**{f"co_{name}": value for name, value in fields.items()})
    if local_slots(made) != slots.names:
        raise AssembleError(f"slots {local_slots(made)} were made where {slots.names} were meant")
    return made


def _check(body: CodeBody) -> None:
    """Refuse what CPython would run, but not as it is written."""
    where = positions_in(body)
    order = body.instructions
    for instruction, following in zip(order, [*order[1:], None]):
        needed = body.table.followers.get(instruction.opname)
        if needed is not None and (following is None or following.opname != needed):
            raise AssembleError(f"{instruction!r} must be followed by {needed}, not {following!r}")
        takes_target = body.table.spec(instruction.opname).kind is OperandKind.JUMP
        if takes_target != (instruction.target is not None):
            wants = "needs a target" if takes_target else "is no jump, yet has a target"
            raise AssembleError(f"{instruction!r} {wants}")
        if instruction.target is not None and instruction.target not in where:
            raise AssembleError(f"{instruction!r} jumps to an instruction not in the body")
        goal = instruction.target.opname if instruction.target is not None else None
        if instruction.opname == "FOR_ITER" and body.table.loop_end[:1] not in ((), (goal,)):
            raise AssembleError(f"{instruction!r}: FOR_ITER must go to {body.table.loop_end[0]}")


def _check_cells(body: CodeBody, slots: Slots) -> None:
    """Refuse a frame whose cells may be missing: reading one would crash the process."""
    copies = any(i.opname == "COPY_FREE_VARS" for i in body.instructions)
    if copies != bool(slots.freevars):
        raise AssembleError(
            f"the free variables are {slots.freevars}, "
            f"and COPY_FREE_VARS is {'there' if copies else 'missing'}"
        )
    early = before_their_cell(body, slots.cellvars, slots.freevars)
    for instruction in body.instructions:
        if instruction in early:
            raise AssembleError(
                f"{instruction!r} can be reached before the cell of {instruction.argval!r} is made "
                f"by MAKE_CELL or COPY_FREE_VARS"
            )


def argument_slots(named: int, flags: int) -> int:
    """How many slots a call fills: the named arguments, then *args, then **kwargs."""
    return named + bool(flags & CO_VARARGS) + bool(flags & CO_VARKEYWORDS)


def _operand(instruction: Instruction, pools: _Pools) -> int:
    """The encoded operand of an instruction that is no jump."""
    table = pools.table
    row = table.spec(instruction.opname)
    match row.kind:
        case OperandKind.NONE:
            return row.fixed
        case OperandKind.NAME:
            index = pools.names.setdefault(_name(instruction), len(pools.names))
        case OperandKind.CONST:
            index = pools.constants.index(instruction.argval)
        case OperandKind.LOCAL | OperandKind.CELL:
            index = pools.slots.index(instruction, row.kind)
        case OperandKind.FREE_COUNT:
            index = len(pools.slots.freevars)
        case kind if kind in table.operators:
            index = _operator(instruction, table.operators[kind])
        case _:
            index = number(instruction)
    operand = index << row.shift
    for flag, bit in row.bits:
        operand |= bit if getattr(instruction.flags, flag) else 0
    if row.kind is OperandKind.COMPARE:
        operand |= table.compare_masks.get(str(instruction.argval), 0)
    return operand


def _name(instruction: Instruction) -> str:
    if not isinstance(instruction.argval, str):
        raise AssembleError(f"{instruction!r} needs a name for its argval")
    return instruction.argval


def _operator(instruction: Instruction, known: tuple[object, ...]) -> int:
    if instruction.argval not in known:
        raise AssembleError(f"{instruction!r}: argval is none of {', '.join(map(str, known))}")
    return known.index(instruction.argval)


def _placed(
    body: CodeBody, layout: CodeLayout, first_line: int
) -> Iterable[tuple[int, SourcePositions]]:
    """(code units, position) of each instruction; one without a position takes its neighbour's."""
    current = SourcePositions(first_line, first_line)
    for instruction in body.instructions:
        if instruction.positions is not None:
            current = instruction.positions
        yield layout.units[instruction], NOWHERE if current.lineno is None else current


def _rows(body: CodeBody, layout: CodeLayout) -> Iterable[tuple[int, int, int, int, bool]]:
    """Exception table rows: runs of instructions that share one region."""
    for region, run in groupby(body.instructions, key=covering(body).get):
        if region is not None:
            covered = [*run]
            start, last = layout.starts[covered[0]], covered[-1]
            end, handler = layout.starts[last] + layout.units[last], layout.starts[region.handler]
            yield start, end, handler, region.depth, region.lasti
