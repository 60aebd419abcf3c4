"""Call opcodes, those that make functions and import, and calls that need the calling frame.

In: a frame and an instruction. Out: the frame, with the result on the stack. Invariant: keyword
arguments keep their order.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau_capture.breaks import Break, SkipFrame
from flambeau_capture.builtins.classes.construction import (
    made_by_init,
    new_object,
    nothing_answered,
)
from flambeau_capture.builtins.introspection import has_attr
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.bytecode.spelling import (
    ANNOTATE,
    ANNOTATIONS,
    CLOSURE,
    DEFAULTS,
    KWDEFAULTS,
    NULL_ABOVE,
)
from flambeau_capture.interp.frame import NULL, Frame
from flambeau_capture.interp.opcodes.registry import opcode, operand, refused
from flambeau_capture.resume_runtime import drive
from flambeau_capture.source import Attr, ConstantSource, Item
from flambeau_capture.values.base import Args, Kwargs, UserError, Value, needing, unpack
from flambeau_capture.values.constant import Constant, constant_of, evaluate, nameless
from flambeau_capture.values.containers.dicts import DictValue, keys_of, pairs_of
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.functions.builtin_functions import BuiltinValue
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.functions.variables import CellValue
from flambeau_capture.values.objects.attributes import assume_making, class_attribute, is_iterable
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import new_exception
from flambeau_capture.values.objects.super_objects import super_of


@opcode("KW_NAMES", until=(3, 12))
def kw_names(frame: Frame, instruction: Instruction) -> None:
    names = instruction.argval
    assert isinstance(names, tuple)
    frame.keyword_names = names


@opcode("CALL")
def call(frame: Frame, instruction: Instruction) -> None:
    names, frame.keyword_names = frame.keyword_names, ()
    _call(frame, operand(instruction), names)


@opcode("CALL_KW", since=(3, 13))
def call_kw(frame: Frame, instruction: Instruction) -> None:
    names = frame.pop().as_python()
    _call(frame, operand(instruction), names)


def _call(frame: Frame, count: int, names: tuple[str, ...]) -> None:
    args = frame.pop_many(count)
    fn, first = _callable(frame)
    kwargs = dict(zip(names, args[count - len(names) :]))
    frame.push(invoke(frame, fn, [*first, *args[: count - len(names)]], kwargs))


def _callable(frame: Frame) -> tuple[Value, list[Value]]:
    """The callable below the arguments, and its self if there is one."""
    below, above = frame.pop_many(2)
    if NULL_ABOVE:
        return below, [] if above is NULL else [above]
    return (above, []) if below is NULL else (below, [above])


@opcode("CALL_FUNCTION_EX", until=(3, 13))
def call_function_ex(frame: Frame, instruction: Instruction) -> None:
    _call_unpacked(frame, frame.pop() if operand(instruction) & 1 else NULL)


@opcode("CALL_FUNCTION_EX", since=(3, 14))
def call_function_with_keywords(frame: Frame, instruction: Instruction) -> None:
    _call_unpacked(frame, frame.pop())


def _call_unpacked(frame: Frame, keywords: Value) -> None:
    kwargs: dict[str, Value] = {}
    for key, value in () if keywords is NULL else pairs_of(frame.tx, keywords):
        name = constant_of(key)
        if not isinstance(name, str):
            frame.tx.raise_error(TypeError, "keywords must be strings")
        kwargs[name] = value
    given = frame.pop()
    fn, first = _callable(frame)
    if not is_iterable(given):
        _refuse_star(frame, fn, given)
    args = unpack(frame.tx, given, hint=given.cls is not tuple)
    frame.push(invoke(frame, fn, [*first, *args], kwargs))


def _refuse_star(frame: Frame, fn: Value, given: Value) -> None:
    """`f(*given)` where that cannot be iterated: the error names the function."""
    if not isinstance(fn, FunctionValue | ClassValue | BuiltinValue):
        raise Break("FB0014", f"* of {given.describe()} in a call of {fn.describe()}")
    named = _namesake(fn)
    evaluate(frame.tx, lambda: named(*nameless(given)))


def _namesake(fn: Value) -> Callable[..., None]:
    """A function that CPython's refusals of its arguments name as they would name another."""

    def named(*args: object, **kwargs: object) -> None: ...

    with needing("FB0014", lambda error: f"* in a call of {error}"):
        real = fn.as_python()
    for name in ("__module__", "__qualname__"):
        with contextlib.suppress(AttributeError):
            setattr(named, name, getattr(real, name))
    return named


