"""Lookup of a backend by name.

In: `module:function`. Out: the function. Invariant: a name that leads nowhere is one readable
sentence.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from flambeau_prims.conformance.check import Backend


def load_backend(name: str) -> Backend:
    """The function that `module:function` names; modules of the current folder are found too.

    Raises `LookupError`.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise LookupError(f"a backend is named like mypkg.module:function, not {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"cannot load the backend {name!r}: {error}") from error
    if not callable(found):
        raise LookupError(f"{name!r} is not a function")
    backend: Backend = found
    return backend
