"""Control-flow opcodes: jumps, loops, return, yield.

In: a frame and an instruction. Out: the frame, elsewhere. Invariant: a branch that depends on a
tensor's data is a graph break at the jump itself.
"""

from __future__ import annotations

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.opcodes.registry import opcode
from flambeau_capture.values.base import IteratorValue, UserError, Value
from flambeau_capture.values.constant import Constant, is_none
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.iterators.generators import GeneratorValue


@opcode("JUMP", "JUMP_NO_INTERRUPT")
def jump(frame: Frame, instruction: Instruction) -> None:
    frame.jump(instruction.target)


def _is_none(value: Value) -> bool:
    _ = value.cls  # the answer rests on what it is
    return is_none(value)


@opcode("POP_JUMP_IF_TRUE")
def pop_jump_if_true(frame: Frame, instruction: Instruction) -> None:
    if frame.pop().truth(frame.tx):
        frame.jump(instruction.target)


@opcode("POP_JUMP_IF_FALSE")
def pop_jump_if_false(frame: Frame, instruction: Instruction) -> None:
    if not frame.pop().truth(frame.tx):
        frame.jump(instruction.target)


@opcode("POP_JUMP_IF_NONE")
def pop_jump_if_none(frame: Frame, instruction: Instruction) -> None:
    if _is_none(frame.pop()):
        frame.jump(instruction.target)


@opcode("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(frame: Frame, instruction: Instruction) -> None:
    if not _is_none(frame.pop()):
        frame.jump(instruction.target)


@opcode("JUMP_IF_TRUE_OR_POP", until=(3, 11))
def jump_if_true_or_pop(frame: Frame, instruction: Instruction) -> None:
    if frame.stack[-1].truth(frame.tx):
        frame.jump(instruction.target)
    else:
        frame.pop()


@opcode("JUMP_IF_FALSE_OR_POP", until=(3, 11))
def jump_if_false_or_pop(frame: Frame, instruction: Instruction) -> None:
    if not frame.stack[-1].truth(frame.tx):
        frame.jump(instruction.target)
    else:
        frame.pop()


@opcode("GET_ITER")
def get_iter(frame: Frame, instruction: Instruction) -> None:
    frame.push(frame.pop().iterate(frame.tx))


@opcode("FOR_ITER")
def for_iter(frame: Frame, instruction: Instruction) -> None:
    iterator = frame.stack[-1]
    if not isinstance(iterator, IteratorValue):
        iterator = CallIterator(iterator)
    item = iterator.advance(frame.tx)
    if item is not None:
        frame.push(item)
        return
    frame.pop()
    frame.jump(instruction.target)
    if VERSION >= (3, 12):  # END_FOR (and 3.13's POP_TOP after it) is skipped
        frame.position += 1 if VERSION == (3, 12) else 2


@opcode("RETURN_VALUE")
def return_value(frame: Frame, instruction: Instruction) -> None:
    frame.returned = frame.pop()
    frame.finished = True


@opcode("RETURN_CONST", since=(3, 12))
def return_const(frame: Frame, instruction: Instruction) -> None:
    frame.returned = frame.tx.wrap_new(instruction.argval)
    frame.finished = True


@opcode("RETURN_GENERATOR")
def return_generator(frame: Frame, instruction: Instruction) -> None:
    frame.push(Constant(None))  # the value sent to start it


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, instruction: Instruction) -> None:
    frame.yielded = frame.pop()


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(frame: Frame, instruction: Instruction) -> None:
    frame.push(frame.pop().iterate(frame.tx))


@opcode("SEND")
def send(frame: Frame, instruction: Instruction) -> None:
    value = frame.pop()
    target = frame.stack[-1]
    if not isinstance(target, IteratorValue):
        raise Break("FB0021", f"yield from {target.describe()}")
    result: Value = Constant(None)
    if isinstance(target, GeneratorValue):
        item = target.send(frame.tx, value)
        result = target.returned
    else:
        try:
            item = target.advance(frame.tx)
        except UserError as error:
            if not issubclass(error.value.cls, StopIteration):
                raise
            item = None
    if item is not None:
        frame.push(item)
        return
    if VERSION < (3, 12):
        frame.pop()
    frame.push(result)
    frame.jump(instruction.target)


@opcode("END_SEND", since=(3, 12))
def end_send(frame: Frame, instruction: Instruction) -> None:
    value = frame.pop()
    frame.pop()
    frame.push(value)


@opcode("CLEANUP_THROW", since=(3, 12))
def cleanup_throw(frame: Frame, instruction: Instruction) -> None:
    """A generator that `yield from` waits for was thrown into: has it returned, or raised?"""
    error = frame.pop()
    if not issubclass(error.cls, StopIteration):
        raise UserError(error, frame.tx.raised_at)
    frame.pop_many(2)
    frame.push(Constant(None))
    frame.push(frame.tx.get_attr(error, "value"))


@opcode(
    "GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR",
    "ASYNC_GEN_WRAP", breaks="coroutines, which are left alone",
)  # fmt: skip
def asynchronous(frame: Frame, instruction: Instruction) -> None:
    raise Break("FB0021", instruction.opname)
