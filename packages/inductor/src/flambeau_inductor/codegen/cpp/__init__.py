"""C++ kernels from the loop IR: what to write, and how to build it."""

from flambeau_inductor.codegen.cpp.errors import CompilerFailed, CompilerNotFound, CppUnsupported
from flambeau_inductor.codegen.cpp.points import supports
from flambeau_inductor.codegen.cpp.toolchain import Toolchain, build, find_toolchain
from flambeau_inductor.codegen.cpp.unit import Entry, Source, generate

__all__ = [
    "CompilerFailed",
    "CompilerNotFound",
    "CppUnsupported",
    "Entry",
    "Source",
    "Toolchain",
    "build",
    "find_toolchain",
    "generate",
    "supports",
]
