"""Reconstruction of the value stack at a resume point.

In: what each place of the stack holds. Out: instructions that make such a stack from nothing, and
ones that take it apart. Invariant: a place that saves the state of exception handling is made by
raising the exception again and entering a handler, which is the only road there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.decode import Region
from flambeau_capture.bytecode.instruction import Instruction


class StackSlot(Enum):
    """What a place of the stack holds."""

    VALUE = "a value"
    NULL = "the NULL beside a callable"
    ERROR = "the exception that was handled before the present handler"


Slots = tuple[StackSlot, ...]


def push_stack(
    slots: Iterable[StackSlot], load: Callable[[int], list[Instruction]]
) -> tuple[list[Instruction], list[Region]]:
    """Make the stack. `load` pushes the value of a place; for ERROR the exception to be handled."""
    made: list[Instruction] = []
    regions: list[Region] = []
    for place, slot in enumerate(slots):
        if slot is StackSlot.NULL:
            made += spelling.push_null()
            continue
        made += load(place)
        if slot is StackSlot.ERROR:
            instructions, region = enter_handler(place)
            made += instructions
            regions.append(region)
    return made, regions


def enter_handler(depth: int) -> tuple[list[Instruction], Region]:
    """exception -> the state before it; from then on the exception is being handled."""
    raised = spelling.raise_varargs(1)
    landing = [Instruction("PUSH_EXC_INFO"), *spelling.pop_top()]
    return [*raised, *landing], Region(raised[0], raised[-1], landing[0], depth, False)


def leave_stack(slots: Sequence[StackSlot], name: str = "___left_") -> list[Instruction]:
    """Empty the stack into variables (see `left`); handlers are left on the way."""
    made: list[Instruction] = []
    for place in range(len(slots) - 1, -1, -1):
        if slots[place] is StackSlot.ERROR:
            made += [Instruction("POP_EXCEPT")]
        else:
            made += spelling.store_fast(f"{name}{place}")
    return made


def left(slots: Sequence[StackSlot], name: str = "___left_") -> list[list[Instruction]]:
    """After `leave_stack`: the instructions that push each value again, bottom first."""
    return [
        spelling.load_fast_bound(f"{name}{place}")
        for place, slot in enumerate(slots)
        if slot is StackSlot.VALUE
    ]


def after(slots: Slots, net: int) -> Slots:
    """The stack once an instruction of this effect has run, its pushes being values."""
    return (*slots, *[StackSlot.VALUE] * net) if net >= 0 else slots[:net]
