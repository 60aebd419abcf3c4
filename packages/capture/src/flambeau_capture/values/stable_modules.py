"""Modules taken to be stable: torch, the standard library, capture.

In: modules, classes, functions. Out: whether their attributes need guards. Invariant: nothing of
the user's or of a third party's package is trusted.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from flambeau_capture.observe.unguarded import unguarded

_TRUSTED = frozenset({"torch", "flambeau_capture", "builtins"}) | frozenset(
    name for name in sys.stdlib_module_names if name != "__main__"
)


unguarded(
    "attributes of classes and functions of torch, of Python's own modules and of capture",
    "nobody replaces them; `forward`, `__call__` and `_call_impl` of a module's class, and every "
    "attribute of a module that is no module, no dtype and no layout, are guarded all the same",
)


@functools.cache
def trusted_name(module: str) -> bool:
    return module.partition(".")[0] in _TRUSTED


def trusted_class(python_class: type) -> bool:
    return trusted_name(getattr(python_class, "__module__", None) or "")


def trusted_callable(fn: Any) -> bool:
    return trusted_name(getattr(fn, "__module__", None) or "")
