"""Which reads of a variable may find it unbound.

In: a body and the names bound when its frame starts. Out: the LOAD_FAST instructions that some road
reaches with the variable unbound. Invariant: a read left out is bound on every road to it. From
3.12 on LOAD_FAST does not check, and reading an empty slot crashes the process; code that is
entered elsewhere than it was written for needs LOAD_FAST_CHECK there.
"""

from __future__ import annotations

from collections.abc import Collection

from flambeau_capture.bytecode.decode import Body
from flambeau_capture.bytecode.flow import covering, successors
from flambeau_capture.bytecode.instruction import Instruction

_UNBINDS = frozenset({"DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
# A check that passes shows that the variable is bound; a new cell fills its slot.
_BINDS = frozenset({"STORE_FAST", "LOAD_FAST_CHECK", "MAKE_CELL"})
_TOUCHES = _UNBINDS | _BINDS | {"LOAD_FAST"}


def possibly_unbound(body: Body, bound: Collection[str]) -> set[Instruction]:
    """LOAD_FAST instructions whose variable may be unbound; `bound` holds the arguments' names.

    Slots that hold cells are the caller's matter: name them in `bound`.
    """
    order = body.instructions
    if not order:
        return set()
    used = {str(i.argval) for i in order if i.opname in _TOUCHES}
    empty = frozenset(used - set(bound))
    if not empty and not any(i.opname in _UNBINDS for i in order):
        return set()
    following, regions = successors(body), covering(body)
    before: dict[Instruction, frozenset[str]] = {order[0]: empty}
    pending = [order[0]]
    while pending:
        instruction = pending.pop()
        state = before[instruction]
        goals = [(goal, _after(instruction, state)) for goal in following[instruction]]
        if instruction in regions:
            goals.append((regions[instruction].handler, state))
        for goal, arriving in goals:
            known = before.get(goal)
            merged = arriving if known is None else known | arriving
            if merged != known:
                before[goal] = merged
                pending.append(goal)
    return {
        instruction
        for instruction, state in before.items()
        if instruction.opname == "LOAD_FAST" and instruction.argval in state
    }


def _after(instruction: Instruction, state: frozenset[str]) -> frozenset[str]:
    if instruction.opname in _BINDS:
        return state - {str(instruction.argval)}
    if instruction.opname in _UNBINDS:
        return state | {str(instruction.argval)}
    return state
