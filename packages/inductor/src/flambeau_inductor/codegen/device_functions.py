"""Device functions by primitive, and the files that hold them.

In: the folders of `runtime/device_functions/pointwise`. Out: functions by name, as syntax trees.
Invariant: nothing is imported to find them, Triton least of all: kernels in C++ are written where
it is absent too.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import torch
from flambeau_prims.ops.pointwise import FLOATS, POINTWISE

from flambeau_inductor.runtime.device_functions import pointwise

PACKAGE = pointwise.__name__


def function(name: str) -> ast.FunctionDef:
    """A function by name, one that begins with an underscore too."""
    return _functions(tuple(pointwise.__path__))[name][1]


def module_of(op: str) -> str | None:
    """The module that has the body of a primitive, or None."""
    found = _functions(tuple(pointwise.__path__)).get(op)
    return found[0] if found is not None and not op.startswith("_") else None


def takes(op: str, dtype: torch.dtype) -> bool:
    """Whether a device function computes the operation on a dtype: half precision as float32, bools
    never; parts of primitives are functions of floats."""
    kind = POINTWISE[op].kind if op in POINTWISE else FLOATS
    wide = torch.float32 if dtype in FLOATS else dtype
    return wide in kind - {torch.bool} and module_of(op) is not None


def names() -> tuple[str, ...]:
    """The primitives, and parts of primitives, that have a device function."""
    every = _functions(tuple(pointwise.__path__))
    return tuple(name for name in every if not name.startswith("_"))


@cache
def _functions(folders: tuple[str, ...]) -> dict[str, tuple[str, ast.FunctionDef]]:
    found: dict[str, tuple[str, ast.FunctionDef]] = {}
    for path in sorted(path for folder in folders for path in Path(folder).glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                if node.name in found:
                    raise ValueError(f"two device functions {node.name}")
                found[node.name] = path.stem, node
    return found
