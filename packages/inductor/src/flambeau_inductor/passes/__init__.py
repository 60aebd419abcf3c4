"""Rewrites of a graph of primitives before it is lowered.

In: names. Out: `PASSES` and `run`. Invariant: they are loaded at their first use: the rewrites of a
captured graph, which live here too, know no primitives, and a graph from disk needs no others.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau_inductor.passes.pipeline import PASSES, run

__all__ = ["PASSES", "run"]


class _Package(ModuleType):
    """The package; `run` stays the function although a module has that name too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module("flambeau_inductor.passes.pipeline"), name)
    globals()[name] = found
    return found
