"""Bytecode listings that are the same on every Python version.

In: a code object or a body. Out: a listing in columns (source line, `>>` before jump targets,
offset, opcode, operand, its meaning) with the exception regions below, or a unified diff of two
listings. Invariant: every instruction is one line, and a listing of equal code is equal text: no
addresses, no caches.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from types import CodeType

from flambeau_capture.bytecode.decode import CodeBody, decode
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import OpcodeTable, OperandKind

_LONGEST = 60
_INDEXED = (OperandKind.NAME, OperandKind.CONST, OperandKind.LOCAL, OperandKind.CELL)


def listing(code: CodeType | CodeBody) -> str:
    """Offsets are those of the code object; what was added to a body since shows as +N.

    The second half of a 3.13 superinstruction shows as its offset with a b.
    """
    body = _body(code)
    names: dict[Instruction, str] = {}
    used: set[str] = set()
    added = 0
    for instruction in body.instructions:
        name = str(instruction.offset)
        if instruction.offset is None:
            added += 1
            name = f"+{added}"
        elif name in used:
            name += "b"
        names[instruction] = name
        used.add(name)
    return "\n".join(_lines(body, names, offsets=True)) + "\n"


def diff(before: CodeType | CodeBody, after: CodeType | CodeBody, context: int = 3) -> str:
    """Unified diff of two listings, with labels in place of offsets; empty if they are alike."""
    old, new = _body(before), _body(after)
    lines = difflib.unified_diff(
        list(_lines(old, _labels(old), offsets=False)),
        list(_lines(new, _labels(new), offsets=False)),
        f"{old.code.co_name} before",
        f"{new.code.co_name} after",
        lineterm="",
        n=context,
    )
    return "".join(f"{line}\n" for line in lines)


def _body(code: CodeType | CodeBody) -> CodeBody:
    return decode(code) if isinstance(code, CodeType) else code


def _targets(body: CodeBody) -> set[Instruction]:
    jumps = {i.target for i in body.instructions if i.target is not None}
    return jumps | {region.handler for region in body.regions}


def _labels(body: CodeBody) -> dict[Instruction, str]:
    targets = [i for i in body.instructions if i in _targets(body)]
    return {instruction: f"L{number}" for number, instruction in enumerate(targets, 1)}


def _lines(body: CodeBody, names: dict[Instruction, str], *, offsets: bool) -> Iterator[str]:
    targets = _targets(body)
    shown: int | None = None
    for instruction in body.instructions:
        line = instruction.positions.lineno if instruction.positions is not None else shown
        number = str(line) if line is not None and line != shown else ""
        shown = line if line is not None else shown
        mark = ">>" if instruction in targets else ""
        place = names[instruction] if offsets or mark else ""
        text = _operation(instruction, names, body.table, indices=offsets)
        yield f"{number:>4} {mark:>3} {place:>5} {text}".rstrip()
    if body.regions:
        yield "exceptions:"
    for region in body.regions:
        span = f"{names[region.start]} to {names[region.end]} " if offsets else ""
        lasti = " lasti" if region.lasti else ""
        yield f"  {span}-> {names[region.handler]} [{region.depth}]{lasti}"


def _operation(
    instruction: Instruction, names: dict[Instruction, str], table: OpcodeTable, *, indices: bool
) -> str:
    opname, row = instruction.opname, table.spec(instruction.opname)
    if instruction.target is not None:
        return f"{opname:<24} {'':>3} (to {names.get(instruction.target, '?')})"
    if row.kind is OperandKind.NONE:
        return opname
    if row.kind is OperandKind.NUMBER:
        value = instruction.arg if instruction.arg is not None else instruction.argval
        return f"{opname:<24} {value!s:>3}"
    shown = indices and instruction.arg is not None and row.kind in _INDEXED
    index = str((instruction.arg or 0) >> row.shift) if shown else ""
    flags = [name for name, _ in row.bits if getattr(instruction.flags, name)]
    extra = f" + {', '.join(flags)}" if flags else ""
    value = instruction.argval
    meaning = constant_text(value) if row.kind is OperandKind.CONST else str(value)
    return f"{opname:<24} {index:>3} ({meaning}){extra}"


def constant_text(value: object) -> str:
    """A constant, shortened, without anything that changes from run to run."""
    if isinstance(value, CodeType):
        return f"code {value.co_qualname}, line {value.co_firstlineno}"
    if isinstance(value, tuple):
        inside = ", ".join(constant_text(item) for item in value)
        return _short(f"({inside},)" if len(value) == 1 else f"({inside})")
    if isinstance(value, frozenset):
        inside = ", ".join(sorted(constant_text(item) for item in value))
        return _short(f"frozenset({{{inside}}})")
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return _short(repr(value))
    if value is Ellipsis:
        return "Ellipsis"
    name = getattr(value, "__qualname__", None)
    return _short(str(name)) if isinstance(name, str) else f"{type(value).__qualname__} object"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
