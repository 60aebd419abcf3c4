"""Stack-depth analysis.

In: a body. Out: `stack_effect` of one instruction, `depths` before every reachable one, and
`max_depth`. Invariant: the depth at an instruction is the same on every road that leads to it; a
body for which that fails is refused, never given a guess.
"""

from __future__ import annotations

from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import pairwise
from types import CodeType

from flambeau_capture.bytecode.decode import CodeBody, Region
from flambeau_capture.bytecode.flow import covering
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import (
    RUNNING,
    TERMINATORS,
    UNCONDITIONAL,
    OpcodeTable,
    OperandKind,
)

GENERATOR_LIKE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class StackError(ValueError):
    """The instructions use the stack in a way that no frame could run."""


def stack_effect(instruction: Instruction, *, jump: bool, table: OpcodeTable = RUNNING) -> int:
    """Change of depth when the instruction does (`jump`) or does not take its jump."""
    if instruction.opname in UNCONDITIONAL:
        return 0
    row = table.spec(instruction.opname)
    arg = row.fixed
    if row.kind is OperandKind.NUMBER:
        arg = number(instruction)
    for name, bit in row.bits:
        arg |= bit if getattr(instruction.flags, name) else 0
    return (row.jumping if jump else row.effect).of(arg)


def number(instruction: Instruction) -> int:
    """The operand of an instruction whose operand is a number."""
    value = instruction.arg if instruction.arg is not None else instruction.argval
    if not isinstance(value, int):
        raise StackError(f"{instruction!r} needs a number for its operand")
    return value


def entry_depth(code: CodeType, flags: int | None = None, table: OpcodeTable = RUNNING) -> int:
    """Depth at the first instruction: a generator's frame starts with the value sent to it.

    Up to 3.12 the compiler counts that value at entry, from 3.13 on at RETURN_GENERATOR.
    """
    if not (code.co_flags if flags is None else flags) & GENERATOR_LIKE:
        return 0
    return 1 - table.spec("RETURN_GENERATOR").effect.of(0)


def depths(body: CodeBody, *, entry: int | None = None) -> dict[Instruction, int]:
    """Depth before every instruction that can be reached, exception handlers included.

    Raises StackError where the stack would underflow, where two roads disagree, or where control
    would run past the last instruction.
    """
    order = body.instructions
    if not order:
        raise StackError("a body without instructions")
    following = dict(pairwise(order))
    regions = covering(body)
    found: dict[Instruction, int] = {}
    first = entry_depth(body.code, table=body.table) if entry is None else entry
    pending = [(order[0], first)]
    while pending:
        instruction, depth = pending.pop()
        if instruction in found:
            if found[instruction] != depth:
                raise StackError(
                    f"{instruction!r} is reached with {found[instruction]} and with {depth} "
                    f"values on the stack"
                )
            continue
        found[instruction] = depth
        region = regions.get(instruction)
        if region is not None:
            pending.append((region.handler, _handler_depth(region, instruction, depth)))
        if instruction.target is not None:
            pending.append((instruction.target, _after(instruction, depth, body.table, jump=True)))
        if instruction.opname not in TERMINATORS:
            if instruction not in following:
                raise StackError(f"control runs past the last instruction, {instruction!r}")
            pending.append(
                (following[instruction], _after(instruction, depth, body.table, jump=False))
            )
        else:
            _after(instruction, depth, body.table, jump=False)
    return found


def max_depth(body: CodeBody, *, entry: int | None = None) -> int:
    """The stack size that a frame of this body needs."""
    found = depths(body, entry=entry)
    left = [
        depth + stack_effect(one, jump=jump, table=body.table)
        for one, depth in found.items()
        for jump in ((False, True) if one.target is not None else (False,))
    ]
    return max(*found.values(), *left)


def _after(instruction: Instruction, depth: int, table: OpcodeTable, *, jump: bool) -> int:
    after = depth + stack_effect(instruction, jump=jump, table=table)
    if after < 0:
        raise StackError(f"{instruction!r} takes more values than the {depth} on the stack")
    return after


def _handler_depth(region: Region, instruction: Instruction, depth: int) -> int:
    if depth < region.depth:
        raise StackError(
            f"{instruction!r} runs with {depth} values on the stack, its exception handler "
            f"expects {region.depth} below it"
        )
    return region.depth + int(region.lasti) + 1
