"""Reads of the program's state by what autograd runs later: of what is the same by then.

In: a value that a hook or a function's derivative has loaded, and from where. Out: nothing, or a
break. Invariant: such a body is captured where it is handed over, as if it were run there; so it
may read code, objects, what autograd keeps for it, and variables that nothing sets again, but no
attribute and no item that the program may have changed when the body runs.
"""

from __future__ import annotations

import collections
import functools
import inspect
from collections.abc import Collection, Iterator
from types import CodeType
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.decode import argument_count, decode
from flambeau_capture.bytecode.flow import set_again
from flambeau_capture.bytecode.instruction import Instruction
from flambeau_capture.interp.frame import Frame
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import is_mutable
from flambeau_capture.values.functions.methods import BuiltinKind
from flambeau_capture.values.functions.variables import CellValue, GlobalsScope
from flambeau_capture.values.objects.attributes import Instance
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.opaque import PyModuleValue
from flambeau_capture.values.registry import trusted_class, trusted_name
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue

_SETS_GLOBAL = frozenset({"STORE_NAME", "STORE_GLOBAL", "DELETE_NAME", "DELETE_GLOBAL"})
_SETS_CELL = frozenset({"STORE_DEREF", "DELETE_DEREF"})

unguarded(
    "global variables that a hook, or the derivative of a `torch.autograd.Function`, reads",
    "they are read, and guarded, where the forward pass runs; those that code of their module sets "
    "again are left to Python",
)


def must_stay_global(frame: Frame, name: str, value: Value) -> None:
    """A global variable is code, or set once by the code of its module."""
    namespace = frame.scope.namespace
    if trusted_name(str(namespace.get("__name__"))) or not (_is_data(value) or _is_new(value)):
        return
    if not isinstance(value, Constant) or name not in _set_once(frame.scope):
        _break(frame.tx, f"the global variable {name!r}")


def must_stay_in_cell(frame: Frame, name: str, cell: CellValue) -> None:
    """A variable of an enclosing function is set once; what it holds is no container."""
    value = cell.content
    assert value is not None
    if trusted_name(str(frame.scope.namespace.get("__name__"))):
        return
    if is_mutable(value) or _is_new(value):
        _break(frame.tx, f"{value.describe()} in the variable {name!r}")
    if not (_is_data(value) or isinstance(value, Instance)):
        return
    owner = cell.owner or _owner(frame.code, frame.scope.namespace, name)
    if owner is None or _sets_cell_again(owner, name):
        _break(frame.tx, f"the variable {name!r}, which may be set again")


def must_stay_attribute(tx: Tracer, obj: Value, name: str, found: Value) -> None:
    """An attribute is no data of an object, a class or a module of the program."""
    if not _is_data(found):
        return
    if isinstance(obj, TensorValue):
        stays = name not in ("grad", "_grad") and name not in obj.attributes
    elif isinstance(obj, PyModuleValue):
        stays = trusted_name(obj.module.__name__)
    elif isinstance(obj, ClassValue):
        stays = trusted_class(obj.python_class)
    else:
        stays = not isinstance(obj, Instance) or obj.source is None
    if not stays:
        _break(tx, f"attribute {name!r} of {obj.describe()}")


def _break(tx: Tracer, what: str) -> None:
    tx.heap.changed()
    raise Break("FB0025", f"{tx.run_later} reads {what}: it may be another when that is run")


def _is_data(value: Value) -> bool:
    kinds = (Constant, TensorValue, SymbolValue, BuiltinKind)
    return isinstance(value, kinds) or is_mutable(value)


def _is_new(value: Value) -> bool:
    """Whether a value is an object that the captured function makes, and may go on to change."""
    return isinstance(value, Instance) and value.source is None


@functools.cache
def _sets_cell_again(owner: CodeType, name: str) -> bool:
    body = decode(owner)
    stores = [x for x in body.instructions if x.opname in _SETS_CELL and x.argval == name]
    given = name in owner.co_varnames[: argument_count(owner)]
    if set_again(body, stores) or (given and stores):
        return True
    return any(_sets_in(each, name) for each in _inner(owner) if name in each.co_freevars)


def _sets_in(code: CodeType, name: str) -> bool:
    own = any(x.opname in _SETS_CELL and x.argval == name for x in decode(code).instructions)
    return own or any(_sets_in(each, name) for each in _inner(code) if name in each.co_freevars)


def _inner(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _owner(code: CodeType, namespace: dict[str, Any], name: str) -> CodeType | None:
    """The code whose variable an inner function's free variable is, found by its name."""
    first, *rest = code.co_qualname.split(".<locals>.")
    found: Any = namespace.get(first.partition(".")[0])
    for part in first.split(".")[1:]:
        found = inspect.getattr_static(found, part, None)
    found = inspect.unwrap(getattr(found, "__func__", found)) if callable(found) else None
    chain: list[CodeType] = [found.__code__] if hasattr(found, "__code__") else []
    for part in rest:
        inside = [x for outer in chain[-1:] for x in _inner(outer) if x.co_name == part]
        chain += [code] if code in inside else inside[:1]
    if not chain or chain[-1] is not code:
        return None
    return next((each for each in reversed(chain) if name in each.co_cellvars), None)


def _set_once(scope: GlobalsScope) -> Collection[str]:
    """The global variables that code of their module sets once; none where it is not to be had."""
    if scope.set_once is None:
        scope.set_once = _found_set_once(scope.namespace)
    return scope.set_once


def _found_set_once(namespace: dict[str, Any]) -> Collection[str]:
    loader: Any = namespace.get("__loader__")
    try:
        code = loader.get_code(namespace["__name__"])
    except (AttributeError, ImportError, KeyError, OSError, SyntaxError):
        return ()
    if code is None:
        return ()
    body = decode(code)
    stores: dict[str, list[Instruction]] = collections.defaultdict(list)
    for instruction in body.instructions:
        if instruction.opname in _SETS_GLOBAL:
            stores[str(instruction.argval)].append(instruction)
    inner = {name for each in _inner(code) for name in _globals_set(each)}
    return {name for name, own in stores.items() if name not in inner and not set_again(body, own)}


def _globals_set(code: CodeType) -> Iterator[str]:
    for instruction in decode(code).instructions:
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield str(instruction.argval)
    for each in _inner(code):
        yield from _globals_set(each)
