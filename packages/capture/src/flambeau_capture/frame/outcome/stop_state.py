"""State of interpreted frames at a graph break, as input of code generation.

In: the chain of frames that interpretation stopped in. Out: `Level`s. Invariant: every place of a
stack is a value, a NULL, or the state of a handler whose exception is known. A variable that
nothing reads any more keeps its object alive, as a frame does, where its end may be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from types import GeneratorType
from typing import Any

from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.flow import sometimes_bound
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import PREPARES_CALL
from flambeau_capture.bytecode.spelling import NULL_ABOVE
from flambeau_capture.emit.level import Level
from flambeau_capture.emit.resume import INSTEAD, CannotResume, StackSlot, goes_on_at
from flambeau_capture.interp.frame import NULL, ErrorState, Frame, Suspended
from flambeau_capture.interp.top_frame import Variables
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import IteratorValue, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.references import NewReference

Home = Callable[[CodeBody, Instruction], tuple[CodeBody, Instruction] | None]
"""Where an instruction of a resume function comes from; None where it stands only there."""


def levels_of(
    chain: Sequence[Suspended],
    effects: Sequence[Any] = (),
    resumed: bool = False,
    home: Home = lambda body, instruction: None,
) -> list[Level]:
    """The frames, outermost first. `resumed`: the outermost is a resume function's.

    Raises CannotResume where a resume function would go on in itself, nothing having been done.
    """
    outer = chain[0]
    if resumed and outer is chain[-1] and outer.instruction.opname != "CALL":
        if outer.frame.prepared.index[outer.instruction] <= _last_of_start(outer.frame):
            raise CannotResume("an argument of a resume function cannot be taken")
    levels = [_level(waiting, waiting is not chain[-1]) for waiting in chain]
    levels = [replace(one, order=_order(home(one.body, one.instruction))) for one in levels]
    known = _built(levels, effects)
    last = [_lasting(level, one.frame, known, resumed, home) for level, one in zip(levels, chain)]
    return [replace(level, lasting=names) for level, names in zip(levels, last)]


def _order(first: tuple[CodeBody, Instruction] | None) -> tuple[str, ...]:
    """The variables of the code that an instruction was first written in."""
    return () if first is None else first[0].code.co_varnames


def _level(waiting: Suspended, has_called: bool) -> Level:
    frame, instruction = waiting.frame, waiting.instruction
    slots = _slots(waiting.stack, waiting.errors)
    instead = _instead(waiting) if has_called else None
    return Level(*_parts(frame), instruction, *slots, _preparation(frame, instruction), instead)


def _built(levels: Sequence[Level], effects: Sequence[Any]) -> set[int]:
    """The ids of the values that generated code builds or finds in any case."""
    found: set[int] = set()
    pending: list[Value | None] = [one for one in effects if isinstance(one, Value)]
    for level in levels:
        live = (level.variables.get(name) for name in level.live())
        pending += [*level.stack, *live, level.instead]
        pending += [cell.content for cell in level.cells.values()]
    while pending:
        value = pending.pop()
        if value is not None and id(value) not in found:
            found.add(id(value))
            pending += value.holds()
            pending += [value.target] if isinstance(value, NewReference) else []
    return found


def _lasting(
    level: Level, frame: Frame, built: set[int], resumed: bool, home: Home
) -> frozenset[str]:
    """Variables whose object's end the program may see. An argument that nothing has touched stays
    where it is, in the frame that the program has called; `resumed`: that is another frame.

    In a loop, of a variable that has a value in some turns only, what lasts is an object whose end
    runs the program's code: each turn may go on in a resume function of its own.
    """
    own = frame.variables
    untouched = own.untouched_objects() if resumed and isinstance(own, Variables) else {}

    def ends_by_code(name: str) -> bool:
        value = level.variables[name]
        return _holds_code(untouched[name]) if value is None else _ends_by_code(value)

    found = frozenset(
        name
        for name, value in level.variables.items()
        if not name.startswith("___")
        and (
            name in untouched and _is_seen_to_end(type(untouched[name]))
            if value is None
            else _lasts(value, built)
        )
    )
    if not found:
        return found
    body, place = home(level.body, level.instruction) or (level.body, level.instruction)
    sometimes = sometimes_bound(body, place)
    return frozenset(name for name in found if name not in sometimes or ends_by_code(name))


_COLLECTED = 1 << 14  # Py_TPFLAGS_HAVE_GC: it may refer to others


def _is_seen_to_end(kind: type) -> bool:
    """Whether code of the program can notice that an instance ends, or one that it refers to."""
    return bool(kind.__weakrefoffset__ or kind.__flags__ & _COLLECTED)


def _lasts(value: Value, built: set[int], depth: int = 4) -> bool:
    """Whether a value is an object that there is in any case, or a new container of such ones: a
    tensor that only the graph knows is not made for it."""
    if isinstance(value, IteratorValue) and value.cls is GeneratorType:
        return True
    if isinstance(value, Constant) or not _is_seen_to_end(value.cls):
        return False
    if value.source is not None:
        return not isinstance(value.source, ConstantSource)
    if id(value) in built:
        return True
    return depth > 0 and any(_lasts(item, built, depth - 1) for item in value.holds())


def _may_run_code(kind: type) -> bool:
    """Whether code of the program may run where an object ends."""
    return kind is GeneratorType or any("__del__" in vars(each) for each in kind.__mro__)


_HOLDERS = (list, tuple, dict, set, frozenset)
_LOOKED_AT = 64


def _holds_code(real: object, depth: int = 4) -> bool:
    """The same of an object that there is, or of what it holds; a large container may."""
    kind = type(real)
    if not isinstance(real, _HOLDERS):
        return _may_run_code(kind)
    if kind not in _HOLDERS or len(real) > _LOOKED_AT or not depth:
        return True
    items = (*real, *real.values()) if isinstance(real, dict) else real
    return any(_holds_code(item, depth - 1) for item in items)


def _ends_by_code(value: Value, depth: int = 4) -> bool:
    """The same of a value, or of what it holds."""
    if value.source is not None and issubclass(value.cls, _HOLDERS):
        return not hasattr(value, "real") or _holds_code(value.real)
    if _may_run_code(value.cls):
        return True
    new = value.source is None and depth > 0
    return new and any(_ends_by_code(item, depth - 1) for item in value.holds())


def generator_level(frame: Frame, started: bool) -> Level:
    """The frame of a generator, before the `yield` that it waits in or at its start."""
    instruction = goes_on_at(frame.prepared.body, frame.position, started)
    level = Level(*_parts(frame), instruction, *_slots(frame.stack, {}))
    return replace(
        level, lasting=_lasting(level, frame, _built([level], ()), True, lambda *place: None)
    )


def _parts(
    frame: Frame,
) -> tuple[CodeBody, dict[str, Any], dict[str, Value | None], dict[str, Any]]:
    """Its body, globals, bound variables and cells."""
    own = frame.read_variables()
    bound: dict[str, Value | None] = {**own}
    if isinstance(own, Variables):
        bound = own.bound()
    return frame.prepared.body, frame.scope.namespace, bound, dict(frame.cells)


def _slots(
    given: Sequence[Value], errors: dict[int, Value]
) -> tuple[tuple[Value | None, ...], tuple[StackSlot, ...]]:
    found: list[tuple[Value | None, StackSlot]] = []
    for place, value in enumerate(_unbound(given)):
        if value is NULL:
            found.append((None, StackSlot.NULL))
        elif isinstance(value, ErrorState):
            if place not in errors:
                raise CannotResume("a handler whose exception is not known")
            found.append((errors[place], StackSlot.ERROR))
        else:
            found.append((value, StackSlot.VALUE))
    return tuple(value for value, _ in found), tuple(slot for _, slot in found)


def _unbound(given: Sequence[Value]) -> list[Value]:
    """Methods that a call follows, as CPython has them: the descriptor, and the receiver."""
    made = [*given]
    for place, pair in enumerate(pairwise(given)):
        method, beside = pair if NULL_ABOVE else pair[::-1]
        if beside is NULL and isinstance(method, BoundMethod) and method.called_where_found:
            descriptor = method.unbound()
            if descriptor is not None:
                made[place : place + 2] = BuiltinValue(descriptor), method.receiver
    return made


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
    """The instructions that belong to a CALL."""
    if instruction.opname != "CALL":
        return ()
    before = frame.prepared.body.instructions[: frame.prepared.index[instruction]]
    found = takewhile(lambda one: one.opname in PREPARES_CALL, reversed(before))
    return tuple(found)[::-1]
