"""A program as a Python function: it allocates, launches, calls the library and frees."""

from flambeau_inductor.wrapper.source import Wrapper, generate

__all__ = ["Wrapper", "generate"]
