"""Control-flow opcodes: jumps, loops, return, yield, exceptions, `with`.

In: a frame and an instruction. Out: the frame, elsewhere. Invariant: a branch that depends on a
tensor's data is a graph break at the jump itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.introspection import class_of
from flambeau_capture.bytecode.flow import ends_loop
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.opcodes import RUNNING, VERSION
from flambeau_capture.graph.functions import ERRORS
from flambeau_capture.interp import position_loops
from flambeau_capture.interp.branches_by_data import choose
from flambeau_capture.interp.frame import NULL, ErrorState, Frame
from flambeau_capture.interp.if_conversion import convert
from flambeau_capture.interp.opcodes.registry import opcode, operand
from flambeau_capture.interp.opcodes.variables import global_value
from flambeau_capture.values.base import IteratorValue, UserError, Value
from flambeau_capture.values.constant import Constant, evaluate, is_none, nameless
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.higher_order.context_managers import manager_of
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.objects import exception_groups
from flambeau_capture.values.objects.attributes import class_attribute, find_in_class, full_name
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import ExceptionValue, TracebackValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject
from flambeau_capture.values.tensors.graph_calls import check_all, require_number, tensor_call
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue, symbol_value
from flambeau_capture.values.tensors.tensor import TensorValue


@opcode("JUMP", "JUMP_NO_INTERRUPT")
def jump(frame: Frame, instruction: Instruction) -> None:
    frame.jump(instruction.target)


def _is_none(value: Value) -> bool:
    _ = value.cls  # the answer rests on what it is
    return is_none(value)


def _jump_if(name: str, holds: Callable[[Frame, Value], bool], or_pop: str = "") -> None:
    """A jump that takes the value; `or_pop`: and one that leaves it where it jumps."""
    of_truth = not name.endswith("NONE")

    @opcode(name)
    def jump_if(frame: Frame, instruction: Instruction) -> None:
        value = frame.pop()
        by_truth = name.endswith("FALSE")
        if convert(frame, value, by_truth) or (of_truth and _joined(frame, value, by_truth)):
            return
        try:
            taken = holds(frame, value)
        except Break:
            if not (of_truth and isinstance(value, SymbolValue) and choose(frame, value, by_truth)):
                raise
            return
        if taken:
            frame.jump(instruction.target)

    if or_pop:

        @opcode(or_pop, until=(3, 11))
        def jump_or_pop(frame: Frame, instruction: Instruction) -> None:
            if holds(frame, frame.stack[-1]):
                frame.jump(instruction.target)
            else:
                frame.pop()


def _joined(frame: Frame, value: Value, by_truth: bool) -> bool:
    """Whether a jump by data was made a choice in the graph: none of whose ways raises."""
    if not isinstance(value, TensorValue):
        return False
    ways = (_otherwise(frame, truth) for truth in (True, False))
    return not any(map(_ends_raising, ways)) and choose(frame, value, by_truth)


def _truth(frame: Frame, value: Value) -> bool:
    """The truth of what a jump depends on. Where that depends on data, and the program goes on to
    raise an error, the graph checks it."""
    if isinstance(value, SymbolValue) and value.by_data and value.cls is bool:
        asserts = _otherwise(frame, True)[0].opname == "LOAD_ASSERTION_ERROR"
        if asserts and require_number(frame.tx, value, "an assertion of the program fails"):
            return True
        for truth in (True, False):
            if _assume_number(frame, value, truth):
                return truth
    if isinstance(value, SymbolValue) and value.by_data and value.known_truth() is None:
        if _repeats(frame):
            frame.tx.shapes.settle(value.number)
    if isinstance(value, TensorValue):
        for decide in (_check, _assume):
            for truth in (True, False):
                if decide(frame, value, truth):
                    return truth
    return value.truth(frame.tx)


def _repeats(frame: Frame) -> bool:
    """Whether a jump decides if a `while` loop goes on, or a recursion: in general it would for
    ever, so that no count is taken as in general there."""
    outer = frame.tx.frames[: frame.tx.frames.index(frame)]
    return any(one.code is frame.code for one in outer) or ends_loop(
        frame.prepared.body, frame.current
    )


def _is_open(tx: Any, value: TensorValue) -> bool:
    """Whether only the graph knows the truth of a tensor."""
    if value.truth_known is not None or tx.graph is not tx.graph.outermost:
        return False
    return value.fake.numel() == 1 and tx.tensor_rules.known_data(tx, value) is None


def _check(frame: Frame, value: TensorValue, truth: bool) -> bool:
    """Let the graph raise what the program raises if a tensor has not this truth; whether it can.
    It must be the program's error, whether or not the call can be run again as it is: nothing was
    written before, no handler is near, the words are known."""
    tx = frame.tx
    raised = _raised(frame, _otherwise(frame, truth))
    if raised is None or not _is_open(tx, value):
        return False
    handled = any(one.current in one.prepared.regions for one in tx.frames)
    if handled or tx.heap.writes() or tx.graph.effects.any():
        return False
    _require(frame, value, truth, raised)
    return True


def _require(
    frame: Frame, value: TensorValue, truth: bool, raised: tuple[type[Exception], tuple[str, ...]]
) -> None:
    if not truth:
        value = tensor_call(frame.tx, "call_function", torch.logical_not, [value])
    check_all(frame.tx, value, *raised)


def _assume(frame: Frame, value: TensorValue, truth: bool) -> bool:
    """Let the graph raise where a tensor has not this truth and the program would go on to raise,
    whatever it says and whoever handles it; whether it can. The call is then run as it is, so
    nothing of the graph may be left."""
    tx = frame.tx
    if not _ends_raising(_otherwise(frame, truth)) or not _is_open(tx, value):
        return False
    if tx.graph.effects.any() or not tx.checks_in_graph():
        return False
    unknown = Break("FB0001", f"truth of {value.describe()}")
    tx.locate(unknown)
    tx.assumed.append(unknown.report())
    _require(frame, value, truth, (AssertionError, ("what the program checks does not hold",)))
    return True


def _assume_number(frame: Frame, value: SymbolValue, truth: bool) -> bool:
    """The same for a condition on numbers that depend on data."""
    tx, condition = frame.tx, value.number
    nodes = (node for node in tx.graph.graph.nodes if node.op in ("placeholder", "get_attr"))
    given = [x for x in (node.meta["val"] for node in nodes) if isinstance(x, torch.Tensor)]
    if tx.graph.effects.other or tx.graph.effects.writes_to(given):
        return False  # which would be left, where the call is run as it is
    if compat.known_condition(condition) is not None:
        return False
    if not _ends_raising(_otherwise(frame, truth)) or not tx.checks_in_graph():
        return False
    wanted = value if truth else symbol_value(tx, torch.sym_not(condition))
    return require_number(tx, wanted, "what the program checks does not hold")


def _ends_raising(instructions: list[Instruction]) -> bool:
    """Whether instructions go straight to raising an error."""
    for instruction in instructions:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if instruction.target is not None or instruction.opname.startswith(("RETURN", "YIELD")):
            return False
    return False


def _otherwise(frame: Frame, truth: bool) -> list[Instruction]:
    """Where the program goes from a jump if what it depends on has not this truth."""
    start = frame.position
    if frame.current.opname.endswith("TRUE") is not truth:
        assert frame.current.target is not None
        start = frame.prepared.index[frame.current.target]
    return frame.prepared.body.instructions[start:]


def _raised(
    frame: Frame, instructions: list[Instruction]
) -> tuple[type[Exception], tuple[str, ...]] | None:
    """The error that instructions raise and do nothing else, with its arguments: of a class of
    Python's, with no words or with constant ones."""
    kind, words = None, []
    for instruction in instructions:
        name, given = instruction.opname, instruction.argval
        if name == "LOAD_ASSERTION_ERROR":
            kind = AssertionError
        elif name == "LOAD_GLOBAL" and kind is None and given in ERRORS:
            found = global_value(frame, given)
            kind = found.as_python() if isinstance(found, ClassValue) else None
            if kind is not ERRORS[given]:
                return None
        elif name == "LOAD_CONST" and kind is not None and type(given) is str and given:
            words.append(given)
        elif name == "RAISE_VARARGS":
            fits = kind is not None and instruction.arg == 1 and len(words) < 2
            return (kind, tuple(words)) if fits and kind is not None else None
        elif name not in ("PRECALL", "CALL", "CACHE", "PUSH_NULL", "NOP"):
            return None
    return None


