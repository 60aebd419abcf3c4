"""Copying and pickling of compiled callables.

In: what `compile` made, the target it was made from, the arguments. Out: the same, such that
`copy.deepcopy` and `pickle` give a compiled callable of the copied target. Invariant: compiled code
is never copied: a copy compiles when it is first called, from the disk where it can.

A function that goes by its own name in its module (a decorated one) is pickled by that name; any
other as the function below it and the arguments of `compile`. A module is pickled with the module
below it, so reading it needs this package and the module's own.
"""

from __future__ import annotations

import copy
import copyreg
import sys
from collections.abc import Mapping
from typing import Any

import torch
from flambeau_capture.api import NOTES

RECIPE = "__flambeau_recipe__"
TARGET = "__flambeau_target__"


def make_copyable(compiled: Any, target: Any, recipe: Mapping[str, object]) -> None:
    """Let `compiled` be copied and pickled as `compile(target, **recipe)`."""
    known = dict(recipe)
    if not isinstance(compiled, torch.nn.Module):
        compiled.__dict__[RECIPE], compiled.__dict__[TARGET] = known, target
        copyreg.pickle(type(compiled), _reduce)
        return

    notes: Any = object.__getattribute__(compiled, NOTES)
    notes.update({RECIPE: known, TARGET: target})
    kind: Any = type(compiled)  # a class of its own
    kind.__reduce_ex__, kind.__deepcopy__ = _reduce_module, _copy_module


def _reduce_module(compiled: Any, protocol: Any) -> Any:
    notes = object.__getattribute__(compiled, NOTES)
    return compiled_again, (notes[TARGET], notes[RECIPE])


def _copy_module(compiled: Any, memo: dict[int, Any]) -> Any:
    notes = object.__getattribute__(compiled, NOTES)
    return compiled_again(copy.deepcopy(notes[TARGET], memo), notes[RECIPE])


def compiled_again(target: Any, recipe: Mapping[str, Any]) -> Any:
    """`compile(target, **recipe)`: what copies and pickles are made by."""
    from flambeau.api import compile  # which makes its results copyable by this module

    return compile(target, **recipe)


def _reduce(compiled: Any) -> Any:
    """A global name, or the target and the recipe."""
    name = str(getattr(compiled, "__qualname__", ""))
    found: Any = sys.modules.get(str(getattr(compiled, "__module__", "")))
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is compiled:
        return name
    if TARGET not in compiled.__dict__:
        raise TypeError(f"{compiled!r} was not made by flambeau.compile: it cannot be copied")
    return compiled_again, (compiled.__dict__[TARGET], compiled.__dict__[RECIPE])
