"""Exception and `with` opcodes.

In: a frame and an instruction. Out: the frame, one instruction later, or a `UserError` on its way
to the handler. Invariant: the exception being handled is part of the session's state, restored when
its handler ends.
"""

from __future__ import annotations

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.introspection import class_of
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import ErrorState, Frame
from flambeau_capture.interp.opcodes.registry import opcode
from flambeau_capture.values.base import UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.higher_order.context_managers import manager_of
from flambeau_capture.values.objects.attributes import class_attribute, find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import ExceptionValue, TracebackValue
from flambeau_capture.values.objects.instances import ObjectValue


@opcode("RAISE_VARARGS")
def raise_varargs(frame: Frame, instruction: Instruction) -> None:
    count = int(instruction.arg or 0)
    cause = frame.pop() if count == 2 else None
    if count == 0:
        if frame.tx.error is None:
            frame.tx.raise_error(RuntimeError, "No active exception to reraise")
        raise UserError(frame.tx.error, frame.tx.raised_at, again=True)
    error = frame.pop()
    if isinstance(error, ClassValue):
        error = frame.tx.call(error, [], {})
    if not isinstance(error, ExceptionValue):
        raise Break("FB0010", f"raise of {error.describe()}")
    if cause is not None:
        if isinstance(cause, ClassValue):
            cause = frame.tx.call(cause, [], {})
        error.generic_set_attr(frame.tx, "__cause__", cause)
    raise UserError(error)


@opcode("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, instruction: Instruction) -> None:
    error = frame.pop()
    frame.push(ErrorState(frame.tx.error))
    frame.push(error)
    frame.tx.error = error


@opcode("POP_EXCEPT")
def pop_except(frame: Frame, instruction: Instruction) -> None:
    state = frame.pop()
    assert isinstance(state, ErrorState)
    frame.tx.error = state.value


@opcode("RERAISE")
def reraise(frame: Frame, instruction: Instruction) -> None:
    raise UserError(frame.pop(), frame.tx.raised_at, again=True)


@opcode("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, instruction: Instruction) -> None:
    wanted = frame.pop()
    error = frame.stack[-1]
    kinds = wanted.parts() if isinstance(wanted, TupleValue) else [wanted]
    frame.push(Constant(any(issubclass(error.cls, class_of(kind)) for kind in kinds)))


@opcode("CHECK_EG_MATCH", "PREP_RERAISE_STAR", breaks="`except*`")
def exception_group(frame: Frame, instruction: Instruction) -> None:
    raise Break("FB0008", "except*")


@opcode("BEFORE_WITH")
def before_with(frame: Frame, instruction: Instruction) -> None:
    manager = frame.pop()
    manager = manager_of(manager) or manager
    enter = _bound(frame, manager, "__enter__")
    frame.push(_bound(frame, manager, "__exit__", " (missed __exit__ method)"))
    frame.push(frame.tx.call(enter, [], {}))


def _bound(frame: Frame, manager: Value, name: str, lack: str = "") -> Value:
    if isinstance(manager, ObjectValue):
        if find_in_class(manager.cls, name) is None:
            shown = f"'{manager.cls.__name__}' object"
            words = f"{shown} does not support the context manager protocol{lack}"
            frame.tx.raise_error(TypeError, words)
        found = class_attribute(frame.tx, manager, manager.cls, name)
        if isinstance(found, MethodValue | BoundMethod):
            return found
    known = manager_of(manager)
    if known is not None:
        return frame.tx.get_attr(known, name)
    raise Break("FB0013", f"with {manager.describe()}")


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: Frame, instruction: Instruction) -> None:
    error, exit_method = frame.stack[-1], frame.stack[-4]
    kind = frame.tx.wrap_new(error.cls)
    frame.push(frame.tx.call(exit_method, [kind, error, TracebackValue()], {}))
