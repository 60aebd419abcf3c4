"""What a rewrite of a captured graph leaves behind.

In: nodes that a rewrite knows to write nothing. Out: the graph without those that nobody uses.
Invariant: only nodes that are given go. `Graph.eliminate_dead_code` also takes calls whose result
nobody uses because they write an operand, as `x.add_(1)` does.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx


def erase_unused(nodes: Iterable[fx.Node]) -> None:
    """Erase those without users, the last first."""
    given = dict.fromkeys(nodes)
    if not given:
        return
    graph = next(iter(given)).graph
    for node in reversed(graph.nodes):
        if node in given and not node.users:
            graph.erase_node(node)
