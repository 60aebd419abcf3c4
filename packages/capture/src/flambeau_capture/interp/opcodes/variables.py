"""Variable, attribute and constant opcodes, and stack manipulation.

In: a frame and an instruction. Out: the frame, one instruction later. Invariant: moving a value
never reads anything of it, so nothing is guarded by it.
"""

from __future__ import annotations

import builtins
import types
from typing import Any, NoReturn

from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.spelling import NULL_ABOVE
from flambeau_capture.interp.frame import NULL, Frame
from flambeau_capture.interp.later_reads import (
    must_stay_attribute,
    must_stay_global,
    must_stay_in_cell,
)
from flambeau_capture.interp.opcodes.registry import expression, opcode, operand, statement
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Unreconstructible, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.functions.variables import CellValue
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import new_exception
from flambeau_capture.values.objects.super_objects import super_of


@opcode("NOP", "RESUME", "PRECALL", "CACHE", "COPY_FREE_VARS", "EXTENDED_ARG")
def nothing(frame: Frame, instruction: Instruction) -> None:
    pass


@opcode("POP_TOP", "POP_ITER")
def pop_top(frame: Frame, instruction: Instruction) -> None:
    frame.pop()


statement("END_FOR", 2, lambda frame, _, *dropped: None, since=(3, 12), until=(3, 12))
statement("END_FOR", 1, lambda frame, _, dropped: None, since=(3, 13))
expression("PUSH_NULL", 0, lambda tx, _: NULL)


@opcode("COPY")
def copy(frame: Frame, instruction: Instruction) -> None:
    frame.push(frame.stack[-operand(instruction)])


@opcode("SWAP")
def swap(frame: Frame, instruction: Instruction) -> None:
    depth = operand(instruction)
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@opcode("LOAD_CONST")
def load_const(frame: Frame, instruction: Instruction) -> None:
    frame.push(constant(frame, instruction.argval))


def constant(frame: Frame, value: Any) -> Value:
    """A constant of the code: each time the same object."""
    if type(value) not in (tuple, frozenset):
        return frame.tx.wrap_new(value)
    known: Value | None = frame.tx.heap.find(value)
    if known is None:
        known = frame.tx.wrap_new(value)
        if type(value) is tuple:
            known.source = ConstantSource(value, "constant")
        frame.tx.heap.know(value, known)
    return known


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(frame: Frame, instruction: Instruction) -> None:
    name = str(instruction.argval)
    found = frame.variable(name)
    if found is None:
        found = cell = frame.cells.get(name)  # 3.13 loads a cell itself with LOAD_FAST
        if cell is not None:
            cell.in_closure = True
    if found is None:
        unbound(frame, name)
    frame.push(found)


def unbound(frame: Frame, name: str) -> NoReturn:
    words = f"cannot access local variable '{name}' where it is not associated with a value"
    frame.tx.raise_error(UnboundLocalError, words)


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(frame: Frame, instruction: Instruction) -> None:
    name = str(instruction.argval)
    found: Any = frame.variable(name)
    frame.variables.pop(name, None)
    cell = frame.cells.get(name)
    if found is None and cell is not None:  # an inlined comprehension borrows its place
        kept = cell.in_closure or cell.own or cell.source is not None
        found = BorrowedCell(cell) if kept or cell.content is not None else None
        frame.cells[name] = _new_cell(frame, name)
    frame.push(NULL if found is None else found)


def _new_cell(frame: Frame, name: str, content: Value | None = None) -> CellValue:
    return CellValue(content, name=name, tx=frame.tx, owner=frame.code)


class BorrowedCell(Value):
    """A cell of the frame, while an inlined comprehension has a variable of the same name."""

    cls = types.CellType

    def __init__(self, cell: CellValue) -> None:
        self.cell = cell

    def reconstruct(self, writer: Any) -> None:
        raise Unreconstructible(self, f"{self.cell.name!r} is also a name of a comprehension")


@opcode("STORE_FAST")
def store_fast(frame: Frame, instruction: Instruction) -> None:
    value = frame.pop()
    name = str(instruction.argval)
    if value is NULL or isinstance(value, BorrowedCell):
        frame.variables.pop(name, None)
        if name in frame.cells:
            own = value.cell if isinstance(value, BorrowedCell) else _new_cell(frame, name)
            frame.cells[name] = own
    else:
        frame.variables[name] = value


@opcode("DELETE_FAST")
def delete_fast(frame: Frame, instruction: Instruction) -> None:
    name = str(instruction.argval)
    if frame.variables.pop(name, None) is None:
        unbound(frame, name)


@opcode("MAKE_CELL")
def make_cell(frame: Frame, instruction: Instruction) -> None:
    name = str(instruction.argval)
    if name not in frame.cells:  # an inlined comprehension's own
        frame.cells[name] = _new_cell(frame, name, frame.variables.pop(name, None))


@opcode("LOAD_CLOSURE")
def load_closure(frame: Frame, instruction: Instruction) -> None:
    cell = frame.cells[str(instruction.argval)]
    cell.in_closure = True
    frame.push(cell)


