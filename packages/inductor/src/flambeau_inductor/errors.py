"""Errors of this package that callers handle.

In: nothing. Out: the exceptions. Invariant: each message is one sentence that names what was met.
"""

from __future__ import annotations

from flambeau_inductor.codegen.cpp.errors import CompilerFailed, CompilerNotFound

__all__ = ["CacheWarning", "CompilerFailed", "CompilerNotFound", "InductorError"]


class InductorError(Exception):
    """A graph that this package cannot compile; it names the node or the operation."""


class CacheWarning(UserWarning):
    """The cache folder cannot be used; kernels are built in a private folder that does not last."""
