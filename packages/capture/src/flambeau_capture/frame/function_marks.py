"""Marks of functions: what the program says of how they are captured.

In: nothing. Out: the attribute that holds a mark, its values, and two functions that capture knows.
"""

from __future__ import annotations

MARK = "__flambeau__"
DISABLED, IN_GRAPH, BREAK, REST = "disabled", "in graph", "break", "rest of a frame"


def is_compiling() -> bool:
    """False when run; code under capture sees True."""
    return False


def graph_break() -> None:
    """End the graph here."""


graph_break.__dict__[MARK] = BREAK
