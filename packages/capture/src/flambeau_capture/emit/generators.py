"""Generators that outlive a graph break.

In: the interpreted frame of a generator, where it waits. Out: the code of a generator function that
takes its variables and stack and waits at the same `yield`. Invariant: whoever advances, sends to,
throws into or closes the new generator meets the original instructions and handlers.
"""

from __future__ import annotations

import types
from typing import Any

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.decode import CodeBody
from flambeau_capture.bytecode.flow import remove_dead_code
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.emit.level import Level
from flambeau_capture.emit.resume import as_function, stack_names
from flambeau_capture.emit.stack import push_stack

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
    copy, twin = level.body.copy()
    free = (*code.co_freevars, *code.co_cellvars)
    start = [Instruction("COPY_FREE_VARS", len(free))] if free else []
    start += [Instruction("RETURN_GENERATOR"), *spelling.pop_top(), *spelling.resume()]
    pushed, regions = push_stack(
        level.slots, lambda place: spelling.load_fast_bound(f"___stack_{place}")
    )
    start += pushed
    if started:
        start += spelling.load_const(None)
    start += spelling.jump(twin[level.instruction])
    for made in start:
        made.positions = level.instruction.positions
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
        next(made)
    return made
