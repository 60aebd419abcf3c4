"""Opcodes of the bodies of class statements, and the call that runs one.

In: a frame whose names are in a namespace. Out: the frame; the class. Invariant: a name is looked
for in the namespace, then where a function would look for it.
"""

from __future__ import annotations

import builtins

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.classes.statements import make_by_statement
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Frame, make_cells
from flambeau_capture.interp.opcodes.registry import opcode
from flambeau_capture.interp.opcodes.variables import global_value, push_cell
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.functions.call_rules import handles
from flambeau_capture.values.functions.functions import FunctionValue


def _names(frame: Frame) -> DictValue:
    assert frame.names is not None
    return frame.names


@opcode("LOAD_NAME")
def load_name(frame: Frame, instruction: Instruction) -> None:
    name = str(instruction.argval)
    found = None if frame.names is None else frame.names.lookup(frame.tx, Constant(name))
    frame.push(global_value(frame, name) if found is None else found)


@opcode("STORE_NAME")
def store_name(frame: Frame, instruction: Instruction) -> None:
    _names(frame).store(frame.tx, Constant(str(instruction.argval)), frame.pop())


@opcode("DELETE_NAME")
def delete_name(frame: Frame, instruction: Instruction) -> None:
    name = str(instruction.argval)
    if _names(frame).lookup(frame.tx, Constant(name)) is None:
        frame.tx.raise_error(NameError, f"name '{name}' is not defined")
    _names(frame).del_item(frame.tx, Constant(name))


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(frame: Frame, instruction: Instruction) -> None:
    name = Constant("__annotations__")
    if _names(frame).lookup(frame.tx, name) is None:
        _names(frame).store(frame.tx, name, DictValue(tx=frame.tx))


@opcode("LOAD_CLASSDEREF", until=(3, 11))
def load_classderef(frame: Frame, instruction: Instruction) -> None:
    _from(frame, _names(frame), str(instruction.argval))


@opcode("LOAD_LOCALS", since=(3, 12))
def load_locals(frame: Frame, instruction: Instruction) -> None:
    frame.push(_names(frame))


@opcode("LOAD_FROM_DICT_OR_DEREF", since=(3, 12))
def load_from_dict_or_deref(frame: Frame, instruction: Instruction) -> None:
    _from(frame, frame.pop(), str(instruction.argval))


@opcode("LOAD_FROM_DICT_OR_GLOBALS", since=(3, 12))
def load_from_dict_or_globals(frame: Frame, instruction: Instruction) -> None:
    name, namespace = str(instruction.argval), frame.pop()
    assert isinstance(namespace, DictValue)
    found = namespace.lookup(frame.tx, Constant(name))
    frame.push(global_value(frame, name) if found is None else found)


def _from(frame: Frame, namespace: Value, name: str) -> None:
    assert isinstance(namespace, DictValue)
    found = namespace.lookup(frame.tx, Constant(name))
    if found is None:
        push_cell(frame, name)
    else:
        frame.push(found)


@handles(builtins.__build_class__)
def _build_class(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A class statement: its body runs, in a namespace of its own, then the class is made."""
    body = args[0]
    if not isinstance(body, FunctionValue):
        raise Break("FB0020", f"the body {body.describe()}")
    if len(tx.frames) > tx.options.inline_depth:
        raise Break("FB0018", f"{len(tx.frames)} frames deep in {body.name}")

    def run(namespace: DictValue) -> None:
        frame = Frame(tx, body.code, body.scope, {}, {}, body)
        make_cells(frame)
        frame.names = namespace
        frame.run()

    return make_by_statement(tx, args, kwargs, run)
