"""What C++ generation refuses, and what building needs.

In: nothing. Out: the exceptions. Invariant: a message is one sentence that says what to do or which
operation was met.
"""

from __future__ import annotations


class CppUnsupported(Exception):
    """A loop that cannot be written as C++: it names the operation or dtype that was met."""


class CompilerNotFound(RuntimeError):
    """No C++ compiler on this machine: it names what to install."""


class CompilerFailed(RuntimeError):
    """The C++ compiler rejected a generated unit: it carries the first lines of its output."""
