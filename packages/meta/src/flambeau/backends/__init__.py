"""Backends by name, the layers around them, and fallbacks.

In: a name or a callable. Out: a backend for one compiled callable.
Invariant: every built-in backend gives what eager gives, or falls back and is counted.
"""

from flambeau.backends import builtin
from flambeau.backends.registry import (
    by_name,
    is_built_in,
    list_backends,
    register_backend,
    resolve,
)

__all__ = ["builtin", "by_name", "is_built_in", "list_backends", "register_backend", "resolve"]
