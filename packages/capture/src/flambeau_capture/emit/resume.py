"""Resume functions: the rest of a frame, or of a generator, after a graph break.

In: a code object, the instruction to go on at, what each place of the stack holds there, the live
variables. Out: `Resumption`: the code of `__resume_at_<offset>_<n>`, its arguments in order; a
generator function that waits at the same `yield`. Invariant: at that instruction the function's
frame is what the original one would be; a place of the stack that saves the state of exception
handling is made by raising the exception again and entering its handler.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import CodeType
from typing import TYPE_CHECKING, Any

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import CodeBody, Region, decode
from flambeau_capture.bytecode.flow import (
    TELLING,
    bound_before,
    covering,
    remove_dead_code,
    unbound_by_others,
)
from flambeau_capture.bytecode.instruction import Instruction, placed
from flambeau_capture.bytecode.stack import GENERATOR_LIKE
from flambeau_capture.resume_runtime import CALLEE, drive, is_empty

if TYPE_CHECKING:
    from flambeau_capture.emit.level import Level


class StackSlot(Enum):
    """What a place of the stack holds."""

    VALUE = "a value"
    NULL = "the NULL beside a callable"
    ERROR = "the exception that was handled before the present handler"


Slots = tuple[StackSlot, ...]


def push_stack(slots: Iterable[StackSlot]) -> tuple[list[Instruction], list[Region]]:
    """Make the stack of variables, by `stack_names`; of ERROR it is the exception to be handled."""
    made: list[Instruction] = []
    regions: list[Region] = []
    for place, slot in enumerate(slots):
        if slot is StackSlot.NULL:
            made += spelling.push_null()
            continue
        if slot is StackSlot.VALUE:
            made += spelling.take_fast(f"___stack_{place}")
            continue
        made += spelling.load_fast_bound(f"___stack_{place}")
        instructions, region = enter_handler(place)
        made += instructions
        regions.append(region)
    return made, regions


def enter_handler(depth: int) -> tuple[list[Instruction], Region]:
    """exception -> the state before it; from then on the exception is being handled."""
    raised = spelling.raise_varargs(1)
    landing = [Instruction("PUSH_EXC_INFO"), *spelling.pop_top()]
    return [*raised, *landing], Region(raised[0], raised[-1], landing[0], depth, False)


def leave_stack(slots: Sequence[StackSlot]) -> list[Instruction]:
    """Empty the stack into variables (see `left`); handlers are left on the way."""
    made: list[Instruction] = []
    for place in range(len(slots) - 1, -1, -1):
        if slots[place] is StackSlot.ERROR:
            made += [Instruction("POP_EXCEPT")]
        else:
            made += spelling.store_fast(f"___left_{place}")
    return made


def left(slots: Sequence[StackSlot]) -> list[str]:
    """After `leave_stack`: the variables that hold what was on the stack, bottom first."""
    return [
        f"___{'stack' if slot is StackSlot.ERROR else 'left'}_{place}"
        for place, slot in enumerate(slots)
        if slot is not StackSlot.NULL
    ]


def after(slots: Slots, net: int) -> Slots:
    """The stack once an instruction of this effect has run, its pushes being values."""
    return (*slots, *[StackSlot.VALUE] * net) if net >= 0 else slots[:net]


VARIADIC = 0x04 | 0x08
_NESTED = 0x10
INSTEAD = "___instead"


def check_cell(instruction: Instruction) -> list[Instruction]:
    """What stands before an instruction that raises where a cell is empty. Generated code has the
    cells of the function that it goes on in as free variables, of which CPython says other words.
    """
    name = str(instruction.argval)
    words = f"cannot access local variable '{name}' where it is not associated with a value"
    made = [
        *spelling.callable_from(spelling.load_const(is_empty)),
        *spelling.load_closure(name),
        *spelling.call(1),
        *spelling.jump_if("false", instruction),
        *spelling.callable_from(spelling.load_const(UnboundLocalError)),
        *spelling.load_const(words),
        *spelling.call(1),
        *spelling.raise_varargs(1),
    ]
    return [*placed(made, instruction.positions)]


NEEDS_CONTENT = ("LOAD_DEREF", "DELETE_DEREF")


def with_checks(
    body: CodeBody,
) -> tuple[CodeBody, dict[Instruction, Instruction], dict[Instruction, Instruction]]:
    """A copy in which no cell is read that may be empty, where each instruction of the body begins
    in it, and of what each of its own is the copy."""
    copy, twin = body.copy()
    originals = {made: original for original, made in twin.items()}
    own = body.code.co_cellvars
    if not own:
        return copy, twin, originals
    bound, others = bound_before(body), unbound_by_others(body.code)
    begins: dict[Instruction, Instruction] = {}
    instructions: list[Instruction] = []
    for original in body.instructions:
        made, name = twin[original], str(original.argval)
        known = name in bound.get(original, own) and name not in others
        if original.opname in NEEDS_CONTENT and name in own and not known:
            checks = check_cell(made)
            begins[made], originals[checks[0]] = checks[0], original
            instructions += checks
        instructions.append(made)
    checking = {made for made in instructions if made not in originals}
    for made in instructions:
        if made.target is not None and made not in checking:
            made.target = begins.get(made.target, made.target)
    regions = [replace(one, start=begins.get(one.start, one.start)) for one in copy.regions]
    started = {original: begins.get(made, made) for original, made in twin.items()}
    return CodeBody(instructions, body.code, regions), started, originals


class Callee(Enum):
    """What a resume function does before it goes on: the rest of the frame that its own called."""

    NONE = "nothing"
    PUSH = "calls ___callee; its result is the instruction's"
    DROP = "calls ___callee; the instruction's result is ___instead"


Places = tuple[tuple[int, int], ...]
"""Where frames wait or stop, each once, by their code and the instruction's index in it."""


