"""Opcodes of generators and coroutines: yield, yield from, await, async for, async with.

In: a frame and an instruction. Out: the frame, elsewhere. Invariant: what suspends a frame is
`frame.yielded`; what it waits for stays on top of its stack.
"""

from __future__ import annotations

import inspect

from flambeau_capture.builtins.awaiting import awaited, next_awaited, steps_of
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.opcodes.control_flow import bound_method
from flambeau_capture.interp.opcodes.registry import expression, opcode, operand
from flambeau_capture.values.base import UserError
from flambeau_capture.values.constant import NONE
from flambeau_capture.values.iterators.coroutines import CoroutineValue, YieldedValue
from flambeau_capture.values.iterators.generators import send_to

_AWAITING = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE

expression("RETURN_GENERATOR", 0, lambda tx, _: NONE)  # the value sent to start it
expression("END_SEND", 2, lambda tx, _, receiver, value: value, since=(3, 12))
expression("ASYNC_GEN_WRAP", 1, lambda tx, _, item: YieldedValue(item), until=(3, 11))
expression("GET_AITER", 1, lambda tx, _, value: steps_of(tx, value))


@opcode("GET_AWAITABLE")
def get_awaitable(frame: Frame, instruction: Instruction) -> None:
    found = awaited(frame.tx, frame.pop(), operand(instruction))
    if isinstance(found, CoroutineValue) and found.waits_for() is not None:
        frame.tx.raise_error(RuntimeError, "coroutine is being awaited already")
    frame.push(found)


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, instruction: Instruction) -> None:
    frame.yielded = frame.pop()


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(frame: Frame, instruction: Instruction) -> None:
    value = frame.pop()
    if isinstance(value, CoroutineValue):
        if not frame.code.co_flags & _AWAITING:
            said = "cannot 'yield from' a coroutine object in a non-coroutine generator"
            frame.tx.raise_error(TypeError, said)
        frame.push(value)
    else:
        frame.push(value.iterate(frame.tx))


@opcode("SEND")
def send(frame: Frame, instruction: Instruction) -> None:
    value = frame.pop()
    item, returned = send_to(frame.tx, frame.stack[-1], value)
    if item is not None:
        frame.push(item)
        return
    if VERSION < (3, 12):
        frame.pop()
    frame.push(returned)
    frame.jump(instruction.target)


@opcode("CLEANUP_THROW", since=(3, 12))
def cleanup_throw(frame: Frame, instruction: Instruction) -> None:
    """A generator that `yield from` waits for was thrown into: has it returned, or raised?"""
    error = frame.pop()
    if not issubclass(error.cls, StopIteration):
        raise UserError(error, frame.tx.raised_at)
    frame.pop_many(2)
    frame.push(NONE)
    frame.push(frame.tx.get_attr(error, "value"))


@opcode("GET_ANEXT")
def get_anext(frame: Frame, instruction: Instruction) -> None:
    frame.push(next_awaited(frame.tx, frame.stack[-1]))


@opcode("END_ASYNC_FOR")
def end_async_for(frame: Frame, instruction: Instruction) -> None:
    error = frame.pop()
    if not issubclass(error.cls, StopAsyncIteration):
        raise UserError(error, frame.tx.raised_at, again=True)
    frame.pop()


@opcode("BEFORE_ASYNC_WITH", until=(3, 13))
def before_async_with(frame: Frame, instruction: Instruction) -> None:
    manager, kind = frame.pop(), "asynchronous context manager"
    enter = bound_method(frame, manager, "__aenter__", kind=kind)
    missed = " (missed __aexit__ method)"
    frame.push(bound_method(frame, manager, "__aexit__", missed, kind))
    frame.push(frame.tx.call(enter, [], {}))
