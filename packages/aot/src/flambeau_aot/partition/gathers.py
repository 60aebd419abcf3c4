"""Values that are gathered again: in a graph with its own backward pass, what a mark says is freed.

In: a graph in which nodes carry `node.meta["gathered"]`, the name of what they gather together, and
the mark "must_recompute". Out: the same with a second gather before the first that reads a value
after something else was gathered. Invariant: where a gather stands depends on the order of the
graph alone, so that ranks with the same graph communicate in the same order.

A graph that is cut in two has them again by its partition; here forward and backward part are one
graph, in which all that was gathered would stay until the backward part has read it.
"""

from __future__ import annotations

from torch import fx

from flambeau_aot._torch_compat import communicates

GATHERED = "gathered"


def gather_again(graph: fx.Graph) -> int:
    """Put the second gathers into the graph; how many there are."""
    place = {node: at for at, node in enumerate(graph.nodes)}
    parts: dict[str, list[fx.Node]] = {}
    for node in place:
        if GATHERED in node.meta and "recompute" in node.meta:
            parts.setdefault(node.meta[GATHERED], []).append(node)
    started = {
        name: place[node]
        for name, nodes in parts.items()
        for node in nodes
        if communicates(node.target)
    }
    again = 0
    for name, nodes in parts.items():
        next_one = min((at for at in started.values() if at > started.get(name, at)), default=None)
        if next_one is None:
            continue
        own = set(nodes)
        late = [
            user
            for user in dict.fromkeys(user for node in nodes for user in node.users)
            if user not in own and user.op != "output" and place[user] > next_one
        ]
        if late:
            _copy(graph, nodes, late, min(late, key=place.__getitem__))
            again += 1
    return again


def _copy(graph: fx.Graph, nodes: list[fx.Node], late: list[fx.Node], first: fx.Node) -> None:
    """A copy of nodes before the first of those that are to read it."""
    copies: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(first):
        for node in nodes:
            copies[node] = graph.node_copy(node, lambda x: copies.get(x, x))
    for user in late:
        user.args = fx.map_arg(user.args, lambda x: copies.get(x, x))
        user.kwargs = fx.map_arg(user.kwargs, lambda x: copies.get(x, x))
