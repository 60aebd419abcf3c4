"""State of interpreted frames at a graph break, as input of code generation.

In: the chain of frames that interpretation stopped in. Out: `Level`s. Invariant: every place of a
stack is a value, a NULL, or the state of a handler whose exception is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.emit.level import Level
from flambeau_capture.emit.resume import INSTEAD, CannotResume, StackSlot, goes_on_at
from flambeau_capture.interp.frame import NULL, ErrorState, Frame, Suspended
from flambeau_capture.interp.top_frame import Variables
from flambeau_capture.values.base import Value


def levels_of(chain: Sequence[Suspended], resumed: bool) -> list[Level]:
    """The frames, outermost first. `resumed`: the outermost is a resume function's.

    Raises CannotResume where a resume function would go on in itself, nothing having been done.
    """
    outer = chain[0]
    if resumed and outer is chain[-1] and outer.instruction.opname != "CALL":
        if outer.frame.prepared.index[outer.instruction] <= _last_of_start(outer.frame):
            raise CannotResume("an argument of a resume function cannot be taken")
    return [_level(waiting, waiting is not chain[-1]) for waiting in chain]


def _level(waiting: Suspended, has_called: bool) -> Level:
    frame, instruction = waiting.frame, waiting.instruction
    slots = _slots(waiting.stack, waiting.errors)
    instead = _instead(waiting) if has_called else None
    return Level(*_parts(frame), instruction, *slots, _preparation(frame, instruction), instead)


def generator_level(frame: Frame, started: bool) -> Level:
    """The frame of a generator, before the `yield` that it waits in or at its start."""
    instruction = goes_on_at(frame.prepared.body, frame.position, started)
    return Level(*_parts(frame), instruction, *_slots(frame.stack, {}))


def _parts(
    frame: Frame,
) -> tuple[CodeBody, dict[str, Any], dict[str, Value | None], dict[str, Any]]:
    """Its body, globals, bound variables and cells."""
    own = frame.variables
    bound: dict[str, Value | None] = {**own}
    if isinstance(own, Variables):
        bound = own.bound()
    return frame.prepared.body, frame.scope.namespace, bound, dict(frame.cells)


def _slots(
    given: Sequence[Value], errors: dict[int, Value]
) -> tuple[tuple[Value | None, ...], tuple[StackSlot, ...]]:
    found: list[tuple[Value | None, StackSlot]] = []
    for place, value in enumerate(given):
        if value is NULL:
            found.append((None, StackSlot.NULL))
        elif isinstance(value, ErrorState):
            if place not in errors:
                raise CannotResume("a handler whose exception is not known")
            found.append((errors[place], StackSlot.ERROR))
        else:
            found.append((value, StackSlot.VALUE))
    return tuple(value for value, _ in found), tuple(slot for _, slot in found)


def _instead(waiting: Suspended) -> Value | None:
    """What is pushed once the frame that was called has returned, if not its result."""
    frame = waiting.frame
    value: Value | None = frame.variables.get(INSTEAD)
    if value is None or frame.prepared.index[waiting.instruction] > _last_of_start(frame):
        return waiting.instead
    return value


def _last_of_start(frame: Frame) -> int:
    """Index of the jump from what a resume function does first to where it goes on."""
    instructions = frame.prepared.body.instructions
    return next(index for index, one in enumerate(instructions) if one.opname == "JUMP")


def _preparation(frame: Frame, instruction: Instruction) -> tuple[Instruction, ...]:
    """KW_NAMES and PRECALL, which belong to a CALL."""
    if instruction.opname != "CALL":
        return ()
    before = frame.prepared.body.instructions[: frame.prepared.index[instruction]]
    found = takewhile(lambda one: one.opname in ("KW_NAMES", "PRECALL"), reversed(before))
    return tuple(found)[::-1]
