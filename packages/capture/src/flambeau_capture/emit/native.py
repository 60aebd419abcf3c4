"""The breaking instruction, as it runs in generated code.

In: a frame before the instruction. Out: instructions that do the same, and the roads that lead on
from them. Invariant: an instruction whose effect on the stack is not known beforehand is spelled in
a way whose effect is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import TERMINATORS, VERSION
from flambeau_capture.bytecode.stack import stack_effect
from flambeau_capture.emit.level import Level, following
from flambeau_capture.emit.stack import Slots, StackSlot, after

CALLS = {"CALL": 2, "CALL_KW": 3}
_METHOD: Slots = (
    (StackSlot.VALUE, StackSlot.NULL) if spelling.NULL_ABOVE else (StackSlot.NULL, StackSlot.VALUE)
)


@dataclass(frozen=True)
class Road:
    """One way on: the instructions at its start, the original instruction it leads to."""

    start: tuple[Instruction, ...]
    target: Instruction
    slots: Slots


@dataclass(frozen=True)
class Native:
    instructions: tuple[Instruction, ...]
    roads: tuple[Road, ...]


def native(level: Level) -> Native:
    """The instruction that a frame stopped at."""
    instruction, slots = level.instruction, level.slots
    made, done = _spelled(level)
    for one in made:
        one.positions = instruction.positions
    if instruction.opname == "FOR_ITER":
        return Native(tuple(made), _loop(level, made[-1]))
    roads: list[Road] = []
    if instruction.opname not in TERMINATORS:
        roads.append(Road((), following(level.body, instruction), done))
        if instruction.target is not None:
            label = spelling.nop()
            made[-1].target = label[0]
            there = after(slots, stack_effect(instruction, jump=True))
            roads.append(Road(tuple(label), instruction.target, there))
    return Native(tuple(made), tuple(roads))


def _spelled(level: Level) -> tuple[list[Instruction], Slots]:
    """The instruction and what it needs in front, and the stack after it."""
    instruction, slots = level.instruction, level.slots
    opname, flags = instruction.opname, instruction.flags
    if opname == "LOAD_METHOD" or (opname == "LOAD_ATTR" and flags.method):
        load = spelling.load_attr(str(instruction.argval))
        return [*load, *spelling.callable_on_top()], (*slots[:-1], *_METHOD)
    if opname == "LOAD_SUPER_ATTR" and flags.method:
        plain = replace(instruction, flags=replace(flags, method=False))
        return [plain, *spelling.callable_on_top()], (*slots[:-3], *_METHOD)
    if opname == "LOAD_GLOBAL" and flags.push_null:
        plain = replace(instruction, flags=replace(flags, push_null=False))
        return [plain, *spelling.callable_on_top()], (*slots, *_METHOD)
    made = [replace(one) for one in (*level.preparation, instruction)]
    if opname in CALLS and instruction.arg is not None:
        return made, (*slots[: -(CALLS[opname] + instruction.arg)], StackSlot.VALUE)
    if opname == "CALL_FUNCTION_EX":
        return made, (*slots[: -(3 + (int(instruction.arg or 0) & 1))], StackSlot.VALUE)
    return made, after(slots, stack_effect(instruction, jump=False))


def _loop(level: Level, loop: Instruction) -> tuple[Road, ...]:
    body, instruction = level.body, level.instruction
    end = spelling.end_for()
    loop.target = end[0]
    assert instruction.target is not None
    skipped = {(3, 11): 0, (3, 12): 1}.get(VERSION, 2)
    exhausted = body.instructions[body.instructions.index(instruction.target) + skipped]
    return (
        Road((), following(body, instruction), (*level.slots, StackSlot.VALUE)),
        Road(tuple(end), exhausted, level.slots[:-1]),
    )
