"""`nn.Module` internals: hooks, call, attributes; the source text of graph modules.

In: nothing. Out: torch's functions and tables. Invariant: read, never written. Tried on torch 2.11,
2.13 and 2.14.
"""

from __future__ import annotations

import linecache
import types
from typing import Any

import torch
from torch.nn.modules import module as _module

HOOK_TABLES: tuple[str, ...] = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def global_hook_tables() -> tuple[dict[int, Any], ...]:
    """The hooks that every module calls."""
    return tuple(getattr(_module, f"_global{name}") for name in HOOK_TABLES)


def calls_always() -> dict[int, Any]:
    """The hooks of every module that are called even where forward raises."""
    found: dict[int, Any] = _module._global_forward_hooks_always_called
    return found


ALWAYS_CALLED = "_forward_hooks_always_called"
"""The table of those of one module."""

MODULE_CALLS: tuple[Any, ...] = (
    torch.nn.Module.__call__,
    torch.nn.Module._wrapped_call_impl,
    torch.nn.Module._call_impl,
)


def _written_by_fx() -> types.CodeType | None:
    """The code of the `__call__` that a graph module's class is given with each `recompile`."""
    constants = torch.fx.GraphModule.recompile.__code__.co_consts
    codes = (each for each in constants if isinstance(each, types.CodeType))
    return next((code for code in codes if "call" in code.co_name), None)


_CALL_BY_FX = _written_by_fx()


def is_called_as_module(python_class: type) -> bool:
    """Whether calling an instance is what calling any module is. A graph module's class has a call
    of its own, which shows the line of generated code where that raises and does nothing else."""
    call = python_class.__call__
    if getattr(call, "__code__", None) is not _CALL_BY_FX:
        return call in MODULE_CALLS
    wrapped: Any = python_class.__dict__.get("_wrapped_call")
    if wrapped is None or wrapped.cls is not python_class or wrapped.cls_call is not None:
        return False
    (base,) = python_class.__bases__
    return is_called_as_module(base)


MODULE_GETATTR = torch.nn.Module.__getattr__
MODULE_SETATTR = torch.nn.Module.__setattr__


def forget_source(filename: str) -> None:
    """Drop the source text that torch.fx keeps of a generated function, for the debugger's sake."""
    from torch.fx import graph_module

    graph_module._loader.eval_cache.pop(filename, None)
    linecache.cache.pop(filename, None)
