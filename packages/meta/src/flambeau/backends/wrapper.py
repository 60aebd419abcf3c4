"""Backends that stand around other backends.

In: a backend and what is to stand in its place. Out: the second, which looks like the first.
Invariant: what capture asks of the first is answered by the second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

Backend = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""`backend(gm, example_inputs)`: a callable that takes the inputs and returns a tuple."""

#: what capture asks a backend for, which a class may have as well as an instance
ASKED = ("observe", "supports_symbols", "own_numbers")


def in_place_of(original: Backend, backend: Backend) -> Backend:
    """A backend that stands around another one: it goes by its name, with its attributes."""
    made: Any = backend
    made.__name__ = getattr(original, "__name__", type(original).__name__)
    made.__dict__.update(getattr(original, "__dict__", {}))
    made.__dict__.update({k: getattr(original, k) for k in ASKED if hasattr(original, k)})
    return backend
