"""If-conversion: a branch by open integers whose arms only compute numbers, as arithmetic.

In: a jump by a comparison that is left open. Out: the frame where both ways meet again, with
numbers chosen by the comparison. Invariant: neither arm has an effect: each is a few instructions
that load, compute and store variables, and leaves the heap and the graph as they were; one that
reads a property which does not is captured again, with every branch decided. Any other branch is
decided, as the frame was before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau_capture.breaks import Break, CaptureAgain
from flambeau_capture.bytecode.flow import live_locals
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.undecided_branches import (
    Arms,
    is_straight,
    leave_undecided,
    set_variables,
)
from flambeau_capture.values.base import Tracer, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.tensors.numbers.open_choices import OpenTruth, integer
from flambeau_capture.values.tensors.symbolic_numbers import symbol_value

#: instructions of an arm: what a load of an attribute runs is looked at afterwards
_COMPUTES = {
    "NOP", "CACHE", "RESUME", "LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST", "LOAD_CONST",
    "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_DEREF", "STORE_FAST", "STORE_FAST_STORE_FAST",
    "STORE_FAST_LOAD_FAST", "BINARY_OP", "UNARY_NEGATIVE", "UNARY_POSITIVE", "BUILD_TUPLE", "COPY",
    "SWAP",
}  # fmt: skip
_RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
_LONGEST = 24


@dataclass
class _Arm:
    """A frame at the end of one: the variables that are read later, the stack, what is returned."""

    variables: dict[str, Value | None]
    stack: list[Value]
    returned: Value | None


class _Decide(Exception):
    """The branch is of another kind."""


def convert(frame: Frame, condition: Value, holds: bool) -> bool:
    """Go to where the two ways of a jump meet; whether it is such a branch. The condition has been
    popped; the jump is taken where it is not `holds`."""
    tx = frame.tx
    if not isinstance(condition, OpenTruth) or condition.is_committed or not tx.joins_branches():
        return False
    ends = _ends(frame)
    return ends is not None and (
        (_is_plain(frame, ends) and _joined(frame, condition, holds, ends))
        or (
            is_straight(frame, ends)
            and leave_undecided(
                frame, condition, ends, condition.now != holds, _stored(frame, *ends)
            )
        )
    )


def _joined(frame: Frame, condition: OpenTruth, holds: bool, ends: Arms) -> bool:
    """Choose numbers by the condition where both arms compute them; whether they do."""
    tx = frame.tx
    instruction, start, stack = frame.current, frame.position, list(frame.stack)
    before = {name: frame.variables.get(name) for name in _stored(frame, *ends)}
    untouched = _state(tx)
    found = None
    try:
        arms = [_run(frame, begin, end, ends[1][1], list(stack), before) for begin, end in ends]
        found = _merged(tx, condition, *(arms if holds else reversed(arms)))
    except (_Decide, Break, UserError):
        pass
    if _state(tx) != untouched:
        raise CaptureAgain(tx.decide_branches)
    frame.current, frame.position, frame.finished, frame.stack = instruction, start, False, stack
    set_variables(frame, before)
    if found is None:
        return False
    set_variables(frame, found.variables)
    frame.position, frame.stack = ends[1][1], found.stack
    if found.returned is not None:
        frame.returned, frame.finished = found.returned, True
    return True


def _state(tx: Tracer) -> tuple[int, ...]:
    """What an effect changes."""
    return tx.heap.writes(), len(tx.heap.touched), len(tx.graph.graph.nodes)


def _ends(frame: Frame) -> Arms | None:
    """Where the two arms begin and end: the second where they meet, or past it where they
    return."""
    instructions, index = frame.prepared.body.instructions, frame.prepared.index
    start, target = frame.position, frame.current.target
    if target is None or index[target] < start:
        return None
    other = index[target]
    last = instructions[other - 1]
    if last.opname == "JUMP" and last.target is not None and index[last.target] >= other:
        first, end = other - 1, index[last.target]
    elif last.opname in _RETURNS:
        first = other
        returns = (p for p in range(other, len(instructions)) if _returns(instructions[p]))
        end = next(returns, len(instructions) - 1) + 1
    else:
        first = end = other
    return (start, first), (other, end)


def _is_plain(frame: Frame, ends: Arms) -> bool:
    """Whether arms only compute and return."""
    instructions = frame.prepared.body.instructions
    arms = [one for begin, end in ends for one in instructions[begin:end]]
    plain = all(each.opname in _COMPUTES or _returns(each) for each in arms)
    return plain and len(arms) <= _LONGEST


def _returns(instruction: Instruction) -> bool:
    return instruction.opname in _RETURNS


def _stored(frame: Frame, *ends: tuple[int, int]) -> set[str]:
    """The variables that are stored in arms."""
    found: set[str] = set()
    for begin, end in ends:
        for each in frame.prepared.body.instructions[begin:end]:
            if "STORE" in each.opname:
                names: Any = each.argval  # a name, or several
                found |= {names} if isinstance(names, str) else {*names}
    return found


def _run(
    frame: Frame,
    begin: int,
    end: int,
    meet: int,
    stack: list[Value],
    variables: dict[str, Value | None],
) -> _Arm:
    body = frame.prepared.body
    frame.position, frame.stack = begin, stack
    set_variables(frame, variables)
    while frame.position < end and not frame.finished:
        name = body.instructions[frame.position].opname
        operands = stack[-2:] if name == "BINARY_OP" else stack[-1:] if "UNARY" in name else []
        if not all(isinstance(each, Constant) and each.cls in (int, bool) for each in operands):
            raise _Decide
        frame.step()
    if frame.finished:
        frame.finished = False
        return _Arm({}, [], frame.returned)
    live = live_locals(body, body.instructions[meet]) & variables.keys()
    return _Arm({name: frame.variables.get(name) for name in live}, stack, None)


def _merged(tx: Tracer, condition: OpenTruth, one: _Arm, other: _Arm) -> _Arm:
    """What both arms leave, by what the condition comes out as."""
    if one.returned is not None and other.returned is not None:
        return _Arm({}, [], _chosen(tx, condition, one.returned, other.returned))
    if one.returned is not None or other.returned is not None:
        raise _Decide
    if len(one.stack) != len(other.stack):
        raise _Decide
    variables: dict[str, Value | None] = {
        name: _chosen(tx, condition, value, other.variables[name])
        for name, value in one.variables.items()
    }
    stack = [_chosen(tx, condition, *each) for each in zip(one.stack, other.stack)]
    return _Arm(variables, stack, None)


def _chosen(tx: Tracer, condition: OpenTruth, one: Value | None, other: Value | None) -> Value:
    if one is None or other is None:
        raise _Decide
    if one is other:
        return one
    if isinstance(one, TupleValue) and isinstance(other, TupleValue):
        pairs = list(zip(one.parts(), other.parts()))
        if type(one) is type(other) is TupleValue and len(one.parts()) == len(other.parts()):
            return TupleValue([_chosen(tx, condition, *each) for each in pairs])
    left, right = integer(one), integer(other)
    if left is None or right is None:
        raise _Decide
    if isinstance(left, int) and isinstance(right, int) and left == right:
        return Constant(left)
    return symbol_value(tx, right + (left - right) * condition.indicator())
