"""Graphs of primitives compiled to fused C++ and Triton kernels."""

from flambeau_inductor.__about__ import __version__
from flambeau_inductor.compile import compile
from flambeau_inductor.errors import (
    CacheWarning,
    CompilerFailed,
    CompilerNotFound,
    InductorError,
)
from flambeau_inductor.fuel import Fuel
from flambeau_inductor.options import Options
from flambeau_inductor.report import Fallback, Report
from flambeau_inductor.runtime.compiled import CompiledGraph
from flambeau_inductor.schedule.limits import Limits

__all__ = [
    "CacheWarning",
    "CompiledGraph",
    "CompilerFailed",
    "CompilerNotFound",
    "Fallback",
    "Fuel",
    "InductorError",
    "Limits",
    "Options",
    "Report",
    "__version__",
    "compile",
]
