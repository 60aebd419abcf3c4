"""Maximum flow and minimum cut of a network of numbers.

What comes in: edges with whole capacities, a source and a sink; no torch.
What goes out: the vertices on the source's side of a minimum cut.
Invariant: the cut's capacity is the maximum flow, and no edge of infinite capacity crosses it.

Max-flow min-cut: Ford and Fulkerson 1956; the solver is networkx's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

Edge = tuple[Hashable, Hashable, int | None]
"""From, to, capacity; None is infinite."""


class Unbounded(ValueError):
    """Source and sink are joined by edges of infinite capacity only."""


def minimum_cut(
    edges: Iterable[Edge], source: Hashable, sink: Hashable
) -> tuple[int, set[Hashable]]:
    """The cut's capacity and the vertices on the source's side.

    Parallel edges add up. A network in which nothing reaches the sink has a cut of 0.
    """
    # inference never cuts, and its first call would wait for these imports
    import networkx as nx
    from networkx.algorithms.flow import boykov_kolmogorov

    graph = nx.DiGraph()
    graph.add_nodes_from((source, sink))
    for start, end, capacity in edges:
        if graph.has_edge(start, end):
            present = graph[start][end].get("capacity")
            if present is None:
                continue
            if capacity is None:
                del graph[start][end]["capacity"]
            else:
                graph[start][end]["capacity"] = present + capacity
        elif capacity is None:
            graph.add_edge(start, end)
        else:
            graph.add_edge(start, end, capacity=capacity)
    try:
        value, (near, _) = nx.minimum_cut(graph, source, sink, flow_func=boykov_kolmogorov)
    except nx.NetworkXUnbounded as error:
        raise Unbounded("no finite cut separates source and sink") from error
    return int(value), set(near)