_jump_if("POP_JUMP_IF_TRUE", lambda frame, value: _truth(frame, value), "JUMP_IF_TRUE_OR_POP")
_jump_if("POP_JUMP_IF_FALSE", lambda frame, value: not _truth(frame, value), "JUMP_IF_FALSE_OR_POP")
_jump_if("POP_JUMP_IF_NONE", lambda frame, value: _is_none(value))
_jump_if("POP_JUMP_IF_NOT_NONE", lambda frame, value: not _is_none(value))


@opcode("GET_ITER")
def get_iter(frame: Frame, instruction: Instruction) -> None:
    value = frame.pop()
    frame.push(position_loops.loop(frame, value) or value.iterate(frame.tx))


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
    frame.position += len(RUNNING.loop_end)


@opcode("RETURN_VALUE")
def return_value(frame: Frame, instruction: Instruction) -> None:
    frame.returned = frame.pop()
    frame.finished = True


@opcode("RETURN_CONST", since=(3, 12))
def return_const(frame: Frame, instruction: Instruction) -> None:
    frame.returned = frame.tx.wrap_new(instruction.argval)
    frame.finished = True


@opcode("RAISE_VARARGS")
def raise_varargs(frame: Frame, instruction: Instruction) -> None:
    count = operand(instruction)
    cause = frame.pop() if count == 2 else None
    if count == 0:
        if frame.tx.error is None:
            frame.tx.raise_error(RuntimeError, "No active exception to reraise")
        raise UserError(frame.tx.error, frame.tx.raised_at, again=True)
    error = _made(frame, frame.pop())
    if not isinstance(error, ExceptionValue):
        raise Break("FB0010", f"raise of {error.describe()}")
    if cause is not None:
        error.generic_set_attr(frame.tx, "__cause__", _cause(frame, cause))
    raise UserError(error)


