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
    from flambeau_aot import AotError as AotError
    from flambeau_capture import BackendError as BackendError
    from flambeau_capture import Bucket as Bucket
    from flambeau_capture import CaptureError as CaptureError
    from flambeau_capture import CaptureWarning as CaptureWarning
    from flambeau_capture import CompileProfiler as CompileProfiler
    from flambeau_capture import ConstraintViolation as ConstraintViolation
    from flambeau_capture import Dim as Dim
    from flambeau_capture import ExportError as ExportError
    from flambeau_capture import PadTo as PadTo
    from flambeau_capture import RecompileError as RecompileError
    from flambeau_capture import SizePolicyError as SizePolicyError
    from flambeau_capture import Unsupported as Unsupported
    from flambeau_capture import allow_in_graph as allow_in_graph
    from flambeau_capture import assume_constant_result as assume_constant_result
    from flambeau_capture import disable as disable
    from flambeau_capture import disallow_in_graph as disallow_in_graph
    from flambeau_capture import get_stance as get_stance
    from flambeau_capture import graph_break as graph_break
    from flambeau_capture import is_compiling as is_compiling
    from flambeau_capture import mark_dynamic as mark_dynamic
    from flambeau_capture import mark_static as mark_static
    from flambeau_capture import maybe_mark_dynamic as maybe_mark_dynamic
    from flambeau_capture import reset as reset
    from flambeau_capture import run as run
    from flambeau_capture import set_stance as set_stance
    from flambeau_capture import substitute_in_graph as substitute_in_graph
    from flambeau_inductor import CacheWarning as CacheWarning
    from flambeau_inductor import CompilerFailed as CompilerFailed
    from flambeau_inductor import CompilerNotFound as CompilerNotFound
    from flambeau_inductor import InductorError as InductorError

    from flambeau import cache as cache
    from flambeau.api import compile as compile
    from flambeau.api import optimize as optimize
    from flambeau.api import report as report
    from flambeau.backends import list_backends as list_backends
    from flambeau.backends import register_backend as register_backend
    from flambeau.backends.autotune import Autotune as Autotune
    from flambeau.bisecting.bisect import bisect as bisect
    from flambeau.bisecting.trials import Verdict as Verdict
    from flambeau.errors import BadOption as BadOption
    from flambeau.errors import CannotPackage as CannotPackage
    from flambeau.errors import FlambeauError as FlambeauError
    from flambeau.errors import FlambeauWarning as FlambeauWarning
    from flambeau.errors import IncompatibleSiblings as IncompatibleSiblings
    from flambeau.errors import Refused as Refused
    from flambeau.errors import StageError as StageError
    from flambeau.errors import UnknownBackend as UnknownBackend
    from flambeau.errors import UnknownMode as UnknownMode
    from flambeau.errors import UnknownOption as UnknownOption
    from flambeau.errors import WrongAnswer as WrongAnswer
    from flambeau.events.compile_times import CompileTimes as CompileTimes
    from flambeau.events.compile_times import compile_times as compile_times
    from flambeau.events.logs import set_logs as set_logs
    from flambeau.events.records import Report as Report
    from flambeau.events.stats import Stats as Stats
    from flambeau.events.stats import stats as stats
    from flambeau.explaining.explain import Explanation as Explanation
    from flambeau.explaining.explain import explain as explain
    from flambeau.packaging.export import Exported as Exported
    from flambeau.packaging.export import export as export
    from flambeau.packaging.export import load_export as load_export
    from flambeau.packaging.loading import Loaded as Loaded
    from flambeau.packaging.loading import load as load
    from flambeau.packaging.package import package as package
    from flambeau.parallel_plan import Mesh as Mesh
    from flambeau.parallel_plan import ParallelPlan as ParallelPlan
    from flambeau.planning import Plan as Plan
    from flambeau.planning import calibrate as calibrate
    from flambeau.planning import plan as plan
    from flambeau.switching.install import install as install
    from flambeau.switching.install import uninstall as uninstall
    from flambeau.tracing.trace import trace as trace


#: the public names of each module
_NAMES = {
    "flambeau.api": "compile optimize report",
    "flambeau.backends": "list_backends register_backend",
    "flambeau.backends.autotune": "Autotune",
    "flambeau.bisecting.bisect": "bisect",
    "flambeau.bisecting.trials": "Verdict",
    "flambeau.errors": (
        "BadOption CannotPackage FlambeauError FlambeauWarning IncompatibleSiblings Refused "
        "StageError UnknownBackend UnknownMode UnknownOption WrongAnswer"
    ),
    "flambeau.events.logs": "set_logs",
    "flambeau.events.compile_times": "CompileTimes compile_times",
    "flambeau.events.records": "Report",
    "flambeau.events.stats": "Stats stats",
    "flambeau.explaining.explain": "Explanation explain",
    "flambeau.packaging.export": "Exported export load_export",
    "flambeau.packaging.loading": "Loaded load",
    "flambeau.packaging.package": "package",
    "flambeau.parallel_plan": "Mesh ParallelPlan",
    "flambeau.planning": "Plan calibrate plan",
    "flambeau.switching.install": "install uninstall",
    "flambeau.tracing.trace": "trace",
    "flambeau_aot": "AotError",
    "flambeau_capture": (
        "BackendError Bucket CaptureError CaptureWarning CompileProfiler ConstraintViolation Dim "
        "ExportError PadTo RecompileError SizePolicyError Unsupported allow_in_graph "
        "assume_constant_result disable disallow_in_graph get_stance graph_break is_compiling "
        "mark_dynamic mark_static maybe_mark_dynamic reset run set_stance substitute_in_graph"
    ),
    "flambeau_inductor": "CacheWarning CompilerFailed CompilerNotFound InductorError",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
#: modules that run without the siblings that compile
_RUNTIME = frozenset(
    {
        "flambeau.cache",
        "flambeau.errors",
        "flambeau.packaging.loading",
        "flambeau.switching.install",
    }
)

__all__ = sorted({*_HOMES, "__version__", "cache"})


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
