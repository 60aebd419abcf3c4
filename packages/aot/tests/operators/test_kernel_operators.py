"""Operators that call eager's kernels: who runs a saved program has them, too."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil

from flambeau_aot import eager_kernels
from flambeau_aot.eager_kernels.kernel_operators import define_pair
from flambeau_aot.serialize import saved_program


def test_a_saved_program_finds_the_operators_that_are_defined() -> None:
    """Each module that defines operators is imported by what calls them without a trace."""
    names = {
        name
        for _, name, _ in pkgutil.iter_modules(eager_kernels.__path__, f"{eager_kernels.__name__}.")
        if getattr(importlib.import_module(name), "define_pair", None) is not None
    } - {define_pair.__module__}
    assert names
    source = inspect.getsource(saved_program)
    imported = {
        alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert names <= imported
