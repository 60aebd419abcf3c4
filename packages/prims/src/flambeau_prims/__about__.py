"""The version and the dialect, alone so that who asks for them need not import torch.

In: nothing. Out: `__version__`, `DIALECT`. Invariant: one line to change at a release.
"""

__version__ = "0.1.0"

DIALECT = 1
"""Raised when the meaning of a primitive changes; part of every cache key downstream."""
