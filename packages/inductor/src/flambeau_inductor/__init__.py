"""Compiler of primitive graphs to fused C++ and Triton kernels.

In: names. Out: what is public. Invariant: a name that needs the compiler is loaded at its first
use, so that `flambeau_inductor.runtime` is had without it.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flambeau_inductor.__about__ import __version__

if TYPE_CHECKING:
    from flambeau_inductor.compile import compile
    from flambeau_inductor.errors import (
        CacheWarning,
        CompilerFailed,
        CompilerNotFound,
        InductorError,
    )
    from flambeau_inductor.options import Fuel, Options
    from flambeau_inductor.pre_grad.captured_passes import prepare
    from flambeau_inductor.pre_grad.lstm import KEPT_WHOLE, keep_recurrent
    from flambeau_inductor.runtime.artifact import Artifact, CompiledGraph, load_artifact
    from flambeau_inductor.runtime.kernel_part import CannotLoad
    from flambeau_inductor.runtime.report import Fallback, Report
    from flambeau_inductor.scheduling_limits import Limits

_HOMES = {
    name: module
    for module, names in {
        "compile": "compile",
        "errors": "CacheWarning CompilerFailed CompilerNotFound InductorError",
        "scheduling_limits": "Limits",
        "options": "Fuel Options",
        "pre_grad.lstm": "KEPT_WHOLE keep_recurrent",
        "pre_grad.captured_passes": "prepare",
        "runtime.artifact": "Artifact CannotLoad CompiledGraph load_artifact",
        "runtime.report": "Fallback Report",
    }.items()
    for name in names.split()
}

__all__ = [
    "KEPT_WHOLE", "Artifact", "CacheWarning", "CannotLoad", "CompiledGraph", "CompilerFailed",
    "CompilerNotFound", "Fallback", "Fuel", "InductorError", "Limits", "Options", "Report",
    "__version__", "compile", "keep_recurrent", "load_artifact", "prepare",
]  # fmt: skip


class _Package(ModuleType):
    """The package; `compile` stays the function although a module has that name too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
