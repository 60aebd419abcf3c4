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
    from flambeau_aot.compile import *  # noqa: F403
    from flambeau_aot.display import *  # noqa: F403
    from flambeau_aot.errors import *  # noqa: F403
    from flambeau_aot.export import *  # noqa: F403
    from flambeau_aot.frontends import *  # noqa: F403
    from flambeau_aot.interface import *  # noqa: F403
    from flambeau_aot.partition.budget import *  # noqa: F403
    from flambeau_aot.partition.mincut import *  # noqa: F403
    from flambeau_aot.runtime.call import *  # noqa: F403
    from flambeau_aot.runtime.codegen import *  # noqa: F403
    from flambeau_aot.serialize.lazy_retrace import restore_graph as restore_graph
    from flambeau_aot.serialize.lazy_retrace import static_tensors as static_tensors
    from flambeau_aot.serialize.saved_program import *  # noqa: F403
    from flambeau_aot.serialize.saved_subclasses import distributed_text as distributed_text
    from flambeau_aot.training_step import *  # noqa: F403

    default_partition = save_all  # noqa: F405
    aot_nop = aot_eager  # noqa: F405

_HOMES = {
    "compile": "PASSES compile",
    "display": "draw_curve draw_joint show_graph show_joint",
    "errors": "AotError CompilerContractError DataDependent "
    "DoubleBackwardError NotYetSymbolic TraceError Unsupported",
    "export": "JointExport JointInput JointOutput export_joint",
    "frontends": "aot_eager aot_function aot_module run_as_is",
    "interface": "Boxed Classifier GraphCompiler GraphInfo OpClass Options Report",
    "partition.budget": "CurvePoint memory_curve min_cut_partition",
    "partition.mincut": "save_all",
    "runtime.call": "Compiled",
    "runtime.codegen": "boxed",
    "serialize.lazy_retrace": "restore_graph static_tensors",
    "serialize.saved_program": "CannotSave Stored decoded encoded restore stored_from",
    "serialize.saved_subclasses": "distributed_text",
    "training_step": "AotStep aot_step",
}
"""The public names, by module."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
_CALLED = {"default_partition": "save_all", "aot_nop": "aot_eager"}

__all__ = ["__version__", *sorted([*_HOME_OF, *_CALLED])]


class _Package(ModuleType):
    """The package; `compile` stays the function although a module has that name too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _HOME_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    called = _CALLED.get(name, name)
    if called not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[called]}"), called)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
