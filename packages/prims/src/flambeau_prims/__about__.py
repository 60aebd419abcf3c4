"""Version of the distribution, and of the dialect.

In: nothing. Out: `__version__`, `DIALECT`. Invariant: one line to change at a release.
"""

__version__ = "0.1.0"

DIALECT = 2
"""Raised when the meaning of a primitive changes; part of every cache key downstream."""
