"""Container opcodes.

In: a frame and an instruction. Out: the frame, one instruction later. Invariant: a container under
construction on the stack is the container the program gets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.introspection import class_of, has_attr, is_instance
from flambeau_capture.builtins.operations.operators import unary
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.opcodes.registry import expression, opcode, operand, statement
from flambeau_capture.polyfills import calling
from flambeau_capture.values.base import IteratorValue, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant, evaluate, nameless
from flambeau_capture.values.containers.dicts import DictValue, keys_of, pairs_of
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue, too_many
from flambeau_capture.values.containers.sets import SetValue
from flambeau_capture.values.iterators.coroutines import YieldedValue
from flambeau_capture.values.iterators.existing_iterators import CallIterator
from flambeau_capture.values.iterators.generators import of_stop_iteration
from flambeau_capture.values.objects.attributes import assume_entry, is_iterable
from flambeau_capture.values.stand_ins import name_in_errors


def _tuple_of(tx: Tracer, instruction: Instruction, items: Value) -> Value:
    return TupleValue(unpack(tx, items))


expression("BUILD_TUPLE", None, lambda tx, _, *items: TupleValue([*items]))
expression("BUILD_LIST", None, lambda tx, _, *items: ListValue([*items]))
expression("BUILD_SET", None, lambda tx, _, *items: SetValue([*items], set, tx=tx))
expression("LIST_TO_TUPLE", 1, _tuple_of, until=(3, 11))


@opcode("BUILD_MAP")
def build_map(frame: Frame, instruction: Instruction) -> None:
    items = frame.pop_many(2 * operand(instruction))
    frame.push(DictValue(zip(items[::2], items[1::2]), tx=frame.tx))


@opcode("BUILD_CONST_KEY_MAP")
def build_const_key_map(frame: Frame, instruction: Instruction) -> None:
    keys = unpack(frame.tx, frame.pop())
    frame.push(DictValue(zip(keys, frame.pop_many(operand(instruction))), tx=frame.tx))


def _at(frame: Frame, instruction: Instruction) -> Value:
    return frame.stack[-operand(instruction)]


def _adding(name: str, method: str) -> None:
    def add(frame: Frame, instruction: Instruction, item: Value) -> None:
        _at(frame, instruction).call_method(frame.tx, method, [item], {})

    statement(name, 1, add)


_adding("LIST_APPEND", "append")
_adding("SET_ADD", "add")
_adding("SET_UPDATE", "update")


@opcode("LIST_EXTEND")
def list_extend(frame: Frame, instruction: Instruction) -> None:
    items = frame.pop()
    if not is_iterable(items):
        evaluate(frame.tx, lambda: [*nameless(items)])
    _at(frame, instruction).call_method(frame.tx, "extend", [items], {})


statement("MAP_ADD", 2, lambda frame, i, key, item: _at(frame, i).set_item(frame.tx, key, item))


@opcode("DICT_UPDATE")
def dict_update(frame: Frame, instruction: Instruction) -> None:
    given = frame.pop()
    if keys_of(frame.tx, given) is None:
        frame.tx.raise_error(TypeError, f"'{name_in_errors(given.cls)}' object is not a mapping")
    for key, value in pairs_of(frame.tx, given):
        _at(frame, instruction).set_item(frame.tx, key, value)


@opcode("CALL_INTRINSIC_1", since=(3, 12))
def call_intrinsic_1(frame: Frame, instruction: Instruction) -> None:
    name = str(instruction.argval)
    if name == "INTRINSIC_LIST_TO_TUPLE":
        frame.push(_tuple_of(frame.tx, instruction, frame.pop()))
    elif name == "INTRINSIC_UNARY_POSITIVE":
        frame.push(unary(frame.tx, "+", frame.pop()))
    elif name == "INTRINSIC_STOPITERATION_ERROR":
        frame.stack[-1] = of_stop_iteration(frame.tx, frame.code, frame.stack[-1])
    elif name == "INTRINSIC_ASYNC_GEN_WRAP":
        frame.push(YieldedValue(frame.pop()))
    else:
        raise Break("FB0008", name)


def _two_of(items: Any) -> None:
    _one, _other = items


def _iterated(tx: Tracer, value: Value) -> IteratorValue:
    """Of the items that an assignment to several names takes."""
    if not is_iterable(value):
        evaluate(tx, _two_of, nameless(value))
    return value.iterate(tx)


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(frame: Frame, instruction: Instruction) -> None:
    count = operand(instruction)
    given = frame.pop()
    taken = _iterated(frame.tx, given).drain(frame.tx)
    items = list(itertools.islice(taken, count + 1))  # as many as show that there are too many
    if len(items) < count:
        words = f"not enough values to unpack (expected {count}, got {len(items)})"
        frame.tx.raise_error(ValueError, words)
    if len(items) > count:
        frame.tx.raise_error(ValueError, too_many(frame.tx, given, count))
    frame.stack += reversed(items)


@opcode("UNPACK_EX")
def unpack_ex(frame: Frame, instruction: Instruction) -> None:
    before, after = operand(instruction) & 0xFF, operand(instruction) >> 8
    iterator = _iterated(frame.tx, frame.pop())
    items = list(itertools.islice(iterator.drain(frame.tx), before))
    if len(items) == before:  # a list of the rest, which calls `__iter__` again
        rest = iterator.target if isinstance(iterator, CallIterator) else iterator
        items += unpack(frame.tx, rest, hint=True)
    if len(items) < before + after:
        words = f"expected at least {before + after}, got {len(items)}"
        frame.tx.raise_error(ValueError, f"not enough values to unpack ({words})")
    end = len(items) - after
    frame.stack += reversed([*items[:before], ListValue(items[before:end]), *items[end:]])


def _of_top(name: str, answer: Callable[[Tracer, Value], int]) -> None:
    @opcode(name)
    def push(frame: Frame, instruction: Instruction) -> None:
        frame.push(Constant(answer(frame.tx, frame.stack[-1])))


_of_top("GET_LEN", lambda tx, value: value.length(tx))
# flags of classes, which say what a pattern takes
_of_top("MATCH_SEQUENCE", lambda tx, value: bool(value.cls.__flags__ & 1 << 5))
_of_top("MATCH_MAPPING", lambda tx, value: bool(value.cls.__flags__ & 1 << 6))


@opcode("MATCH_KEYS")
def match_keys(frame: Frame, instruction: Instruction) -> None:
    frame.push(frame.tx.call_python(calling.match_keys, frame.stack[-2:]))


_SELF_MATCHING = (
    bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple,
)  # fmt: skip


@opcode("MATCH_CLASS")
def match_class(frame: Frame, instruction: Instruction) -> None:
    subject, kind, keywords = frame.pop_many(3)
    names = [item.as_python() for item in unpack(frame.tx, keywords)]
    count = operand(instruction)
    if not is_instance(frame.tx, subject, kind):
        frame.push(Constant(None))
        return
    python_class = class_of(kind)
    found: list[Value] = []
    assume_entry(frame.tx, python_class, "__match_args__")
    allowed = list(getattr(python_class, "__match_args__", ()))
    attributes = allowed[:count]
    if count and not attributes and issubclass(python_class, _SELF_MATCHING) and count == 1:
        found.append(subject)
    elif len(attributes) < count:
        single = not allowed and issubclass(python_class, _SELF_MATCHING)
        most = 1 if single else len(allowed)
        ending = "" if most == 1 else "s"
        words = f"accepts {most} positional sub-pattern{ending} ({count} given)"
        frame.tx.raise_error(TypeError, f"{name_in_errors(python_class)}() {words}")
    for name in [*attributes, *names]:
        if not has_attr(frame.tx, subject, name):
            frame.push(Constant(None))
            return
        found.append(frame.tx.get_attr(subject, name))
    frame.push(TupleValue(found))
