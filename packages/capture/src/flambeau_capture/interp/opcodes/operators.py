"""Operator, comparison, subscript and formatting opcodes.

In: a frame and an instruction. Out: the frame, one instruction later. Invariant: the operator's
meaning is decided by `builtins.operations.operators`, not here.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.builtins.operations.operators import binary, unary
from flambeau_capture.builtins.operations.sameness import identical
from flambeau_capture.builtins.texts import format_value, text_of, text_value
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.opcodes.registry import expression, opcode, operand, statement
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.containers.sequences import SliceValue
from flambeau_capture.values.containers.templates import InterpolationValue, TemplateValue
from flambeau_capture.values.tensors.numbers.address_text import address_text, is_shown_by_address
from flambeau_capture.values.tensors.numbers.open_text import OpenText, joined_text, open_text
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
    """Whether a value is a tensor whose truth may be read later: that of one of more elements than
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


def _binary(tx: Tracer, instruction: Instruction, left: Value, right: Value) -> Value:
    return binary(tx, str(instruction.argval), left, right)


def _compare(tx: Tracer, instruction: Instruction, left: Value, right: Value) -> Value:
    found = _binary(tx, instruction, left, right)
    return _truth_of(tx, found) if instruction.flags.to_bool else found


expression("BINARY_OP", 2, _binary)
expression("COMPARE_OP", 2, _compare)
expression("IS_OP", 2, lambda tx, i, a, b: Constant(identical(tx, a, b) != bool(i.arg)))
expression("CONTAINS_OP", 2, lambda tx, i, a, b: Constant(b.contains(tx, a) != bool(i.arg)))
expression("UNARY_NEGATIVE", 1, lambda tx, _, value: unary(tx, "-", value))
expression("UNARY_POSITIVE", 1, lambda tx, _, value: unary(tx, "+", value), until=(3, 11))
expression("UNARY_INVERT", 1, lambda tx, _, value: unary(tx, "~", value))
expression("TO_BOOL", 1, lambda tx, _, value: _truth_of(tx, value), since=(3, 13))
expression("BINARY_SUBSCR", 2, lambda tx, _, items, key: binary(tx, "getitem", items, key))


@opcode("UNARY_NOT")
def unary_not(frame: Frame, instruction: Instruction) -> None:
    value = _truth_of(frame.tx, frame.pop())
    if isinstance(value, TruthValue):
        frame.push(TruthValue(value.tensor, not value.negated))
    else:
        frame.push(Constant(not value.truth(frame.tx)))


def _store_item(frame: Frame, _: Instruction, item: Value, items: Value, key: Value) -> None:
    items.set_item(frame.tx, key, item)
    if items.source is not None and type(key) is Constant and key.is_committed:
        frame.tx.stored(f"{items.source.name()}[{key.value!r}]", item)


statement("STORE_SUBSCR", 3, _store_item)
statement("DELETE_SUBSCR", 2, lambda frame, _, items, key: items.del_item(frame.tx, key))


def _slice(start: Value, stop: Value, step: Value | None = None) -> SliceValue:
    return SliceValue(start, stop, Constant(None) if step is None else step)


def _part(tx: Tracer, instruction: Instruction, items: Value, start: Value, stop: Value) -> Value:
    return binary(tx, "getitem", items, _slice(start, stop))


expression("BINARY_SLICE", 3, _part, since=(3, 12))


def _store_slice(frame: Frame, _: Instruction, value: Value, items: Value, *bounds: Value) -> None:
    items.set_item(frame.tx, _slice(*bounds), value)


statement("STORE_SLICE", 4, _store_slice, since=(3, 12))
expression("BUILD_SLICE", None, lambda tx, _, *bounds: _slice(*bounds))
_CONVERSIONS = {1: "__str__", 2: "__repr__", 3: "ascii"}


@opcode("FORMAT_VALUE", until=(3, 12))
def format_value_op(frame: Frame, instruction: Instruction) -> None:
    flags = operand(instruction)
    spec = constant_of(frame.pop()) if flags & 4 else ""
    value = frame.pop()
    if flags & 3:
        value = _convert(frame.tx, value, flags & 3)
    frame.push(_text(frame.tx, value, spec))


def _convert(tx: Tracer, value: Value, conversion: int) -> Value:
    method = _CONVERSIONS[conversion]
    return (
        Constant(text_of(tx, value, method)) if method == "ascii" else text_value(tx, value, method)
    )


def _formatted(tx: Tracer, instruction: Instruction, value: Value, *spec: Value) -> Value:
    return _text(tx, value, constant_of(*spec) if spec else "")


def _text(tx: Tracer, value: Value, spec: str) -> Value:
    """format(value, spec)."""
    if not spec and isinstance(value, OpenText):
        return value
    if not spec and is_shown_by_address(tx, value, "__format__"):
        return address_text(tx, value)
    return open_text(tx, value, spec) or Constant(format_value(tx, value, spec))


def _string(tx: Tracer, instruction: Instruction, *parts: Value) -> Value:
    return joined_text(tx, parts) or Constant("".join(map(constant_of, parts)))


expression("CONVERT_VALUE", 1, lambda tx, i, value: _convert(tx, value, operand(i)), since=(3, 13))
expression("FORMAT_SIMPLE", 1, _formatted, since=(3, 13))
expression("FORMAT_WITH_SPEC", 2, _formatted, since=(3, 13))
expression("BUILD_STRING", None, _string)


@opcode("BUILD_INTERPOLATION", since=(3, 14))
def build_interpolation(frame: Frame, instruction: Instruction) -> None:
    spec = frame.pop() if operand(instruction) & 1 else Constant("")
    value, expression_text = frame.pop_many(2)
    conversion = {1: "s", 2: "r", 3: "a"}.get(operand(instruction) >> 2)
    frame.push(InterpolationValue(value, expression_text, Constant(conversion), spec))


def _template(tx: Tracer, _: Instruction, strings: Value, interpolations: Value) -> Value:
    return TemplateValue(strings, interpolations)


expression("BUILD_TEMPLATE", 2, _template, since=(3, 14))
