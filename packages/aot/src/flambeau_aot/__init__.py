"""Ahead-of-time autograd: one trace of forward and backward, cut in two and wrapped.

What comes in: a captured graph, function or module, example inputs and graph compilers.
What goes out: a callable with the results, gradients and side effects of the original.
Invariant: this layer knows no primitive set and no code generator; both are handed to it.
"""

from flambeau_aot.__about__ import __version__
from flambeau_aot.backends import aot_eager, aot_nop, run_as_is
from flambeau_aot.compile import PASSES, compile
from flambeau_aot.draw import draw_joint
from flambeau_aot.draw_curve import draw_curve
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
from flambeau_aot.frontends import aot_function, aot_module
from flambeau_aot.info import Boxed, GraphCompiler, GraphInfo
from flambeau_aot.options import Classifier, OpClass, Options
from flambeau_aot.partition.budget import CurvePoint
from flambeau_aot.partition.mincut import memory_curve, min_cut_partition
from flambeau_aot.partition.save_all import save_all
from flambeau_aot.report import Report
from flambeau_aot.runtime.boxed import boxed
from flambeau_aot.runtime.call import Compiled
from flambeau_aot.show import show_graph, show_joint
from flambeau_aot.step import AotStep, aot_step

default_partition = save_all

__all__ = [
    "PASSES",
    "AotError",
    "AotStep",
    "Boxed",
    "Classifier",
    "Compiled",
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
    "default_partition",
    "draw_curve",
    "draw_joint",
    "export_joint",
    "memory_curve",
    "min_cut_partition",
    "run_as_is",
    "save_all",
    "show_graph",
    "show_joint",
]
