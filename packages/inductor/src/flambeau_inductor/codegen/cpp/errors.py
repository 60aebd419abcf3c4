"""Refusals of C++ code generation.

In: nothing. Out: the exception. Invariant: its message is one sentence that says which operation
was met.
"""

from __future__ import annotations


class CppUnsupported(Exception):
    """A loop that cannot be written as C++: it names the operation or dtype that was met."""
