"""Operator, comparison, subscript and formatting opcodes.

In: a frame and an instruction. Out: the frame, one instruction later. Invariant: the operator's
meaning is decided by `builtins.operators`, not here.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.builtins.introspection import format_value, text_of
from flambeau_capture.builtins.operators import binary, identical, unary
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.opcodes.registry import opcode
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.containers.sequences import SliceValue
from flambeau_capture.values.tensors.tensor import TensorValue


class TruthValue(Value):
    """`bool(tensor)`, or its negation, to be computed in Python."""

    def __init__(self, tensor: TensorValue, negated: bool = False) -> None:
        self.tensor = tensor
        self.negated = negated

    @property
    def cls(self) -> type:
        return bool

    def describe(self) -> str:
        return f"truth of {self.tensor.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return self.tensor.truth(tx) is not self.negated

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.tensor)
        writer.call_top(_negation if self.negated else bool)


def _negation(value: Any) -> bool:
    return not value


def _is_open(value: Value) -> bool:
    """Whether a value is a tensor whose truth may be asked later: to ask one of more elements than
    one raises, there and then."""
    if not isinstance(value, TensorValue) or value.truth_known is not None:
        return False
    size = value.fake.numel()
    return isinstance(size, int) and size == 1


def _truth_of(tx: Tracer, value: Value) -> Value:
    """bool(value)."""
    if _is_open(value):
        assert isinstance(value, TensorValue)
        return TruthValue(value)
    if isinstance(value, TruthValue):
        return value
    return Constant(value.truth(tx))


@opcode("BINARY_OP")
def binary_op(frame: Frame, instruction: Instruction) -> None:
    right = frame.pop()
    left = frame.pop()
    frame.push(binary(frame.tx, str(instruction.argval), left, right))


@opcode("COMPARE_OP")
def compare_op(frame: Frame, instruction: Instruction) -> None:
    right = frame.pop()
    left = frame.pop()
    found = binary(frame.tx, str(instruction.argval), left, right)
    if instruction.flags.to_bool:
        found = _truth_of(frame.tx, found)
    frame.push(found)


@opcode("IS_OP")
def is_op(frame: Frame, instruction: Instruction) -> None:
    right = frame.pop()
    left = frame.pop()
    frame.push(Constant(identical(frame.tx, left, right) != bool(instruction.arg)))


@opcode("CONTAINS_OP")
def contains_op(frame: Frame, instruction: Instruction) -> None:
    container = frame.pop()
    item = frame.pop()
    frame.push(Constant(container.contains(frame.tx, item) != bool(instruction.arg)))


@opcode("UNARY_NEGATIVE")
def unary_negative(frame: Frame, instruction: Instruction) -> None:
    frame.push(unary(frame.tx, "-", frame.pop()))


@opcode("UNARY_POSITIVE", until=(3, 11))
def unary_positive(frame: Frame, instruction: Instruction) -> None:
    frame.push(unary(frame.tx, "+", frame.pop()))


@opcode("UNARY_INVERT")
def unary_invert(frame: Frame, instruction: Instruction) -> None:
    frame.push(unary(frame.tx, "~", frame.pop()))


@opcode("UNARY_NOT")
def unary_not(frame: Frame, instruction: Instruction) -> None:
    value = frame.pop()
    if _is_open(value):
        assert isinstance(value, TensorValue)
        frame.push(TruthValue(value, negated=True))
    elif isinstance(value, TruthValue):
        frame.push(TruthValue(value.tensor, not value.negated))
    else:
        frame.push(Constant(not value.truth(frame.tx)))


@opcode("TO_BOOL", since=(3, 13))
def to_bool(frame: Frame, instruction: Instruction) -> None:
    frame.push(_truth_of(frame.tx, frame.pop()))


@opcode("BINARY_SUBSCR")
def binary_subscr(frame: Frame, instruction: Instruction) -> None:
    key = frame.pop()
    frame.push(binary(frame.tx, "getitem", frame.pop(), key))


@opcode("STORE_SUBSCR")
def store_subscr(frame: Frame, instruction: Instruction) -> None:
    key = frame.pop()
    container = frame.pop()
    container.set_item(frame.tx, key, frame.pop())


@opcode("DELETE_SUBSCR")
def delete_subscr(frame: Frame, instruction: Instruction) -> None:
    key = frame.pop()
    frame.pop().del_item(frame.tx, key)


@opcode("BINARY_SLICE", since=(3, 12))
def binary_slice(frame: Frame, instruction: Instruction) -> None:
    start, stop = frame.pop_many(2)
    key = SliceValue(start, stop, Constant(None))
    frame.push(binary(frame.tx, "getitem", frame.pop(), key))


@opcode("STORE_SLICE", since=(3, 12))
def store_slice(frame: Frame, instruction: Instruction) -> None:
    value, container, start, stop = frame.pop_many(4)
    container.set_item(frame.tx, SliceValue(start, stop, Constant(None)), value)


@opcode("BUILD_SLICE")
def build_slice(frame: Frame, instruction: Instruction) -> None:
    bounds = frame.pop_many(int(instruction.arg or 0))
    step = bounds[2] if len(bounds) > 2 else Constant(None)
    frame.push(SliceValue(bounds[0], bounds[1], step))


_CONVERSIONS = {1: "__str__", 2: "__repr__", 3: "ascii"}


@opcode("FORMAT_VALUE", until=(3, 12))
def format_value_op(frame: Frame, instruction: Instruction) -> None:
    flags = int(instruction.arg or 0)
    spec = constant_of(frame.pop()) if flags & 4 else ""
    value = frame.pop()
    if flags & 3:
        value = _convert(frame, value, flags & 3)
    frame.push(Constant(format_value(frame.tx, value, spec)))


def _convert(frame: Frame, value: object, conversion: int) -> Constant:
    text = text_of(frame.tx, value, _CONVERSIONS[conversion])  # type: ignore[arg-type]
    return Constant(ascii(text)[1:-1] if conversion == 3 else text)


@opcode("CONVERT_VALUE", since=(3, 13))
def convert_value(frame: Frame, instruction: Instruction) -> None:
    frame.push(_convert(frame, frame.pop(), int(instruction.arg or 0)))


@opcode("FORMAT_SIMPLE", since=(3, 13))
def format_simple(frame: Frame, instruction: Instruction) -> None:
    frame.push(Constant(format_value(frame.tx, frame.pop(), "")))


@opcode("FORMAT_WITH_SPEC", since=(3, 13))
def format_with_spec(frame: Frame, instruction: Instruction) -> None:
    spec = constant_of(frame.pop())
    frame.push(Constant(format_value(frame.tx, frame.pop(), spec)))


@opcode("BUILD_STRING")
def build_string(frame: Frame, instruction: Instruction) -> None:
    parts = frame.pop_many(int(instruction.arg or 0))
    frame.push(Constant("".join(constant_of(part) for part in parts)))
