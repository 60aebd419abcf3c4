"""Backends by name: what `backend=` accepts and where names come from.

In: a name or a callable. Out: a backend for one compiled callable.
Invariant: every built-in backend gives what eager gives, or falls back and is counted.
"""

from flambeau.backends.registry import list_backends, register_backend, resolve

__all__ = ["list_backends", "register_backend", "resolve"]
