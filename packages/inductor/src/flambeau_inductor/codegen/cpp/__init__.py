"""C++ code generation.

In: names. Out: what is public. Invariant: a name is loaded at its first use: who finds a graph on
the disk asks for the toolchain alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flambeau_inductor.codegen.cpp.emit.pointwise import supports
    from flambeau_inductor.codegen.cpp.toolchain import Toolchain, build, find_toolchain
    from flambeau_inductor.codegen.cpp.unit import TranslationUnit, UnitEntry, generate
    from flambeau_inductor.codegen.errors import CppUnsupported
    from flambeau_inductor.errors import CompilerFailed, CompilerNotFound

_HOMES = {
    "CompilerFailed": "flambeau_inductor.errors",
    "CompilerNotFound": "flambeau_inductor.errors",
    "CppUnsupported": "flambeau_inductor.codegen.errors",
    "UnitEntry": "flambeau_inductor.codegen.cpp.unit",
    "TranslationUnit": "flambeau_inductor.codegen.cpp.unit",
    "Toolchain": "flambeau_inductor.codegen.cpp.toolchain",
    "build": "flambeau_inductor.codegen.cpp.toolchain",
    "find_toolchain": "flambeau_inductor.codegen.cpp.toolchain",
    "generate": "flambeau_inductor.codegen.cpp.unit",
    "supports": "flambeau_inductor.codegen.cpp.emit.pointwise",
}

__all__ = [
    "CompilerFailed",
    "CompilerNotFound",
    "CppUnsupported",
    "UnitEntry",
    "TranslationUnit",
    "Toolchain",
    "build",
    "find_toolchain",
    "generate",
    "supports",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found