@opcode("LOAD_DEREF")
def load_deref(frame: Frame, instruction: Instruction) -> None:
    push_cell(frame, str(instruction.argval))


def push_cell(frame: Frame, name: str) -> None:
    cell = frame.cells[name]
    content = cell.content
    if content is None:
        unbound_cell(frame, name)
    if frame.tx.run_later:
        must_stay_in_cell(frame, name, frame.cells[name])
    if frame.tx.heap.reads is not None and cell.source is not None:
        frame.tx.heap.reads(frame.code, name, content)
    frame.push(content)  # type: ignore[arg-type]


def unbound_cell(frame: Frame, name: str) -> NoReturn:
    if name in frame.code.co_freevars:
        words = f"cannot access free variable '{name}' where it is not associated with a value"
        _undefined(frame, name, f"{words} in enclosing scope")
    unbound(frame, name)


@opcode("STORE_DEREF")
def store_deref(frame: Frame, instruction: Instruction) -> None:
    frame.cells[str(instruction.argval)].write(frame.tx, frame.pop())


@opcode("DELETE_DEREF")
def delete_deref(frame: Frame, instruction: Instruction) -> None:
    cell = frame.cells[str(instruction.argval)]
    if cell.content is None:
        unbound_cell(frame, str(instruction.argval))
    cell.write(frame.tx, None)


@opcode("LOAD_GLOBAL")
def load_global(frame: Frame, instruction: Instruction) -> None:
    value = global_value(frame, str(instruction.argval))
    if instruction.flags.push_null:
        push_method(frame, value)
    else:
        frame.push(value)


def global_value(frame: Frame, name: str) -> Value:
    found = frame.scope.load(frame.tx, name)
    if found is not None:
        if frame.tx.run_later:
            must_stay_global(frame, name, found)
        if frame.tx.heap.reads is not None:
            frame.tx.heap.reads(id(frame.scope.namespace), name, found)
        return found
    if name not in frame.scope.namespace and not name.startswith("__"):
        frame.tx.guard(ConstantSource(frame.scope.namespace, "globals"), "DICT_NOT_CONTAINS", name)
    built_in = frame.scope.load_builtin(frame.tx, name, frame.tx.builtins)
    if built_in is not None:
        return built_in
    _undefined(frame, name, f"name '{name}' is not defined")


def _undefined(frame: Frame, name: str, words: str) -> NoReturn:
    error = new_exception(NameError, [Constant(words)])
    error.fields["name"] = Constant(name)
    raise UserError(error)


@opcode("STORE_GLOBAL")
def store_global(frame: Frame, instruction: Instruction) -> None:
    frame.scope.store(frame.tx, str(instruction.argval), frame.pop())


@opcode("DELETE_GLOBAL")
def delete_global(frame: Frame, instruction: Instruction) -> None:
    global_value(frame, str(instruction.argval))
    frame.scope.store(frame.tx, str(instruction.argval), None)


@opcode("LOAD_ATTR")
def load_attr(frame: Frame, instruction: Instruction) -> None:
    found = attribute(frame, frame.pop(), str(instruction.argval))
    if instruction.flags.method:
        push_method(frame, found)
    else:
        frame.push(found)


@opcode("LOAD_METHOD")
def load_method(frame: Frame, instruction: Instruction) -> None:
    push_method(frame, attribute(frame, frame.pop(), str(instruction.argval)))


def attribute(frame: Frame, obj: Value, name: str) -> Value:
    found = frame.tx.get_attr(obj, name)
    if frame.tx.run_later:
        must_stay_attribute(frame.tx, obj, name, found)
    return found


def push_method(frame: Frame, found: Value) -> None:
    """A callable and its NULL: a bound method stays bound."""
    if isinstance(found, BoundMethod):
        found.called_where_found = True
    frame.stack += (found, NULL) if NULL_ABOVE else (NULL, found)


def _store_attribute(frame: Frame, instruction: Instruction, value: Value, obj: Value) -> None:
    name: Any = instruction.argval
    frame.tx.set_attr(obj, name, value)
    if obj.source is not None:
        frame.tx.stored(f"{obj.source.name()}.{name}", value)


statement("STORE_ATTR", 2, _store_attribute)
statement("DELETE_ATTR", 1, lambda frame, i, obj: frame.tx.del_attr(obj, i.argval))


@opcode("LOAD_SUPER_ATTR", since=(3, 12))
def load_super_attr(frame: Frame, instruction: Instruction) -> None:
    _, owner, receiver = frame.pop_many(3)  # the first is what the name `super` stands for
    assert isinstance(owner, ClassValue)
    found = super_of(frame.tx, owner, receiver).get_attr(frame.tx, str(instruction.argval))
    if instruction.flags.method:
        push_method(frame, found)
    else:
        frame.push(found)


expression("LOAD_BUILD_CLASS", 0, lambda tx, _: tx.wrap_new(builtins.__build_class__))
expression("LOAD_ASSERTION_ERROR", 0, lambda tx, _: tx.wrap_new(AssertionError))
expression("LOAD_COMMON_CONSTANT", 0, lambda tx, i: tx.wrap_new(i.argval), since=(3, 14))
