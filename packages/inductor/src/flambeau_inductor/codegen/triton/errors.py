"""Refusals of Triton code generation.

In: a reason. Out: an exception that the caller turns into a fallback, counted and named.
"""

from __future__ import annotations


class TritonUnsupported(Exception):
    """The loop uses something that Triton kernels cannot express."""
