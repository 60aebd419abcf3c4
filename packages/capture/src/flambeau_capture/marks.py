"""Marks that functions carry for capture, and the functions that are nothing but a mark.

In: Python functions. Out: `allow_in_graph`, `graph_break`, `is_compiling`. Invariant: a mark is an
attribute of the function itself; nothing is kept elsewhere.
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


def allow_in_graph(fn: F) -> F:
    """Record calls of a Python function as one node of the graph, without looking into it."""
    fn.__dict__[MARK] = IN_GRAPH
    return fn
