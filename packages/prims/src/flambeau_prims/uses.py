"""Primitives that a decomposition may call, read from its bytecode.

In: a decomposition. Out: names of primitives. Invariant: what a function calls through names of its
module, closures and inner functions is found, whichever branch it is in; so the answer may be too
large, for arguments that no branch is taken for, but never too small for code written so.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from flambeau_prims._op import PRIMS, prim_of
from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.table import PHILOX_TABLE, TABLE, Decomposition


def prims_used(function: Decomposition) -> frozenset[str]:
    """Names of the primitives that `function` may call."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting: list[Any] = [function]
    while waiting:
        for value in _leaves(waiting.pop()):
            prim = prim_of(value)
            if prim is not None:
                found.add(prim.name)
                continue
            if isinstance(value, OpOverload):  # by way of another decomposition
                value = inspect.unwrap(TABLE[value]) if value in TABLE else None
            if isinstance(value, FunctionType) and id(value) not in seen:
                seen.add(id(value))
                if value.__module__.startswith("flambeau_prims"):
                    waiting.append(_reached(value))
    return frozenset(found)


def users(table: Mapping[OpOverload, Decomposition]) -> dict[str, list[str]]:
    """For each primitive the overloads in `table` that may lower to it, sorted."""
    result: dict[str, list[str]] = {name: [] for name in PRIMS}
    for op, function in table.items():
        for name in prims_used(function):
            result[name].append(str(op))
    return {name: sorted(ops) for name, ops in result.items()}


def _leaves(value: Any) -> Iterator[Any]:
    """What containers and partial applications hold; anything else is itself."""
    if isinstance(value, functools.partial):
        yield from _leaves((value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        if value is not TABLE and value is not PHILOX_TABLE:  # looked up by an overload, not all
            yield from _leaves(list(value.values()))
    else:
        yield value


@functools.cache
def _reached(function: FunctionType) -> tuple[Any, ...]:
    """The values that the code of `function` can get at by name."""
    return (
        *_cells(function),
        *(function.__defaults__ or ()),
        *_named(function.__code__, function.__globals__),
    )


def _cells(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue


def _named(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    owner: Any = None  # the global that the instruction before has put on the stack
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            owner = names.get(name)
            if owner is not PRIMS:
                yield owner
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if _is_ours(owner):
                yield getattr(owner, name, None)
            owner = None
        elif instruction.opname == "LOAD_CONST" and owner is PRIMS and name in PRIMS:
            yield PRIMS[name].overload
            owner = None
        elif instruction.opname not in ("CACHE", "PRECALL", "PUSH_NULL"):
            owner = None
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, names)


def _is_ours(owner: Any) -> bool:
    """Whether attributes of `owner` are functions of this package or primitives."""
    name = getattr(owner, "__name__", None) or type(owner).__module__
    return isinstance(name, str) and name.startswith("flambeau_prims")