def _cause(frame: Frame, cause: Value) -> Value:
    if isinstance(cause, ClassValue) and issubclass(cause.python_class, BaseException):
        return _made(frame, cause)
    if not (is_none(cause) or issubclass(cause.cls, BaseException)):
        evaluate(frame.tx, _ask_cause, nameless(cause))
    return cause


def _ask_cause(cause: Any) -> None:
    raise Exception from cause


def _made(frame: Frame, error: Value) -> Value:
    return frame.tx.call(error, [], {}) if isinstance(error, ClassValue) else error


@opcode("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, instruction: Instruction) -> None:
    error = frame.pop()
    frame.stack += [ErrorState(frame.tx.error), error]
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


@opcode("CHECK_EG_MATCH")
def check_eg_match(frame: Frame, instruction: Instruction) -> None:
    wanted = frame.pop()
    parts = wanted.parts() if isinstance(wanted, TupleValue) else [wanted]
    kinds = tuple(class_of(part) for part in parts)
    evaluate(frame.tx, _refuse_kinds, kinds)
    error = frame.stack[-1]
    found, rest = exception_groups.matched(frame.tx, error, lambda one: issubclass(one.cls, kinds))
    if found is None:
        frame.push(Constant(None))
        return
    frame.stack[-1] = Constant(None) if rest is None else rest
    frame.push(found)
    frame.tx.error = found


def _refuse_kinds(kinds: tuple[type, ...]) -> None:
    """What `except*` says of the classes that it is given."""
    for kind in kinds:
        if not issubclass(kind, BaseException):
            words = "catching classes that do not inherit from BaseException is not allowed"
            raise TypeError(words)
        if issubclass(kind, BaseExceptionGroup):
            words = "catching ExceptionGroup with except* is not allowed. Use except instead."
            raise TypeError(words)


@opcode("PREP_RERAISE_STAR", until=(3, 11))
def prep_reraise_star(frame: Frame, instruction: Instruction) -> None:
    whole, errors = frame.pop_many(2)
    assert isinstance(errors, ListValue)
    frame.push(exception_groups.left_to_raise(frame.tx, whole, errors.parts()))


@opcode("CALL_INTRINSIC_2", since=(3, 12), breaks="type parameters")
def call_intrinsic_2(frame: Frame, instruction: Instruction) -> None:
    if instruction.argval != "INTRINSIC_PREP_RERAISE_STAR":
        raise Break("FB0008", str(instruction.argval))
    prep_reraise_star(frame, instruction)


@opcode("BEFORE_WITH", until=(3, 13))
def before_with(frame: Frame, instruction: Instruction) -> None:
    manager = frame.pop()
    manager = manager_of(manager) or manager
    enter = bound_method(frame, manager, "__enter__")
    frame.push(bound_method(frame, manager, "__exit__", " (missed __exit__ method)"))
    frame.push(frame.tx.call(enter, [], {}))


@opcode("LOAD_SPECIAL", since=(3, 14))
def load_special(frame: Frame, instruction: Instruction) -> None:
    name, manager = str(instruction.argval), frame.pop()
    manager = manager_of(manager) or manager
    kind = "asynchronous context manager" if name.startswith("__a") else "context manager"
    lack = f" (missed {name} method)"
    if kind == "context manager" and manager_of(manager) is None:
        if all(find_in_class(manager.cls, one) for one in ("__aenter__", "__aexit__")):
            lack += _OTHER_WITH
    frame.stack += (bound_method(frame, manager, name, lack, kind), NULL)


_OTHER_WITH = (
    " but it supports the asynchronous context manager protocol. Did you mean to use 'async with'?"
)


def bound_method(
    frame: Frame, manager: Value, name: str, lack: str = "", kind: str = "context manager"
) -> Value:
    """A method that `with` looks up; lack: what its error says more; kind: of protocol."""
    if manager_of(manager) is None and find_in_class(manager.cls, name) is None:
        shown = manager.cls.__name__ if VERSION < (3, 14) else full_name(manager.cls)
        words = f"'{shown}' object does not support the {kind} protocol{lack}"
        frame.tx.raise_error(TypeError, words)
    if isinstance(manager, ObjectValue):
        found = class_attribute(frame.tx, manager, manager.cls, name)
        if isinstance(found, MethodValue | BoundMethod):
            return found
    if isinstance(manager, MadeObject):
        return BoundMethod(manager, name)
    known = manager_of(manager)
    if known is not None:
        return frame.tx.get_attr(known, name)
    raise Break("FB0013", f"with {manager.describe()}")


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: Frame, instruction: Instruction) -> None:
    error, exit_method = frame.stack[-1], frame.stack[-RUNNING.exit_depth]
    kind = frame.tx.wrap_new(error.cls)
    frame.push(frame.tx.call(exit_method, [kind, error, TracebackValue(error)], {}))
