"""Reachability in a graph.

In: nodes. Out: all that they are computed from. Invariant: a node is visited once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from torch import fx


def computed_from(
    ends: Iterable[fx.Node | None],
    inputs: Callable[[fx.Node], Iterable[fx.Node]] = lambda node: node.all_input_nodes,
    given: Collection[fx.Node] = (),
) -> set[fx.Node]:
    """These nodes and all that they are computed from, as far back as to what is given."""
    reached: set[fx.Node] = set()
    stack = [node for node in ends if node is not None and node not in given]
    while stack:
        node = stack.pop()
        if node not in reached:
            reached.add(node)
            stack.extend(source for source in inputs(node) if source not in given)
    return reached
