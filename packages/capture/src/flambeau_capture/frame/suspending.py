"""Compiled functions whose frames run in pieces: coroutines and generators.

In: such a function, and the cache that its compiled callable has. Out: one that does the same, in
which what is computed between two suspensions is a call of a compiled function. Invariant: the
frame that suspends is the program's own; capture sees functions alone.
"""

from __future__ import annotations

import functools
from types import CodeType, FunctionType
from typing import Any

from flambeau_capture._native import FrameCache, compiled
from flambeau_capture.bytecode.assemble import assemble
from flambeau_capture.bytecode.decode import CodeBody, UnknownOpcode
from flambeau_capture.bytecode.outlining import code_of, find_parts, outlined
from flambeau_capture.bytecode.pools import AssembleError
from flambeau_capture.bytecode.stack import GENERATOR_LIKE, StackError
from flambeau_capture.emit.resume import VARIADIC, CannotResume, as_function


def in_parts(function: FunctionType, cache: FrameCache) -> FunctionType | None:
    """The same function with compiled parts; None where it has none that can be taken out."""
    code, namespace = function.__code__, function.__globals__
    try:
        made_code = _rewritten(code, namespace, cache)
    except (AssembleError, CannotResume, StackError, UnknownOpcode):
        return None
    if made_code is None:
        return None
    made = FunctionType(
        made_code, namespace, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(made, function)
    return made


def _rewritten(code: CodeType, namespace: dict[str, Any], cache: FrameCache) -> CodeType | None:
    body, parts = find_parts(code)
    calls: list[tuple[Any, object]] = []
    for part in parts:
        own = code_of(part, body, functools.partial(_plain, code))
        if own.co_freevars:
            calls.append((part, functools.partial(_with_cells, own, namespace, cache)))
        else:
            calls.append((part, compiled(FunctionType(own, namespace, own.co_name), cache)))
    return assemble(outlined(body, calls)) if calls else None


def _plain(code: CodeType, body: CodeBody, given: tuple[str, ...]) -> CodeType:
    return as_function(body, given, code.co_name, code.co_qualname, VARIADIC | GENERATOR_LIKE)


def _with_cells(
    code: CodeType, namespace: dict[str, Any], cache: FrameCache, cells: tuple[Any, ...]
) -> Any:
    """Called by the rewritten code."""
    return compiled(FunctionType(code, namespace, code.co_name, None, cells), cache)
