"""Definite-assignment analysis: accesses that may find a variable unbound.

In: a body, and what its frame starts with. Out: the LOAD_FAST instructions that some road reaches
with the variable unbound, and the cell accesses that some road reaches before the cell is made.
Invariant: an access left out finds its slot full on every road to it. From 3.12 on LOAD_FAST does
not check, and no version checks that a cell is there: reading an empty slot crashes the process, so
code that is entered elsewhere than it was written for has to be looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.flow import covering, successors
from flambeau_capture.bytecode.instruction import Instruction

_EMPTIES = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
# A check that passes shows that the variable is bound; a new cell fills its slot.
_FILLS = frozenset({"STORE_FAST", "LOAD_FAST_CHECK", "MAKE_CELL"})
_THROUGH_CELL = frozenset(
    {
        "LOAD_CLOSURE",
        "LOAD_DEREF",
        "LOAD_CLASSDEREF",
        "LOAD_FROM_DICT_OR_DEREF",
        "STORE_DEREF",
        "DELETE_DEREF",
    }
)

Names = frozenset[str]


def possibly_unbound(body: CodeBody, bound: Collection[str]) -> set[Instruction]:
    """LOAD_FAST instructions whose variable may be unbound; `bound` holds the arguments' names.

    Slots that hold cells are the business of `before_their_cell`: name them in `bound`.
    """
    loads = [i for i in body.instructions if i.opname == "LOAD_FAST"]
    empty = frozenset(str(i.argval) for i in loads) - frozenset(bound)
    if not empty and not any(i.opname in _EMPTIES for i in body.instructions):
        return set()
    before = _spread(body, empty, _after)
    return {i for i in loads if i in before and i.argval in before[i]}


def before_their_cell(
    body: CodeBody, cellvars: Collection[str], freevars: Collection[str]
) -> set[Instruction]:
    """Accesses through a cell that MAKE_CELL or COPY_FREE_VARS may not have put there yet."""
    free = frozenset(freevars)
    accesses = [i for i in body.instructions if i.opname in _THROUGH_CELL]
    if not accesses:
        return set()

    def after(instruction: Instruction, state: Names) -> Names:
        if instruction.opname == "COPY_FREE_VARS":
            return state - free
        return _after(instruction, state)

    before = _spread(body, free | frozenset(cellvars), after)
    return {i for i in accesses if i in before and i.argval in before[i]}


def _spread(
    body: CodeBody, empty: Names, after: Callable[[Instruction, Names], Names]
) -> dict[Instruction, Names]:
    """Slots that may be empty before each reachable instruction."""
    order = body.instructions
    if not order:
        return {}
    following, regions = successors(body), covering(body)
    before: dict[Instruction, Names] = {order[0]: empty}
    pending = [order[0]]
    while pending:
        instruction = pending.pop()
        state = before[instruction]
        left = after(instruction, state)
        goals = [(goal, left) for goal in following[instruction]]
        if instruction in regions:
            goals.append((regions[instruction].handler, state))
        for goal, arriving in goals:
            known = before.get(goal)
            merged = arriving if known is None else known | arriving
            if merged != known:
                before[goal] = merged
                pending.append(goal)
    return before


def _after(instruction: Instruction, state: Names) -> Names:
    if instruction.opname in _FILLS:
        return state - {str(instruction.argval)}
    if instruction.opname in _EMPTIES:
        return state | {str(instruction.argval)}
    return state
