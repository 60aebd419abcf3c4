"""Exceptions of this package.

In: nothing. Out: the exceptions. Invariant: each message is one sentence that names what was seen.
"""

from __future__ import annotations


class InductorError(RuntimeError):
    """A graph that this package cannot compile; it names the node or the operation."""


class CompilerNotFound(InductorError):
    """No C++ compiler on this machine: it names what to install."""


class CompilerFailed(InductorError):
    """The C++ compiler rejected a generated unit: it carries the first lines of its output."""


class CacheWarning(UserWarning):
    """The cache folder cannot be used; kernels are built in a private folder that does not last."""
