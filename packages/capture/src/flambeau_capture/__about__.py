"""The version of this package, in one line."""

__version__ = "0.1.0"