def _called(frame: Frame, below: int, what: str) -> Callable[..., None]:
    """What names the callable, which lies below the keywords, in an error."""
    callee = frame.stack[-below - (3 if NULL_ABOVE else 2)]
    if not isinstance(callee, FunctionValue | ClassValue | BuiltinValue):
        raise Break("FB0014", f"{what} in a call of {callee.describe()}")
    return _namesake(callee)


def _refuse_twice(frame: Frame, below: int, keyword: Any) -> None:
    """A keyword is given twice."""
    named, twice = _called(frame, below, "a keyword twice"), {keyword: 0}
    evaluate(frame.tx, lambda: named(**twice, **twice))


@opcode("DICT_MERGE")
def dict_merge(frame: Frame, instruction: Instruction) -> None:
    given = frame.pop()
    target = frame.stack[-operand(instruction)]
    assert isinstance(target, DictValue)
    if keys_of(frame.tx, given) is None:
        named = _called(frame, operand(instruction), f"** of {given.describe()}")
        evaluate(frame.tx, lambda: named(**nameless(given)))
    for key, value in pairs_of(frame.tx, given):
        if target.contains(frame.tx, key):
            _refuse_twice(frame, operand(instruction), constant_of(key))
        target.store(frame.tx, key, value)


def invoke(frame: Frame, fn: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Call a value; a few built-ins look at the frame that calls them."""
    if isinstance(fn, ClassValue) and fn.python_class is super:
        return _super(frame, args)
    if isinstance(fn, BuiltinValue) and fn.fn in _FRAME_BUILTINS and not args and not kwargs:
        return _FRAME_BUILTINS[fn.fn](frame)
    return _tail_call(frame, fn, args, kwargs)


def _super(frame: Frame, args: list[Value]) -> Value:
    if args:
        receiver = args[1] if len(args) > 1 else None
        if receiver is None or not isinstance(args[0], ClassValue):
            raise Break("FB0009", "super() with one argument")
        return super_of(frame.tx, args[0], receiver)
    if not frame.code.co_argcount or "__class__" not in frame.cells:
        raise SkipFrame("super() without arguments, in a function that has none or no class")
    owner = frame.cells["__class__"].content
    first = _variable(frame, frame.code.co_varnames[0])
    if not isinstance(owner, ClassValue) or first is None:
        raise Break("FB0009", "super() without arguments outside of a method")
    return super_of(frame.tx, owner, first)


def _variable(frame: Frame, name: str) -> Value | None:
    value = frame.variable(name)
    return frame.cells[name].content if value is None and name in frame.cells else value


def _bound(frame: Frame) -> dict[str, Value]:
    """The variables that a program is shown of its frame."""
    code = frame.code
    names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    found: dict[str, Value] = {}
    for name in names:
        value = _variable(frame, name)
        if value is not None and not name.startswith("___"):  # a resume function's own
            found.setdefault(name, value)
    return found


def _locals(frame: Frame) -> Value:
    if frame.names is not None:
        return frame.names
    entries = [(Constant(name), value) for name, value in _bound(frame).items()]
    return DictValue(entries, tx=frame.tx)


def _dir(frame: Frame) -> Value:
    return ListValue([Constant(name) for name in sorted(_bound(frame))])


#: without an argument these are about the frame that calls them
_FRAME_BUILTINS: dict[object, Callable[[Frame], Value]] = {
    builtins.locals: _locals,
    builtins.globals: lambda frame: frame.scope.as_dict(),
    builtins.vars: _locals,
    builtins.dir: _dir,
}


def _tail_call(frame: Frame, fn: Value, args: Args, kwargs: Kwargs) -> Value:
    """Call `fn` from the instruction that `frame` is at; nothing is done to what it returns."""
    tx = frame.tx
    made: Value | None = None
    while True:
        if isinstance(fn, FunctionValue):
            break
        if isinstance(fn, BuiltinValue) and fn.fn is drive:
            fn, args = args[0], []
            continue
        if made is None and isinstance(fn, ClassValue) and made_by_init(fn.python_class):
            assume_making(tx, fn.python_class)
            made = new_object(tx, fn)
            fn = class_attribute(tx, made, fn.python_class, "__init__")
            continue
        instead = fn.forwards(tx, args, kwargs)
        if instead is None:
            break
        fn, args, kwargs = instead
    if not isinstance(fn, FunctionValue):
        result = tx.call(fn, args, kwargs)
    else:
        result = tx.inline(fn, args, kwargs, linked=True, instead=made)
    if made is None:
        return result
    nothing_answered(tx, result)
    return made


@opcode("MAKE_FUNCTION", until=(3, 12))
def make_function(frame: Frame, instruction: Instruction) -> None:
    code = frame.pop()
    made = _function(frame, code)
    for flag in (CLOSURE, ANNOTATIONS, KWDEFAULTS, DEFAULTS):
        if operand(instruction) & flag:
            _set(frame, made, flag, frame.pop())
    frame.push(made)


@opcode("MAKE_FUNCTION", since=(3, 13))
def make_plain_function(frame: Frame, instruction: Instruction) -> None:
    frame.push(_function(frame, frame.pop()))


@opcode("SET_FUNCTION_ATTRIBUTE", since=(3, 13))
def set_function_attribute(frame: Frame, instruction: Instruction) -> None:
    made, part = frame.pop(), frame.pop()
    assert isinstance(made, FunctionValue)
    _set(frame, made, operand(instruction), part)
    frame.push(made)


def _function(frame: Frame, code_value: Value) -> FunctionValue:
    code = code_value.as_python()
    return FunctionValue(code, frame.scope, code.co_name, code.co_qualname, frame.tx)


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
    elif flag == ANNOTATE:
        made.annotate = part
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
    alone = not level and "." not in name
    if builtins.__import__ is _IMPORT and alone and _is_nowhere(name):
        frame.tx.guard(
            ConstantSource(sys, "sys"), "CALL", _NowhereFound(name, (*sys.path,)), f"lacks {name}"
        )
        error = new_exception(ModuleNotFoundError, [Constant(f"No module named {name!r}")])
        error.fields.update(name=Constant(name))
        raise UserError(error)
    if builtins.__import__ is not _IMPORT or sys.modules.get(name) is None:
        raise Break("FB0005", f"first import of {name}, or an import of the program's own")
    frame.tx.guard(
        Attr(ConstantSource(builtins, "builtins"), "__import__"), "FUNCTION_MATCH", _IMPORT
    )
    found = _imported(frame, name)
    for part in wanted or ():
        module = f"{name}.{part}"
        if module not in sys.modules and not has_attr(frame.tx, found, part):
            if has_attr(frame.tx, found, "__path__"):  # importlib looks for the parts of a package
                raise Break("FB0005", f"first import of {module}")
    if not wanted and not level:
        found = _imported(frame, name.partition(".")[0])
    frame.push(found)


_IMPORT = builtins.__import__


_FINDERS = ("_frozen_importlib", "_frozen_importlib_external", "_distutils_hack", "six")


def _is_nowhere(name: str) -> bool:
    """Whether there is no module of a name, and nothing of the program's is requested for it."""
    if name in sys.modules or any(
        getattr(finder, "__module__", "") not in _FINDERS for finder in sys.meta_path
    ):
        return False
    return importlib.util.find_spec(name) is None


@dataclass(frozen=True)
class _NowhereFound:
    """A guard's question: a module was not imported, and is looked for where it was not found."""

    name: str
    path: tuple[str, ...]

    def __call__(self, system: Any) -> bool:
        return self.name not in system.modules and (*system.path,) == self.path


def _imported(frame: Frame, name: str) -> Value:
    """What stands in `sys.modules`, where a program may put another module."""
    where = Item(ConstantSource(sys.modules, "sys.modules"), name, "dict")
    return frame.tx.wrap(sys.modules[name], where)


def _import_from(module: Any, name: str) -> None:
    """`from module import name`, by Python: it is there for the words of its refusal."""
    exec(f"from _ import {name}", {"__builtins__": {"__import__": lambda *_: module}})


@opcode("IMPORT_FROM")
def import_from(frame: Frame, instruction: Instruction) -> None:
    module = frame.stack[-1]
    name = str(instruction.argval)
    if not has_attr(frame.tx, module, name):
        package = constant_of(frame.tx.get_attr(module, "__name__"))
        if sys.modules.get(f"{package}.{name}") is None:
            evaluate(frame.tx, _import_from, module.as_python(), name)
        frame.push(_imported(frame, f"{package}.{name}"))
        return
    frame.push(frame.tx.get_attr(module, name))


refused(
    "FB0008", "IMPORT_STAR", "PRINT_EXPR", breaks="modules, which are left alone",
)  # fmt: skip
