"""The version, alone so that the build reads it without importing torch.

In: nothing. Out: `__version__`. Invariant: one line to change at a release.
"""

__version__ = "0.1.0"
