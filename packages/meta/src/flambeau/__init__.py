"""Flambeau: a compiler for unmodified PyTorch programs.

In: `flambeau.compile(fn)` around a function, method or module. Out: the same results, sooner.
Invariant: what cannot be compiled runs as it did before, and `flambeau.report` says so. A name is
loaded at its first use: `flambeau.load` imports no compiler.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flambeau.__about__ import __version__
from flambeau._collector import without_garbage_collection

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

#: the module of each public name
_HOMES = {
    "compile": "flambeau.api",
    "optimize": "flambeau.api",
    "report": "flambeau.api",
    "list_backends": "flambeau.backends",
    "register_backend": "flambeau.backends",
    "Autotune": "flambeau.backends.autotune",
    "Verdict": "flambeau.bisecting",
    "bisect": "flambeau.bisecting",
    "BadOption": "flambeau.errors",
    "CannotPackage": "flambeau.errors",
    "FlambeauError": "flambeau.errors",
    "FlambeauWarning": "flambeau.errors",
    "IncompatibleSiblings": "flambeau.errors",
    "Refused": "flambeau.errors",
    "StageError": "flambeau.errors",
    "UnknownBackend": "flambeau.errors",
    "UnknownMode": "flambeau.errors",
    "UnknownOption": "flambeau.errors",
    "WrongAnswer": "flambeau.errors",
    "Explanation": "flambeau.explaining",
    "explain": "flambeau.explaining",
    "Exported": "flambeau.packaging.export",
    "export": "flambeau.packaging.export",
    "load_export": "flambeau.packaging.export",
    "Loaded": "flambeau.packaging.loading",
    "load": "flambeau.packaging.loading",
    "set_logs": "flambeau.events.logs",
    "package": "flambeau.packaging.package",
    "Plan": "flambeau.planning",
    "calibrate": "flambeau.planning",
    "plan": "flambeau.planning",
    "Report": "flambeau.events.records",
    "compile_times": "flambeau.events.timing",
    "trace": "flambeau.tracing",
    "CompileProfiler": "flambeau_capture",
    "RecompileError": "flambeau_capture",
    "Unsupported": "flambeau_capture",
    "allow_in_graph": "flambeau_capture",
    "disable": "flambeau_capture",
    "get_stance": "flambeau_capture",
    "graph_break": "flambeau_capture",
    "is_compiling": "flambeau_capture",
    "mark_dynamic": "flambeau_capture",
    "mark_static": "flambeau_capture",
    "reset": "flambeau_capture",
    "run": "flambeau_capture",
    "set_stance": "flambeau_capture",
}
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


def __getattr__(name: str) -> Any:
    home = "flambeau.cache" if name == "cache" else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with without_garbage_collection():
        if home not in _RUNTIME:
            from flambeau import _versions  # it imports all of them

            _versions.check()
        module = importlib.import_module(home)
    found = module if name == "cache" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
