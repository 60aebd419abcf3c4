"""The wrapper: a program as Python that allocates, launches and frees."""

from flambeau_inductor.wrapper.source import Wrapper, generate

__all__ = ["Wrapper", "generate"]
