"""Instruction layout: jump spelling, operand width, offsets.

In: instructions in order and the operands of those that are no jumps. Out: the code's bytes and
where each instruction came to lie. Invariant: operand widths only grow while offsets settle, so the
search ends, and at its end every distance fits the width it was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import BACKWARD, DIRECTIONS, INVERSE, OpcodeSpec, spec
from flambeau_capture.bytecode.pools import AssembleError

_EXTENDED_ARG = spec("EXTENDED_ARG").code
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
            groups.append([_Op(spec(opname), operands[instruction])])
        else:
            backward = where[instruction.target] <= index
            groups.append(_jump(instruction, instruction.target, backward=backward))
    # A spelling that skips over a helper jump goes to whatever is written next.
    heads = [group[0] for group in groups]
    for index, group in enumerate(groups):
        for op in group:
            if op.to is not None:
                op.goal = heads[where[op.to]]
            elif op.row.opname in _JUMPS and op.goal is None:
                if index + 1 == len(groups):
                    raise AssembleError(f"{instructions[index]!r} falls off the end of the body")
                op.goal = heads[index + 1]
    ops = [op for group in groups for op in group]
    _settle(ops)
    return CodeLayout(
        b"".join(_encode(op) for op in ops),
        {instruction: head.start for instruction, head in zip(instructions, heads)},
        {
            instruction: sum(op.units for op in group)
            for instruction, group in zip(instructions, groups)
        },
    )


_JUMPS = frozenset(
    concrete for pair in DIRECTIONS.values() for concrete in pair if concrete is not None
)


def _jump(instruction: Instruction, target: Instruction, *, backward: bool) -> list[_Op]:
    """Spell a jump; where there is no backward form, as a forward one around a plain jump."""
    name = instruction.opname
    forward_name, backward_name = DIRECTIONS[name]
    if not backward:
        return [_Op(spec(forward_name), to=target)]
    if backward_name is not None:
        return [_Op(spec(backward_name), to=target)]
    back = _Op(spec("JUMP_BACKWARD"), to=target)
    if name in INVERSE:
        return [_Op(spec(DIRECTIONS[INVERSE[name]][0])), back]
    if name in _OR_POP:
        return [_Op(spec(name), goal=back), _Op(spec("JUMP_FORWARD")), back]
    raise AssembleError(f"{instruction!r}: CPython has no backward {name}")


def _settle(ops: list[_Op]) -> None:
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
            op.operand = _distance(op, op.goal)
            needed = _extension(op.operand)
            if needed > op.extended:
                op.extended, moved = needed, True


def _distance(op: _Op, goal: _Op) -> int:
    after = op.start + op.units
    distance = after - goal.start if op.row.opname in BACKWARD else goal.start - after
    if distance < 0:
        raise AssembleError(f"{op.row.opname} at unit {op.start} goes the wrong way")
    return distance


def _extension(operand: int) -> int:
    if not 0 <= operand < 1 << 32:
        raise AssembleError(f"operand {operand} does not fit in 32 bits")
    return (operand > 0xFF) + (operand > 0xFFFF) + (operand > 0xFFFFFF)


def _encode(op: _Op) -> bytes:
    out = bytearray()
    for shift in range(8 * op.extended, 0, -8):
        out += bytes((_EXTENDED_ARG, op.operand >> shift & 0xFF))
    out += bytes((op.row.code, op.operand & 0xFF))
    return bytes(out) + bytes(2 * op.row.caches)
