"""The instruction type.

In: nothing. Out: `Instruction`, `SourcePositions`, `OperandFlags`, and `clone`, which copies a run
of instructions and re-targets the jumps inside it. Invariant: an instruction is its identity; two
instructions with equal fields are still two places in the code, and a jump points at an object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class SourcePositions(NamedTuple):
    """Where in the source an instruction comes from (PEP 657); all None: nowhere."""

    lineno: int | None = None
    end_lineno: int | None = None
    col_offset: int | None = None
    end_col_offset: int | None = None


NOWHERE = SourcePositions()


@dataclass(frozen=True, slots=True)
class OperandFlags:
    """The bits that CPython packs into an operand; a bit an opcode does not have stays False.

    push_null: LOAD_GLOBAL also pushes the NULL that a call expects.
    method: LOAD_ATTR and LOAD_SUPER_ATTR (3.12 on) push a method and its self, or NULL and the
        attribute.
    to_bool: COMPARE_OP (3.13 on) converts its result to bool.
    two_arg: LOAD_SUPER_ATTR (3.12 on) stands for `super(cls, self)` rather than `super()`.
    """

    push_null: bool = False
    method: bool = False
    to_bool: bool = False
    two_arg: bool = False


NO_FLAGS = OperandFlags()


@dataclass(eq=False, slots=True)
class Instruction:
    """An opcode with its operand, free of offsets, caches and EXTENDED_ARG.

    opname: the name, direction-free for jumps: JUMP, JUMP_NO_INTERRUPT, POP_JUMP_IF_TRUE, ...
    arg: the operand's number. It is what counts for operands that are numbers (CALL, BUILD_LIST,
        COPY); for the others `assemble` computes it from `argval` or `target`.
    argval: the operand's meaning: the name for LOAD_GLOBAL, LOAD_ATTR, LOAD_FAST, LOAD_DEREF, ...;
        the constant for LOAD_CONST, KW_NAMES, RETURN_CONST; the operator for COMPARE_OP ("<") and
        BINARY_OP ("+", "+="); the intrinsic's name for CALL_INTRINSIC_1 and _2; the method's for
        LOAD_SPECIAL; the object for LOAD_COMMON_CONSTANT.
    target: where a jump goes.
    positions: None means: those of the instruction before it. `NOWHERE` means none.
    offset: the opcode's byte offset in the code object it was decoded from (as in f_lasti).
    """

    opname: str
    arg: int | None = None
    argval: object = None
    target: Instruction | None = None
    positions: SourcePositions | None = None
    offset: int | None = None
    flags: OperandFlags = field(default=NO_FLAGS)

    def __repr__(self) -> str:
        shown = self.argval if self.argval is not None or self.arg is None else self.arg
        text = self.opname if shown is None else f"{self.opname}({shown!r})"
        if self.target is not None:
            text = f"{self.opname}(to {self.target.opname}@{self.target.offset})"
        return f"<{text} @{self.offset}>"


def clone(
    instructions: Iterable[Instruction],
) -> tuple[list[Instruction], dict[Instruction, Instruction]]:
    """Copy instructions, and say which copy stands for which original.

    A jump to an instruction of the run goes to its copy; a jump out of it keeps its target.
    """
    originals = list(instructions)
    copies = {original: replace(original) for original in originals}
    for copy in copies.values():
        if copy.target is not None:
            copy.target = copies.get(copy.target, copy.target)
    return [copies[original] for original in originals], copies


def placed(
    instructions: Sequence[Instruction], positions: SourcePositions | None
) -> Sequence[Instruction]:
    """The same instructions, all at one place in the source."""
    for instruction in instructions:
        instruction.positions = positions
    return instructions


def at_line(instructions: Sequence[Instruction], line: int) -> Sequence[Instruction]:
    """The same, on one line."""
    return placed(instructions, SourcePositions(line, line, None, None))
