"""Frame levels at a graph break, and the breaking instruction as it runs in each.

In: interpreted frames as they are at the instruction. Out: `Level`, one frame; `Host`, the
generated code that a frame goes on from; `native`: instructions that do what the breaking one does,
and where each leads; code that runs a frame's original with the frame hook off. Invariant: what a
host calls last is a resume function, whose result it returns; an instruction whose effect on the
stack is not known beforehand is spelt in a way whose effect is.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import CodeBody, Region, argument_count, decode
from flambeau_capture.bytecode.flow import covering, live_at
from flambeau_capture.bytecode.instruction import Instruction, at_line, placed
from flambeau_capture.bytecode.opcodes import RUNNING, TERMINATORS
from flambeau_capture.bytecode.stack import stack_effect
from flambeau_capture.emit.names import EntryNames
from flambeau_capture.emit.resume import (
    NEEDS_CONTENT,
    VARIADIC,
    Callee,
    Goal,
    Places,
    Resumption,
    Slots,
    StackSlot,
    after,
    check_cell,
    leave_stack,
    left,
    make_resumption,
    with_checks,
)
from flambeau_capture.resume_runtime import Continue, drive, special_method
from flambeau_capture.values.base import Value


@dataclass(frozen=True)
class Level:
    """A frame that stopped at (or waits in) an instruction.

    variables: None for an argument that is as it was. stack: None for a NULL; for the state of an
    exception handler the exception handled. preparation: what belongs in front of the instruction.
    instead: what the instruction pushes in place of the result of the frame that it has called.
    lasting: variables that hold what the program may see the end of. order: of the variables, in
    the code that was written first.
    """

    body: CodeBody
    namespace: dict[str, Any]
    variables: dict[str, Value | None]
    cells: dict[str, Any]
    instruction: Instruction
    stack: tuple[Value | None, ...]
    slots: Slots
    preparation: tuple[Instruction, ...] = ()
    instead: Value | None = None
    lasting: frozenset[str] = frozenset()
    order: tuple[str, ...] = ()

    def bound(self) -> tuple[str, ...]:
        """Variables that have a value once the instruction has run."""
        found = dict.fromkeys(self.variables)
        if self.instruction.opname == "DELETE_FAST":
            found.pop(str(self.instruction.argval), None)
        if self.instruction.opname == "STORE_FAST":
            found[str(self.instruction.argval)] = None
        return tuple(found)

    def live(self) -> tuple[str, ...]:
        """Variables that the frame may still read, the instruction included."""
        return self.kept(self._read_from_here)

    @functools.cached_property
    def _read_from_here(self) -> tuple[str, ...]:
        return live_at(self.body, self.instruction, self.bound())

    def kept(self, live: tuple[str, ...]) -> tuple[str, ...]:
        """These variables, and those that nothing reads and that keep an object alive, in the order
        that the program's code has them in, in which a frame lets go of them."""
        order = self.order or self.body.code.co_varnames
        places = {name: place for place, name in enumerate(order)}
        found = (*live, *self.lasting.difference(live))
        return tuple(sorted(found, key=lambda name: (places.get(name, len(places)), name)))

    def passed(self) -> list[Value]:
        """The values of the stack, as resume functions take them."""
        return [value for value in self.stack if value is not None]

    def region(self) -> Region | None:
        """What catches the instruction's exceptions."""
        return covering(self.body).get(self.instruction)


def waits(level: Level, names: EntryNames) -> tuple[CodeBody, Instruction]:
    """The call that a frame waits in, in the body it was first written in."""
    return names.home(level.body, level.instruction) or (level.body, level.instruction)


def places(levels: Sequence[Level], names: EntryNames) -> Places:
    """Where these frames are. Each is counted once: recursion adds no more."""
    found = []
    for level in levels:
        body, instruction = waits(level, names)
        found.append((id(body.code), body.instructions.index(instruction)))
    return tuple(dict.fromkeys(found))


def following(body: CodeBody, instruction: Instruction) -> Instruction:
    return body.instructions[body.instructions.index(instruction) + 1]


def after_call(level: Level, names: EntryNames, inside: Places) -> Goal:
    """Where a frame goes on once the frame that its call has entered has, which is `inside`."""
    body, call = waits(level, names)
    callee = Callee.PUSH if level.instead is None else Callee.DROP
    return Goal(body, following(body, call), level.slots, callee, call, inside)


def resumption(
    level: Level, names: EntryNames, goal: Goal, arguments: tuple[str, ...] | None = None
) -> Resumption:
    """The resume function of a place, made once for all that go on there in the same way."""
    body, target = names.home(goal.body, goal.instruction) or (goal.body, goal.instruction)
    if arguments is None:
        arguments = live_at(body, goal.waiting or target, level.bound())
        arguments = level.kept(arguments)
    made = names.made_from(body.code)
    index = body.instructions.index(target)
    key = (index, goal.slots, arguments, goal.callee, goal.inside)
    known = made.get(key)
    if known is None:
        name = f"__resume_at_{target.offset or 0}_{names.reserve()}"
        there = replace(goal, body=body, instruction=target)
        known = made[key] = make_resumption(there, arguments, name)
        names.adopt(known)
    return known


