"""Pointwise functions that a library call is to apply to what it computes.

In: nothing. Out: `LibraryEpilogue`, plain data. Invariant: it speaks of nodes of one FX graph.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

Asked = tuple[str, tuple[float, ...], str]
"""The last arguments of oneDNN's operators: a function, its numbers, its form."""

NOTHING: Asked = ("none", (), "")
"""The same without a function."""


@dataclass(frozen=True, slots=True)
class LibraryEpilogue:
    """`function` is its name here, `asked` what oneDNN is told; `nodes` are what it is made of, in
    order, the last one gives its result. `seen`: the call's result, maybe in another shape."""

    function: str
    asked: Asked
    seen: fx.Node
    nodes: tuple[fx.Node, ...]