@dataclass(frozen=True)
class Goal:
    """Where a resume function goes on, and with what on the stack.

    waiting: with a callee, the instruction that has called it, whose handlers cover the call.
    inside: where the frames are that it goes on in first. Each such place has a function of its
        own: what is captured of one is no recompilation of another, and uses up nobody's limit.
    """

    body: CodeBody
    instruction: Instruction
    slots: Slots = ()
    callee: Callee = Callee.NONE
    waiting: Instruction | None = None
    inside: Places = ()

    def taken(self) -> tuple[str, ...]:
        """Variables that the function takes besides those of the frame it continues."""
        instead = (INSTEAD,) if self.callee is Callee.DROP else ()
        return instead if self.callee is Callee.NONE else (*instead, CALLEE)


@dataclass(frozen=True)
class Resumption:
    """A resume function's code. `arguments` are variables; then come the values on the stack.

    name: what it is called where generated code finds it; to the program, in tracebacks and frames,
    its code has the name of the function that it continues. origin, sources: the body it was made
    from, and for each of its own instructions the one there.
    """

    name: str
    code: CodeType
    arguments: tuple[str, ...]
    stack: Slots
    origin: CodeBody
    sources: tuple[Instruction | None, ...]


class CannotResume(Exception):
    """The rest of the function cannot stand alone; the text says why."""


def stack_names(stack: Slots) -> list[str]:
    """The parameters that carry the values of the stack."""
    return [f"___stack_{place}" for place, slot in enumerate(stack) if slot is not StackSlot.NULL]


