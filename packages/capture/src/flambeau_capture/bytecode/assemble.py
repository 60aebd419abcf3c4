"""Assembler: edited instructions to a code object.

In: a `CodeBody` (instructions inserted, removed, reordered at will) and overrides for the fields of
its template code object. Out: a code object that CPython runs. Invariant: what cannot be expressed
on the running version (an unbound cell, a loop's exit that is no END_FOR, a jump out of the body)
raises AssembleError; nothing is emitted that the interpreter would misread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType

from flambeau_capture.bytecode.binding import before_their_cell, possibly_unbound
from flambeau_capture.bytecode.decode import CodeBody, local_slots
from flambeau_capture.bytecode.flow import covering, positions_in
from flambeau_capture.bytecode.instruction import NOWHERE, Instruction, SourcePositions
from flambeau_capture.bytecode.layout import CodeLayout, lay_out
from flambeau_capture.bytecode.opcodes import (
    BINARY_OPERATORS,
    CHECKED_LOAD,
    COMPARE_MASKS,
    COMPARE_OPERATORS,
    FOLLOWERS,
    FOR_ITER_TARGET,
    INTRINSICS_1,
    INTRINSICS_2,
    OperandKind,
    spec,
)
from flambeau_capture.bytecode.pools import AssembleError, ConstantPool, NamePool, Slots
from flambeau_capture.bytecode.stack import entry_depth, max_depth, number
from flambeau_capture.bytecode.tables import exception_table, line_table

CO_VARARGS, CO_VARKEYWORDS = 0x04, 0x08

_OPERATOR_TABLES: dict[OperandKind, tuple[str, ...]] = {
    OperandKind.COMPARE: COMPARE_OPERATORS,
    OperandKind.BINARY: BINARY_OPERATORS,
    OperandKind.INTRINSIC_1: INTRINSICS_1,
    OperandKind.INTRINSIC_2: INTRINSICS_2,
}


@dataclass(frozen=True, slots=True)
class _Pools:
    names: NamePool
    constants: ConstantPool
    slots: Slots


def assemble(
    body: CodeBody,
    *,
    name: str | None = None,
    qualname: str | None = None,
    filename: str | None = None,
    firstlineno: int | None = None,
    flags: int | None = None,
    argcount: int | None = None,
    posonlyargcount: int | None = None,
    kwonlyargcount: int | None = None,
    varnames: Sequence[str] | None = None,
    cellvars: Sequence[str] | None = None,
    freevars: Sequence[str] | None = None,
) -> CodeType:
    """Assemble a body; a field not given is the template's.

    Variables that the instructions use and nobody declares become local variables; cells and free
    variables must be declared, because MAKE_CELL, COPY_FREE_VARS and the function's closure depend
    on them. Constants and names are collected anew, in order of first use; the template's first
    constant keeps its place, where functions have their docstring.

    From 3.12 on, reads of variables that may be unbound become checked ones: the compiler left the
    check out for the roads of the original code, an edit may have opened others.

    Raises AssembleError or StackError (both ValueError) if the instructions make no code object.
    """
    code = body.code
    _check(body)
    slots = Slots(
        code,
        code.co_varnames if varnames is None else tuple(varnames),
        code.co_cellvars if cellvars is None else tuple(cellvars),
        code.co_freevars if freevars is None else tuple(freevars),
    )
    slots.declare(body.instructions)
    _check_cells(body, slots)
    new_flags = code.co_flags if flags is None else flags
    counts = (
        code.co_argcount if argcount is None else argcount,
        code.co_posonlyargcount if posonlyargcount is None else posonlyargcount,
        code.co_kwonlyargcount if kwonlyargcount is None else kwonlyargcount,
    )
    given = argument_slots(counts[0] + counts[2], new_flags)
    if given > len(slots.varnames):
        raise AssembleError(f"{given} arguments, but the variables are {slots.varnames}")
    unbound: set[Instruction] = set()
    if CHECKED_LOAD is not None:
        arguments = slots.varnames[:given]
        unbound = possibly_unbound(body, {*arguments, *slots.cellvars, *slots.freevars})
    pools = _Pools(NamePool(), ConstantPool(code.co_consts[:1]), slots)
    opnames = {i: CHECKED_LOAD for i in unbound if CHECKED_LOAD is not None}
    operands = {i: _operand(i, pools) for i in body.instructions if i.target is None}
    layout = lay_out(body.instructions, operands, opnames)
    line = code.co_firstlineno if firstlineno is None else firstlineno
    made = code.replace(
        co_argcount=counts[0],
        co_posonlyargcount=counts[1],
        co_kwonlyargcount=counts[2],
        co_nlocals=len(slots.varnames),
        co_varnames=slots.varnames,
        co_cellvars=slots.cellvars,
        co_freevars=slots.freevars,
        co_stacksize=max_depth(body, entry=entry_depth(code, new_flags)),
        co_flags=new_flags,
        co_firstlineno=line,
        co_code=layout.code,
        co_consts=pools.constants.values(),
        co_names=pools.names.values(),
        co_filename=code.co_filename if filename is None else filename,
        co_name=code.co_name if name is None else name,
        co_qualname=code.co_qualname if qualname is None else qualname,
        co_linetable=line_table(_placed(body, layout, line), line),
        co_exceptiontable=exception_table(_rows(body, layout)),
    )
    if local_slots(made) != slots.names:
        raise AssembleError(f"slots {local_slots(made)} were made where {slots.names} were meant")
    return made


def _check(body: CodeBody) -> None:
    """Refuse what CPython would run, but not as it is written."""
    where = positions_in(body)
    order = body.instructions
    for instruction, following in zip(order, [*order[1:], None]):
        needed = FOLLOWERS.get(instruction.opname)
        if needed is not None and (following is None or following.opname != needed):
            raise AssembleError(f"{instruction!r} must be followed by {needed}, not {following!r}")
        takes_target = spec(instruction.opname).kind is OperandKind.JUMP
        if takes_target != (instruction.target is not None):
            wants = "needs a target" if takes_target else "is no jump, yet has a target"
            raise AssembleError(f"{instruction!r} {wants}")
        if instruction.target is not None and instruction.target not in where:
            raise AssembleError(f"{instruction!r} jumps to an instruction not in the body")
        if (
            instruction.opname == "FOR_ITER"
            and FOR_ITER_TARGET is not None
            and instruction.target is not None
            and instruction.target.opname != FOR_ITER_TARGET
        ):
            raise AssembleError(f"{instruction!r}: FOR_ITER must go to {FOR_ITER_TARGET}")


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
    row = spec(instruction.opname)
    match row.kind:
        case OperandKind.NONE:
            return 0
        case OperandKind.NAME:
            index = pools.names.index(_name(instruction))
        case OperandKind.CONST:
            index = pools.constants.index(instruction.argval)
        case OperandKind.LOCAL | OperandKind.CELL:
            index = pools.slots.index(instruction, row.kind)
        case OperandKind.FREE_COUNT:
            index = len(pools.slots.freevars)
        case (
            OperandKind.COMPARE
            | OperandKind.BINARY
            | OperandKind.INTRINSIC_1
            | OperandKind.INTRINSIC_2
        ):
            index = _operator(instruction, _OPERATOR_TABLES[row.kind])
        case _:
            index = number(instruction)
    operand = index << row.shift
    for flag, bit in row.bits:
        operand |= bit if getattr(instruction.flags, flag) else 0
    if row.kind is OperandKind.COMPARE:
        operand |= COMPARE_MASKS[COMPARE_OPERATORS[index]]
    return operand


def _name(instruction: Instruction) -> str:
    if not isinstance(instruction.argval, str):
        raise AssembleError(f"{instruction!r} needs a name for its argval")
    return instruction.argval


def _operator(instruction: Instruction, table: tuple[str, ...]) -> int:
    if instruction.argval not in table:
        raise AssembleError(f"{instruction!r}: argval is none of {', '.join(table)}")
    return table.index(str(instruction.argval))


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
    regions = covering(body)
    open_region, start, end = None, 0, 0
    for instruction in [*body.instructions, None]:
        region = None if instruction is None else regions.get(instruction)
        if region is not open_region:
            if open_region is not None:
                handler = layout.starts[open_region.handler]
                yield start, end, handler, open_region.depth, open_region.lasti
            open_region = region
            start = 0 if instruction is None else layout.starts[instruction]
        if instruction is not None:
            end = layout.starts[instruction] + layout.units[instruction]
