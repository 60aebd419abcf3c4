"""Torch's compile stack, as far as the program has loaded it.

In: the names that the other modules of the folder have for its modules. Out: a module, or None.
Invariant: this is the one module of the package that names the stack, and it imports none of it
unasked.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

#: modules of the stack, as the other modules of the folder call them
STACK: Mapping[str, str] = {
    "compiler config": "torch.compiler.config",
    "dynamo": "torch._dynamo",
    "dynamo config": "torch._dynamo.config",
    "inductor": "torch._inductor",
    "inductor config": "torch._inductor.config",
    "cuda graphs": "torch._inductor.cudagraph_trees",
    "exported programs": "torch.export.exported_program",
}


def loaded(name: str) -> Any:
    """A module of `STACK`, if the program has it; else None."""
    return sys.modules.get(STACK[name])


def knows_option(name: str) -> bool:
    """Whether torch's inductor has an option of this name, which the program gives to it: torch's
    own list says, which loads it, as the program itself would have."""
    return name in importlib.import_module(STACK["inductor"]).list_options()


def module_of_program(fn: Any) -> Any:
    """The module of a program that torch has exported; anything else is itself."""
    exported = loaded("exported programs")
    return fn.module() if exported and isinstance(fn, exported.ExportedProgram) else fn
