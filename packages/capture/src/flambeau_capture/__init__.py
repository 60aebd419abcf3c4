"""Symbolic execution of Python bytecode (PEP 523) into FX graphs, guards and new bytecode.

In: Python functions that use torch. Out: callables that run captured graphs through a backend.
Invariant: importing a torch-free part (`flambeau_capture.bytecode`) does not import torch: names
that need it are loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from flambeau_capture.__about__ import __version__

_HOMES = {
    "compile": "api",
    "optimize": "api",
    "disable": "api",
    "run": "frame.stance",
    "set_stance": "frame.stance",
    "get_stance": "frame.stance",
    "reset": "api",
    "is_compiling": "frame.dynamism",
    "graph_break": "frame.dynamism",
    "mark_dynamic": "frame.dynamism",
    "mark_static": "frame.dynamism",
    "allow_in_graph": "extending",
    "disallow_in_graph": "extending",
    "assume_constant_result": "extending",
    "substitute_in_graph": "extending",
    "explain": "observe.explanation",
    "explain_call": "observe.explanation",
    "Explanation": "observe.explanation",
    "set_logs": "observe.logs",
    "export": "exporting",
    "Exported": "exporting",
    "TensorForm": "exporting",
    "ExportError": "errors",
    "replay": "observe.frame_replay",
    "ReplayError": "errors",
    "CompileProfiler": "observe.profile",
    "compile_times": "observe.profile",
    "list_backends": "backends",
    "register_backend": "backends",
    "Options": "options",
    "Unsupported": "breaks",
    "BackendError": "errors",
    "RecompileError": "errors",
    "CaptureWarning": "errors",
    "UnknownBackend": "errors",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
