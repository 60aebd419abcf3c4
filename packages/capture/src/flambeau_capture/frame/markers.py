"""Markers on functions, and functions that only mark.

In: Python functions and tensors. Out: `graph_break`, `is_compiling`, `mark_dynamic`,
`mark_static`. Invariant: a mark is an attribute of the function or tensor itself;
nothing is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__flambeau__"
DISABLED, IN_GRAPH, BREAK = "disabled", "in graph", "break"


def is_compiling() -> bool:
    """False when run; code under capture sees True."""
    return False


def graph_break() -> None:
    """End the graph here."""


graph_break.__dict__[MARK] = BREAK


_DYNAMIC, _STATIC = "_flambeau_dynamic_dims", "_flambeau_static_dims"


def mark_dynamic(
    tensor: Any, dim: int | tuple[int, ...], min: int | None = None, max: int | None = None
) -> None:
    """Leave a dimension (or several) of a tensor open when code is made for it.

    min, max: bounds, both included, outside of which other code is made. Sizes 0 and 1 are never
    left open.
    """
    if min is not None and max is not None and min > max:
        raise ValueError(f"min {min} is greater than max {max}")
    marks = {**dynamic_dims(tensor)}
    for one in _dims(tensor, dim):
        marks[one] = (min, max)
    setattr(tensor, _DYNAMIC, marks)
    setattr(tensor, _STATIC, static_dims(tensor) - set(marks))


def mark_static(tensor: Any, dim: int | tuple[int, ...] | None = None) -> None:
    """Keep a dimension of a tensor (None: all of them) a constant of its graphs."""
    every = tuple(range(tensor.dim()))
    marked = set(every if dim is None else _dims(tensor, dim))
    setattr(tensor, _STATIC, static_dims(tensor) | marked)
    kept = {one: bounds for one, bounds in dynamic_dims(tensor).items() if one not in marked}
    setattr(tensor, _DYNAMIC, kept)


def _dims(tensor: Any, dim: int | tuple[int, ...]) -> tuple[int, ...]:
    rank = tensor.dim()
    found = (dim,) if isinstance(dim, int) else tuple(dim)
    for one in found:
        if not -rank <= one < rank:
            raise IndexError(f"dimension {one} of a tensor with {rank} dimensions")
    return tuple(one % rank for one in found)


def dynamic_dims(tensor: Any) -> dict[int, tuple[int | None, int | None]]:
    """The marked dimensions and their bounds."""
    return dict(getattr(tensor, _DYNAMIC, ()))


def static_dims(tensor: Any) -> frozenset[int]:
    return frozenset(getattr(tensor, _STATIC, ()))
