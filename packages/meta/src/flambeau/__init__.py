"""Flambeau: a compiler for unmodified PyTorch programs.

In: `flambeau.compile(fn)` around a function, method or module. Out: the same results, sooner.
Invariant: what cannot be compiled runs as it did before, and `flambeau.report` says so. A name is
loaded at its first use: `flambeau.load` imports no compiler.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flambeau.__about__ import __version__

if TYPE_CHECKING:
    from flambeau_capture import (
        CompileProfiler,
        RecompileError,
        Unsupported,
        allow_in_graph,
        disable,
        get_stance,
        graph_break,
        is_compiling,
        mark_dynamic,
        mark_static,
        reset,
        run,
        set_stance,
    )

    from flambeau import cache
    from flambeau.api import compile, optimize, report
    from flambeau.backends import list_backends, register_backend
    from flambeau.backends.autotune import Autotune
    from flambeau.bisecting import Verdict
    from flambeau.bisecting.bisect import bisect
    from flambeau.errors import (
        BadOption,
        CannotPackage,
        FlambeauError,
        FlambeauWarning,
        IncompatibleSiblings,
        Refused,
        StageError,
        UnknownBackend,
        UnknownMode,
        UnknownOption,
    )
    from flambeau.events.logs import set_logs
    from flambeau.events.records import Report
    from flambeau.events.timing import compile_times
    from flambeau.explaining import Explanation
    from flambeau.explaining.explain import explain
    from flambeau.packaging.export import Exported, export, load_export
    from flambeau.packaging.loading import Loaded, load
    from flambeau.packaging.package import package
    from flambeau.planning import Plan
    from flambeau.planning.model import calibrate
    from flambeau.planning.plan import plan
    from flambeau.tracing.trace import trace

#: the public names of each module
_NAMES = {
    "flambeau.api": "compile optimize report",
    "flambeau.backends": "list_backends register_backend",
    "flambeau.backends.autotune": "Autotune",
    "flambeau.bisecting": "Verdict bisect",
    "flambeau.errors": (
        "BadOption CannotPackage FlambeauError FlambeauWarning IncompatibleSiblings Refused "
        "StageError UnknownBackend UnknownMode UnknownOption WrongAnswer"
    ),
    "flambeau.events.logs": "set_logs",
    "flambeau.events.records": "Report",
    "flambeau.events.timing": "compile_times",
    "flambeau.explaining": "Explanation explain",
    "flambeau.packaging.export": "Exported export load_export",
    "flambeau.packaging.loading": "Loaded load",
    "flambeau.packaging.package": "package",
    "flambeau.planning": "Plan calibrate plan",
    "flambeau.tracing": "trace",
    "flambeau_capture": (
        "CompileProfiler RecompileError Unsupported allow_in_graph disable get_stance graph_break "
        "is_compiling mark_dynamic mark_static reset run set_stance"
    ),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
#: modules that run without the siblings that compile
_RUNTIME = frozenset({"flambeau.cache", "flambeau.errors", "flambeau.packaging.loading"})

__all__ = [
    "Autotune",
    "BadOption",
    "CannotPackage",
    "CompileProfiler",
    "Explanation",
    "Exported",
    "FlambeauError",
    "FlambeauWarning",
    "IncompatibleSiblings",
    "Loaded",
    "Plan",
    "RecompileError",
    "Refused",
    "Report",
    "StageError",
    "UnknownBackend",
    "UnknownMode",
    "UnknownOption",
    "Unsupported",
    "Verdict",
    "WrongAnswer",
    "__version__",
    "allow_in_graph",
    "bisect",
    "cache",
    "calibrate",
    "compile",
    "compile_times",
    "disable",
    "explain",
    "export",
    "get_stance",
    "graph_break",
    "is_compiling",
    "list_backends",
    "load",
    "load_export",
    "mark_dynamic",
    "mark_static",
    "optimize",
    "package",
    "plan",
    "register_backend",
    "report",
    "reset",
    "run",
    "set_logs",
    "set_stance",
    "trace",
]


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """No garbage collection inside: of a program with a million objects, the ten thousand that an
    import makes start a collection of all, which finds nothing, for what an import makes stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def __getattr__(name: str) -> Any:
    home = "flambeau.cache" if name == "cache" else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _without_garbage_collection():
        if home not in _RUNTIME:
            from flambeau import _versions  # it imports all of them

            _versions.check()
        module = importlib.import_module(home)
    found = module if name == "cache" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