def make_resumption(goal: Goal, arguments: tuple[str, ...], name: str) -> Resumption:
    """The function that goes on there."""
    body, waiting, code = goal.body, goal.waiting, goal.body.code
    if code.co_flags & GENERATOR_LIKE:
        raise CannotResume("a generator or coroutine")
    copy, twin, originals = with_checks(body)
    target = twin[goal.instruction]
    pushed, regions = push_stack(goal.slots)
    # an exception that is a variable would hold itself
    errors = [place for place, slot in enumerate(goal.slots) if slot is StackSlot.ERROR]
    ended = [one for place in errors for one in spelling.delete_fast(f"___stack_{place}")]
    free = (*code.co_freevars, *code.co_cellvars)
    start = [*placed([*spelling.prefix((), free), *pushed, *ended], target.positions)]
    if waiting is not None:
        call = placed(
            [
                *spelling.callable_from(spelling.load_const(drive)),
                *spelling.take_fast(CALLEE),
                *spelling.call(1),
            ],
            waiting.positions,
        )
        region = covering(body).get(waiting)
        if region is not None:
            regions.append(
                replace(region, start=call[0], end=call[-1], handler=twin[region.handler])
            )
        originals[call[-1]] = waiting
        start += call
        if goal.callee is Callee.DROP:
            start += [*spelling.pop_top(), *spelling.take_fast(INSTEAD)]
    start += spelling.jump(target)
    parameters = (*arguments, *stack_names(goal.slots), *goal.taken())
    whole = CodeBody([*start, *copy.instructions], code, [*copy.regions, *regions])
    whole = remove_dead_code(whole)
    resumed = as_function(whole, parameters, code.co_name, code.co_qualname)
    sources: tuple[Instruction | None, ...] = ()
    if len(decode(resumed).instructions) == len(whole.instructions):
        sources = tuple(originals.get(made) for made in whole.instructions)
    return Resumption(name, resumed, arguments, goal.slots, body, sources)


def as_function(
    whole: CodeBody,
    parameters: tuple[str, ...],
    name: str,
    qualname: str | None = None,
    dropped: int = VARIADIC,
) -> CodeType:
    """Code of a function of these parameters, to which all cells of the original are free. dropped:
    flags of the original that it lacks."""
    code = whole.code
    free = (*code.co_freevars, *code.co_cellvars)
    if any(i.opname == "MAKE_CELL" for i in whole.instructions):
        raise CannotResume("a comprehension's own cells are made after the break")
    made = assemble(
        whole,
        name=name,
        qualname=qualname or name,
        flags=(code.co_flags & ~dropped) | (_NESTED if free else 0),
        argcount=len(parameters),
        posonlyargcount=0,
        kwonlyargcount=0,
        varnames=parameters,
        cellvars=(),
        freevars=free,
    )
    told = TELLING.intersection(code.co_names).difference(made.co_names)
    return made.replace(co_names=(*made.co_names, *sorted(told))) if told else made


_AFTER_START = 3  # RETURN_GENERATOR, POP_TOP, RESUME


def goes_on_at(body: CodeBody, position: int, started: bool) -> Instruction:
    """The `yield` that a generator waits in, or its first instruction."""
    instructions = body.instructions
    if started:
        return instructions[position - 1]
    names = [instruction.opname for instruction in instructions]
    return instructions[names.index("RETURN_GENERATOR") + _AFTER_START]


def generator_code(level: Level, started: bool) -> types.CodeType:
    """A generator function of `level.live()` and the values of the stack.

    If the generator has started, the new one has to be advanced once, to the `yield` it waits in.
    """
    code = level.body.code
    copy, twin, _ = with_checks(level.body)
    free = (*code.co_freevars, *code.co_cellvars)
    start = [Instruction("COPY_FREE_VARS", len(free))] if free else []
    start += [Instruction("RETURN_GENERATOR"), *spelling.pop_top(), *spelling.resume()]
    pushed, regions = push_stack(level.slots)
    start += pushed
    if started:
        start += spelling.load_const(None)
    start += spelling.jump(twin[level.instruction])
    placed(start, level.instruction.positions)
    whole = CodeBody([*start, *copy.instructions], code, [*copy.regions, *regions])
    parameters = (*level.live(), *stack_names(level.slots))
    return as_function(remove_dead_code(whole), parameters, code.co_name, code.co_qualname)


def make_generator(
    code: types.CodeType,
    namespace: dict[str, Any],
    started: bool,
    cells: tuple[Any, ...],
    arguments: tuple[Any, ...],
) -> Any:
    """Called by generated code."""
    function = types.FunctionType(code, namespace, code.co_name, None, cells or None)
    made = function(*arguments)
    if started:
        made.send(None)
    return made
