"""Refusals of code generation.

In: a reason. Out: an exception. Invariant: its message is one sentence that names the operation or
dtype; the caller makes it a fallback, counted and named.
"""

from __future__ import annotations


class TritonUnsupported(Exception):
    """The loop uses something that Triton kernels cannot express."""


class CppUnsupported(Exception):
    """A loop that cannot be written as C++: it names the operation or dtype."""
