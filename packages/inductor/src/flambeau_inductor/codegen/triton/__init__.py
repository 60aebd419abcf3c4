"""Triton code generation.

In: `Loop`s. Out: one Python module of `@triton.jit` functions with what launching each takes.
Invariant: nothing here imports triton, so that code can be generated where it is absent.
"""

from __future__ import annotations

from flambeau_inductor.codegen.errors import TritonUnsupported
from flambeau_inductor.codegen.triton.kernel import TritonKernel, generate
from flambeau_inductor.codegen.triton.module import TritonSource, generate_module
from flambeau_inductor.codegen.triton.pointwise import supports
from flambeau_inductor.codegen.triton.tiling import Dimension, Tiling, choose

__all__ = [
    "Dimension",
    "Tiling",
    "TritonKernel",
    "TritonSource",
    "TritonUnsupported",
    "choose",
    "generate",
    "generate_module",
    "supports",
]
