"""Copy of a captured graph.

In: a graph module. Out: another with the same parameters and buffers, and nodes of its own.
Invariant: what a backend does to the nodes of one does not show in the other.
"""

from __future__ import annotations

from torch import fx


def copied_graph(gm: fx.GraphModule) -> tuple[fx.GraphModule, dict[fx.Node, fx.Node]]:
    """The copy, and where each node went."""
    graph = fx.Graph()
    where: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(gm.graph, where)
    graph.output(output)
    return fx.GraphModule(gm, graph, class_name=type(gm).__name__), where
