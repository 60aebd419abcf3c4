"""Function-making and import opcodes.

In: a frame and an instruction. Out: the frame, one instruction later. Invariant: a function made
under capture shares the cells of the frame that made it.
"""

from __future__ import annotations

import builtins
import sys

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.introspection import has_attr
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Frame
from flambeau_capture.interp.opcodes.registry import opcode
from flambeau_capture.source import Attr, ConstantSource, Item
from flambeau_capture.values.base import Value, unpack
from flambeau_capture.values.constant import constant_of
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.variables import CellValue

DEFAULTS, KWDEFAULTS, ANNOTATIONS, CLOSURE = 1, 2, 4, 8


@opcode("MAKE_FUNCTION", until=(3, 12))
def make_function(frame: Frame, instruction: Instruction) -> None:
    code = frame.pop()
    flags = int(instruction.arg or 0)
    parts = {
        flag: frame.pop() for flag in (CLOSURE, ANNOTATIONS, KWDEFAULTS, DEFAULTS) if flags & flag
    }
    made = _function(frame, code)
    for flag, part in parts.items():
        _set(frame, made, flag, part)
    frame.push(made)


@opcode("MAKE_FUNCTION", since=(3, 13))
def make_plain_function(frame: Frame, instruction: Instruction) -> None:
    frame.push(_function(frame, frame.pop()))


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def set_function_attribute(frame: Frame, instruction: Instruction) -> None:
    made, part = frame.pop(), frame.pop()
    assert isinstance(made, FunctionValue)
    _set(frame, made, int(instruction.arg or 0), part)
    frame.push(made)


def _function(frame: Frame, code_value: Value) -> FunctionValue:
    code = code_value.as_python()
    return FunctionValue(
        code,
        frame.scope,
        name=code.co_name,
        qualname=code.co_qualname,
        defaults=[],
        kwdefaults={},
        tx=frame.tx,
    )


def _set(frame: Frame, made: FunctionValue, flag: int, part: Value) -> None:
    if flag == DEFAULTS:
        made._defaults = unpack(frame.tx, part)
    elif flag == KWDEFAULTS:
        assert isinstance(part, DictValue)
        made._kwdefaults = {constant_of(key): value for key, value in part.entries()}
    elif flag == CLOSURE:
        cells = unpack(frame.tx, part)
        made._closure = [cell for cell in cells if isinstance(cell, CellValue)]
        assert len(made._closure) == len(cells)
    else:
        made.annotations = part


@opcode("IMPORT_NAME")
def import_name(frame: Frame, instruction: Instruction) -> None:
    names, level = frame.pop(), constant_of(frame.pop())
    name = str(instruction.argval)
    if level:
        package = str(frame.scope.namespace.get("__package__") or "")
        for _ in range(level - 1):
            package = package.rpartition(".")[0]
        name = f"{package}.{name}" if name else package
    wanted = names.as_python()
    if builtins.__import__ is not _IMPORT or sys.modules.get(name) is None:
        raise Break("FB0005", f"first import of {name}, or an import of the program's own")
    frame.tx.guard(
        Attr(ConstantSource(builtins, "builtins"), "__import__"), "FUNCTION_MATCH", _IMPORT
    )
    found = _imported(frame, name)
    if not wanted and not level:
        found = _imported(frame, name.partition(".")[0])
    frame.push(found)


_IMPORT = builtins.__import__


def _imported(frame: Frame, name: str) -> Value:
    """What stands in `sys.modules`, where a program may put another module."""
    where = Item(ConstantSource(sys.modules, "sys.modules"), name, "dict")
    return frame.tx.wrap(sys.modules[name], where)


@opcode("IMPORT_FROM")
def import_from(frame: Frame, instruction: Instruction) -> None:
    module = frame.stack[-1]
    name = str(instruction.argval)
    if not has_attr(frame.tx, module, name):
        package = constant_of(frame.tx.get_attr(module, "__name__"))
        if sys.modules.get(f"{package}.{name}") is None:
            frame.tx.raise_error(ImportError, f"cannot import name '{name}'")
        frame.push(_imported(frame, f"{package}.{name}"))
        return
    frame.push(frame.tx.get_attr(module, name))


@opcode(
    "IMPORT_STAR", "SETUP_ANNOTATIONS", "STORE_NAME", "DELETE_NAME", "PRINT_EXPR",
    breaks="modules and class bodies, which are left alone",
)  # fmt: skip
def module_level(frame: Frame, instruction: Instruction) -> None:
    raise Break("FB0008", instruction.opname)
