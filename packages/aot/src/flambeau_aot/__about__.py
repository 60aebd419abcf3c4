"""The distribution's version, in one place.

Takes nothing; gives `__version__`. Invariant: this is the only line a release edits.
"""

__version__ = "0.1.0"
