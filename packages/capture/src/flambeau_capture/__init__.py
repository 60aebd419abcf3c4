"""Symbolic execution of Python bytecode (PEP 523) into FX graphs, guards and new bytecode.

In: Python functions that use torch. Out: callables that run captured graphs through a backend.
Invariant: importing a torch-free part (`flambeau_capture.bytecode`) does not import torch: names
that need it are loaded at first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from flambeau_capture.__about__ import __version__

_NAMES = {
    "api": "compile optimize disable reset",
    "frame.stance": "run set_stance get_stance",
    "frame.function_marks": "is_compiling graph_break",
    "frame.sizes.marks": "mark_dynamic mark_static maybe_mark_dynamic",
    "frame.sizes.policies": "Bucket PadTo",
    "extending": "allow_in_graph disallow_in_graph assume_constant_result substitute_in_graph",
    "observe.explanation": "explain explain_call Explanation",
    "observe.logs": "set_logs",
    "exports.declared_shapes": "Dim",
    "exports.exporting": "export Exported",
    "exports.tensor_forms": "TensorForm",
    "observe.frame_replay": "replay",
    "observe.profile": "CompileProfiler compile_times",
    "backends": "list_backends register_backend",
    "options": "Options",
    "breaks": "Unsupported",
    "errors": (
        "BackendError CaptureError CaptureWarning ConstraintViolation ExportError "
        "RecompileError ReplayError SizePolicyError UnknownBackend"
    ),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
