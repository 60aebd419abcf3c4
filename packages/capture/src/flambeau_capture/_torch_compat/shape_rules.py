"""Shape rules of torch, without loading torch's own compiler.

In: whether it is loaded. Out: nothing. Invariant: a rule runs as torch has written it; from the
moment the compiler is loaded it is wrapped as torch wraps it. Many are wrapped so that the
compiler, which the first call of each would load for that, leaves them alone. Tried on torch 2.13.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

from torch._compile import _disable_dynamo

PLACES = ("torch._refs", "torch._decomp", "torch._meta_registrations")
"""Where torch keeps them; read where torch has loaded them."""
UNWATCHED = "__dynamo_disable"
"""Where torch keeps, on a function, the form of it that its compiler leaves alone."""


def leave_unwatched(is_loaded: Callable[[], bool]) -> None:
    """Let the rules run as they are while the compiler is not loaded."""
    wrapping = _disable_dynamo(lambda: None).__code__
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(PLACES)]
    found = [rule for module in modules for rule in vars(module).values()]
    seen: set[int] = set()
    while found:
        rule = found.pop()
        if not isinstance(rule, FunctionType) or id(rule) in seen:
            continue
        seen.add(id(rule))
        inside = [cell.cell_contents for cell in rule.__closure__ or () if _filled(cell)]
        found += inside
        if rule.__code__ is wrapping:
            for wrapped in inside:
                if isinstance(wrapped, FunctionType):
                    wrapped.__dict__.setdefault(UNWATCHED, _unwatched(rule, wrapped, is_loaded))


def _filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises where nothing has been put
    except ValueError:
        return False
    return True


def _unwatched(
    rule: Callable[..., Any], wrapped: Any, is_loaded: Callable[[], bool]
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not is_loaded():
            return wrapped(*args, **kwargs)
        if wrapped.__dict__.get(UNWATCHED) is run:
            wrapped.__dict__.pop(UNWATCHED, None)  # torch puts its own there
        return rule(*args, **kwargs)

    run.__dict__["_torchdynamo_disable"] = True  # should the compiler look at it before that
    return run
