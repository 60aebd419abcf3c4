"""Resume functions: the rest of a frame after a graph break.

In: a code object, the instruction to go on at, the shape of the stack there, and the variables that
are alive. Out: `Resumption`: the code of `__resume_at_<offset>_<n>` and the order of its arguments.
Invariant: the function's frame is, at that instruction, what the original frame would be: no
variable is left of what it was given besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from types import CodeType

from flambeau_capture.bytecode import spelling
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import CodeBody, Region, decode
from flambeau_capture.bytecode.flow import covering, remove_dead_code
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.liveness import live_locals
from flambeau_capture.emit.stack import Slots, StackSlot, push_stack
from flambeau_capture.resuming import CALLEE, drive

_VARIADIC = 0x04 | 0x08
_GENERATOR_LIKE = 0x20 | 0x80 | 0x200
_NESTED = 0x10
_LOOKS_AT_LOCALS = frozenset({"locals", "vars", "eval", "exec", "dir"})
#: names that say which variables `live_at` keeps; they hold for each part of a function that has
#: them, so that what a frame keeps is the same by its own code and by that which goes on elsewhere
_TELLING = _LOOKS_AT_LOCALS | {"super"}

INSTEAD = "___instead"


class Callee(Enum):
    """What a resume function does before it goes on: the rest of the frame that its own called."""

    NONE = "nothing"
    PUSH = "calls ___callee; its result is the instruction's"
    DROP = "calls ___callee; the instruction's result is ___instead"


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


def live_at(body: CodeBody, instruction: Instruction, bound: Sequence[str]) -> tuple[str, ...]:
    """Variables (cells excluded) that are bound and may be read from an instruction on."""
    code = body.code
    cells = {*code.co_cellvars, *code.co_freevars}
    live = set(live_locals(body, instruction))
    if not _LOOKS_AT_LOCALS.isdisjoint(code.co_names):
        live.update(name for name in bound if not name.startswith("___"))
    needs_self = code.co_argcount > 0 and (
        "super" in code.co_names or "__class__" in code.co_freevars
    )
    first = code.co_varnames[0] if needs_self else None
    names = sorted(name for name in bound if name in live and name not in cells and name != first)
    if first is not None and first not in cells and first in bound:
        names.insert(0, first)
    return tuple(names)


def stack_names(stack: Slots) -> list[str]:
    """The parameters that carry the values of the stack."""
    return [f"___stack_{place}" for place, slot in enumerate(stack) if slot is not StackSlot.NULL]


def make_resumption(
    body: CodeBody,
    instruction: Instruction,
    stack: Slots,
    arguments: tuple[str, ...],
    name: str,
    callee: Callee = Callee.NONE,
    waiting: Instruction | None = None,
) -> Resumption:
    """The function that goes on at `instruction`.

    waiting: with a callee, the instruction that has called it, whose handlers cover the call.
    """
    code = body.code
    if code.co_flags & _GENERATOR_LIKE:
        raise CannotResume("a generator or coroutine")
    copy, twin = body.copy()
    target = twin[instruction]
    start, regions = _start(body, stack)
    for made in start:
        made.positions = target.positions
    call: list[Instruction] = []
    if waiting is not None:
        call = [
            *spelling.callable_from(spelling.load_const(drive)),
            *spelling.take_fast(CALLEE),
            *spelling.call(1),
        ]
        for made in call:
            made.positions = waiting.positions
        region = covering(body).get(waiting)
        if region is not None:
            regions.append(
                Region(call[0], call[-1], twin[region.handler], region.depth, region.lasti)
            )
        start += call
        if callee is Callee.DROP:
            start += [*spelling.pop_top(), *spelling.take_fast(INSTEAD)]
    start += spelling.jump(target)
    parameters = (*arguments, *stack_names(stack))
    if callee is Callee.DROP:
        parameters += (INSTEAD,)
    if callee is not Callee.NONE:
        parameters += (CALLEE,)
    whole = CodeBody([*start, *copy.instructions], code, [*copy.regions, *regions])
    originals = {made: original for original, made in twin.items()}
    if waiting is not None:
        originals[call[-1]] = waiting
    whole = remove_dead_code(whole)
    resumed = as_function(whole, parameters, code.co_name, code.co_qualname)
    decoded = decode(resumed).instructions
    sources: tuple[Instruction | None, ...] = ()
    if len(decoded) == len(whole.instructions):
        sources = tuple(originals.get(made) for made in whole.instructions)
    return Resumption(name, resumed, arguments, stack, body, sources)


def _start(body: CodeBody, stack: Slots) -> tuple[list[Instruction], list[Region]]:
    """Makes the stack; its values are variables no longer (an exception would hold itself)."""
    code = body.code
    free = (*code.co_freevars, *code.co_cellvars)
    pushed, regions = push_stack(stack, lambda place: spelling.load_fast_bound(f"___stack_{place}"))
    ended = [one for name in stack_names(stack) for one in spelling.delete_fast(name)]
    return [*spelling.prefix((), free), *pushed, *ended], regions


def as_function(
    whole: CodeBody, parameters: tuple[str, ...], name: str, qualname: str | None = None
) -> CodeType:
    """Code of a function of these parameters, to which all cells of the original are free."""
    code = whole.code
    free = (*code.co_freevars, *code.co_cellvars)
    if any(i.opname == "MAKE_CELL" for i in whole.instructions):
        raise CannotResume("a comprehension's own cells are made after the break")
    made = assemble(
        whole,
        name=name,
        qualname=qualname or name,
        flags=(code.co_flags & ~_VARIADIC) | (_NESTED if free else 0),
        argcount=len(parameters),
        posonlyargcount=0,
        kwonlyargcount=0,
        varnames=parameters,
        cellvars=(),
        freevars=free,
    )
    told = _TELLING.intersection(code.co_names).difference(made.co_names)
    return made.replace(co_names=(*made.co_names, *sorted(told))) if told else made
