"""Ahead-of-time autograd: forward and backward traced once, partitioned, compiled.

In: a captured graph, function or module, example inputs and graph compilers. Out: a callable with
the results, gradients and side effects of the original.
Invariant: this layer knows no primitive set and no code generator; both are handed to it. A name is
loaded at its first use, so that what a restored program runs on is had without the tracer.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from flambeau_aot.__about__ import __version__

if TYPE_CHECKING:
    from flambeau_aot.compile import PASSES, compile
    from flambeau_aot.display.pictures import draw_curve, draw_joint
    from flambeau_aot.display.text import show_graph, show_joint
    from flambeau_aot.errors import (
        AotError,
        CompilerContractError,
        DataDependent,
        DoubleBackwardError,
        NotYetSymbolic,
        TraceError,
        Unsupported,
    )
    from flambeau_aot.export import JointExport, JointInput, JointOutput, export_joint
    from flambeau_aot.frontends import aot_eager, aot_function, aot_module, aot_nop, run_as_is
    from flambeau_aot.interface import (
        Boxed,
        Classifier,
        GraphCompiler,
        GraphInfo,
        OpClass,
        Options,
        Report,
    )
    from flambeau_aot.partition.budget import CurvePoint
    from flambeau_aot.partition.mincut import memory_curve, min_cut_partition, save_all
    from flambeau_aot.runtime.call import Compiled
    from flambeau_aot.runtime.codegen import boxed
    from flambeau_aot.serialize.lazy_retrace import restore_graph, static_tensors
    from flambeau_aot.serialize.saved_program import (
        CannotSave,
        Stored,
        decoded,
        encoded,
        restore,
        stored_from,
    )
    from flambeau_aot.step import AotStep, aot_step

    default_partition = save_all

#: the module of each public name, and what it is called there where that differs
_HOMES = {
    "aot_eager": "frontends",
    "aot_nop": "frontends",
    "run_as_is": "frontends",
    "PASSES": "compile",
    "compile": "compile",
    "draw_joint": "display.pictures",
    "draw_curve": "display.pictures",
    "AotError": "errors",
    "CompilerContractError": "errors",
    "DataDependent": "errors",
    "DoubleBackwardError": "errors",
    "NotYetSymbolic": "errors",
    "TraceError": "errors",
    "Unsupported": "errors",
    "JointExport": "export",
    "JointInput": "export",
    "JointOutput": "export",
    "export_joint": "export",
    "aot_function": "frontends",
    "aot_module": "frontends",
    "Boxed": "interface",
    "GraphCompiler": "interface",
    "GraphInfo": "interface",
    "Classifier": "interface",
    "OpClass": "interface",
    "Options": "interface",
    "CurvePoint": "partition.budget",
    "memory_curve": "partition.mincut",
    "min_cut_partition": "partition.mincut",
    "save_all": "partition.mincut",
    "Report": "interface",
    "boxed": "runtime.codegen",
    "Compiled": "runtime.call",
    "show_graph": "display.text",
    "show_joint": "display.text",
    "AotStep": "step",
    "aot_step": "step",
    "restore_graph": "serialize.lazy_retrace",
    "static_tensors": "serialize.lazy_retrace",
    "encoded": "serialize.saved_program",
    "decoded": "serialize.saved_program",
    "CannotSave": "serialize.saved_program",
    "Stored": "serialize.saved_program",
    "restore": "serialize.saved_program",
    "stored_from": "serialize.saved_program",
    "default_partition": "partition.mincut",
}
_CALLED = {"default_partition": "save_all"}

__all__ = [
    "PASSES",
    "AotError",
    "AotStep",
    "Boxed",
    "Classifier",
    "Compiled",
    "CannotSave",
    "CompilerContractError",
    "CurvePoint",
    "DataDependent",
    "DoubleBackwardError",
    "GraphCompiler",
    "GraphInfo",
    "JointExport",
    "JointInput",
    "JointOutput",
    "NotYetSymbolic",
    "OpClass",
    "Options",
    "Report",
    "Stored",
    "TraceError",
    "Unsupported",
    "__version__",
    "aot_eager",
    "aot_function",
    "aot_module",
    "aot_nop",
    "aot_step",
    "boxed",
    "compile",
    "decoded",
    "default_partition",
    "draw_curve",
    "draw_joint",
    "encoded",
    "export_joint",
    "memory_curve",
    "min_cut_partition",
    "restore",
    "restore_graph",
    "run_as_is",
    "save_all",
    "show_graph",
    "show_joint",
    "static_tensors",
    "stored_from",
]


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
    module = importlib.import_module(f"{__name__}.{home}")
    found = getattr(module, _CALLED.get(name, name))
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
