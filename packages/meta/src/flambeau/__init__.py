"""Flambeau: makes unmodified PyTorch programs faster.

In: `flambeau.compile(fn)` around a function, method or module. Out: the same results, sooner.
Invariant: what cannot be compiled runs as it did before, and `flambeau.report` says so.
"""

from flambeau_capture import (
    CompileProfiler,
    allow_in_graph,
    disable,
    graph_break,
    is_compiling,
    reset,
    run,
)

from flambeau import _versions
from flambeau.__about__ import __version__
from flambeau.api import compile, optimize, report
from flambeau.backends import list_backends, register_backend
from flambeau.errors import (
    FlambeauError,
    FlambeauWarning,
    IncompatibleSiblings,
    StageError,
    UnknownBackend,
    UnknownMode,
    UnknownOption,
)
from flambeau.explaining import Explanation, explain
from flambeau.logs import set_logs
from flambeau.planning import Plan, calibrate, plan
from flambeau.records import Report
from flambeau.timing import compile_times
from flambeau.tracing import trace

_versions.check()

__all__ = [
    "CompileProfiler",
    "Explanation",
    "FlambeauError",
    "FlambeauWarning",
    "IncompatibleSiblings",
    "Plan",
    "Report",
    "StageError",
    "UnknownBackend",
    "UnknownMode",
    "UnknownOption",
    "__version__",
    "allow_in_graph",
    "calibrate",
    "compile",
    "compile_times",
    "disable",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "optimize",
    "plan",
    "register_backend",
    "report",
    "reset",
    "run",
    "set_logs",
    "trace",
]