@dataclass
class Host:
    """Generated code that runs natively in place of a frame, or for one. `again`: it is itself a
    resume function, so that it says where to go on instead of calling."""

    level: Level
    names: EntryNames
    again: bool = False
    instructions: list[Instruction] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)

    def go_on(self, goal: Goal) -> None:
        """Call the function that goes on there and return what it returns."""
        self.going(goal, None if self.again else drive)
        self.instructions += spelling.return_value()

    def going(
        self, goal: Goal, taker: Any = None, arguments: tuple[str, ...] | None = None
    ) -> None:
        """Push a `Continue` of the function that goes on there, or what `taker` makes of it."""
        known = resumption(self.level, self.names, goal, arguments)
        given = [*known.arguments, *left(goal.slots), *goal.taken()]
        self.instructions += leave_stack(goal.slots)
        if taker is not None:
            self.instructions += spelling.callable_from(spelling.load_const(taker))
        self.instructions += spelling.callable_from(spelling.load_const(Continue))
        self.instructions += self._function(known)
        self.instructions += [one for name in given for one in spelling.take_fast(name)]
        self.instructions += spelling.call(1 + len(given))
        if taker is not None:
            self.instructions += spelling.call(1)

    def _function(self, known: Resumption) -> list[Instruction]:
        free = known.code.co_freevars
        if not free:
            return spelling.load_global(self._global(known))
        closure = [one for name in free for one in spelling.load_closure(name)]
        return [
            *closure,
            *spelling.build_tuple(len(free)),
            *spelling.make_function(known.code, spelling.CLOSURE),
        ]

    def _global(self, known: Resumption) -> str:
        namespace = self.level.namespace
        found = namespace.get(known.name)
        if isinstance(found, types.FunctionType) and found.__code__ is known.code:
            return known.name
        made = types.FunctionType(known.code, namespace, known.name)
        return self.names.install(namespace, known.name, made)

    def cover(self, native: Sequence[Instruction]) -> None:
        """Let the original handlers catch what these instructions raise."""
        region = self.level.region()
        if region is None:
            return
        copy, twin, _ = with_checks(self.level.body)
        self.instructions += copy.instructions
        self.regions += copy.regions
        covered = replace(region, start=native[0], end=native[-1], handler=twin[region.handler])
        self.regions.append(covered)


def emit_original(code: CodeType, disabled: Any) -> CodeType:
    """`disabled` wraps a function so that it runs with the hook off."""
    made = [*spelling.prefix((), code.co_freevars), *run_original(code, disabled)]
    at_line(made, code.co_firstlineno)
    return assemble(CodeBody(made, decode(code).code), cellvars=())


def run_original(
    code: CodeType, wrap: Any, *given: list[Instruction], cells: tuple[str, ...] = ()
) -> list[Instruction]:
    """Call the original code with this frame's arguments, as they are bound, and return.

    wrap: is given the function, and what `given` loads. cells: of the arguments, those in cells."""
    count = argument_count(code)
    plain = code.replace(
        co_argcount=count,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~VARIADIC,
    )
    made: list[Instruction] = [*spelling.callable_from(spelling.load_const(wrap))]
    for name in code.co_freevars:
        made += spelling.load_closure(name)
    if code.co_freevars:
        made += spelling.build_tuple(len(code.co_freevars))
    made += spelling.make_function(plain, spelling.CLOSURE if code.co_freevars else 0)
    for load in given:
        made += load
    made += spelling.call(1 + len(given))
    made += spelling.callable_on_top()
    for name in code.co_varnames[:count]:
        made += spelling.load_deref(name) if name in cells else spelling.load_fast_bound(name)
    return [*made, *spelling.call(count), *spelling.return_value()]


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
    placed(made, instruction.positions)
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
    if flags.method or flags.push_null:
        plain = replace(instruction, flags=replace(flags, method=False, push_null=False))
        below = slots[:-3] if opname == "LOAD_SUPER_ATTR" else slots
        return [plain, *spelling.callable_on_top()], (*below, *_METHOD)
    made = [replace(one) for one in (*level.preparation, instruction)]
    if opname in NEEDS_CONTENT and instruction.argval in level.body.code.co_cellvars:
        made = [*check_cell(made[-1]), *made]
    if opname in CALLS and instruction.arg is not None:
        return made, (*slots[: -(CALLS[opname] + instruction.arg)], StackSlot.VALUE)
    if opname == "CALL_FUNCTION_EX":
        return made, (*slots[: stack_effect(instruction, jump=False) - 1], StackSlot.VALUE)
    if opname == "LOAD_SPECIAL":
        name = spelling.load_const(instruction.argval)
        look_up = [*spelling.load_const(special_method), *spelling.swap(2), *spelling.push_null()]
        called = [*look_up, *spelling.swap(2), *name, *spelling.call(2)]
        return [*called, *spelling.callable_on_top()], (*slots[:-1], *_METHOD)
    return made, after(slots, stack_effect(instruction, jump=False))


def _loop(level: Level, loop: Instruction) -> tuple[Road, ...]:
    body, instruction = level.body, level.instruction
    end = spelling.end_for()
    loop.target = end[0]
    assert instruction.target is not None
    skipped = len(RUNNING.loop_end)
    exhausted = body.instructions[body.instructions.index(instruction.target) + skipped]
    return (
        Road((), following(body, instruction), (*level.slots, StackSlot.VALUE)),
        Road(tuple(end), exhausted, level.slots[:-1]),
    )
