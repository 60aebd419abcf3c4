"""Resume functions: the rest of a function after a graph break, as a function of its own.

In: a code object, the instruction to go on at, the shape of the stack there, and the variables that
are alive. Out: `Resumption`: the code of `__resume_at_<offset>_<n>` and the order of its arguments.
Invariant: the function's frame is, at that instruction, what the original frame would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import CodeType

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import Body
from flambeau_capture.bytecode.flow import remove_dead_code
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.liveness import live_locals

_VARIADIC = 0x04 | 0x08
_GENERATOR_LIKE = 0x20 | 0x80 | 0x200
_NESTED = 0x10


@dataclass(frozen=True)
class Resumption:
    """A resume function's code. `arguments` are variables; then come the values on the stack.

    stack: for each place of the stack, bottom first, whether a value is passed for it (False: it
        holds the NULL of a call in preparation).
    """

    code: CodeType
    arguments: tuple[str, ...]
    stack: tuple[bool, ...]
    offset: int

    @property
    def name(self) -> str:
        return self.code.co_name


class CannotResume(Exception):
    """The rest of the function cannot stand alone; the text says why."""


def live_at(body: Body, instruction: Instruction, bound: Sequence[str]) -> tuple[str, ...]:
    """Variables (cells excluded) that are bound and may be read from an instruction on."""
    code = body.code
    cells = {*code.co_cellvars, *code.co_freevars}
    live = set(live_locals(body, instruction))
    needs_self = code.co_argcount > 0 and (
        "super" in code.co_names or "__class__" in code.co_freevars
    )
    first = code.co_varnames[0] if needs_self else None
    names = sorted(name for name in bound if name in live and name not in cells and name != first)
    if first is not None and first not in cells and first in bound:
        names.insert(0, first)
    return tuple(names)


def make_resumption(
    body: Body,
    instruction: Instruction,
    stack: Sequence[bool],
    arguments: tuple[str, ...],
    name: str,
) -> Resumption:
    """The function that goes on at `instruction`."""
    code = body.code
    if code.co_flags & _GENERATOR_LIKE:
        raise CannotResume("a generator or coroutine")
    copy, twin = body.copy()
    target = twin[instruction]
    stack_names = [f"___stack_{place}" for place, passed in enumerate(stack) if passed]
    free = (*code.co_freevars, *code.co_cellvars)
    start: list[Instruction] = list(spelling.prefix((), free))
    waiting = iter(stack_names)
    for passed in stack:
        start += spelling.load_fast_bound(next(waiting)) if passed else spelling.push_null()
    start += spelling.jump(target)
    for made in start:
        made.positions = target.positions
    whole = remove_dead_code(Body([*start, *copy.instructions], code, copy.regions))
    if any(i.opname == "MAKE_CELL" for i in whole.instructions):
        raise CannotResume("a comprehension's own cells are made after the break")
    count = len(arguments) + len(stack_names)
    resumed = assemble(
        whole,
        name=name,
        qualname=name,
        flags=(code.co_flags & ~_VARIADIC) | (_NESTED if free else 0),
        argcount=count,
        posonlyargcount=0,
        kwonlyargcount=0,
        varnames=(*arguments, *stack_names),
        cellvars=(),
        freevars=free,
    )
    offset = instruction.offset if instruction.offset is not None else 0
    return Resumption(resumed, arguments, tuple(stack), offset)
