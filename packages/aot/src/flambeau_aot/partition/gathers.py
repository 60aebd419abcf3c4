"""Values that are gathered again: in a graph with its own backward pass, what a mark says is freed.

In: a graph in which nodes carry `node.meta["gathered"]`, the name of what they gather together, and
the mark "must_recompute". Out: the same with a second gather before the first that reads a value
after something else was gathered, or what was made of one such value alone: a cast, a transpose.
Invariant: where a gather stands depends on the order of the
graph alone, so that ranks with the same graph communicate in the same order.

A graph that is cut in two has them again by its partition; here forward and backward part are one
graph, in which all that was gathered would stay until the backward part has read it.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx

from flambeau_aot._torch_compat import communicates, is_operator
from flambeau_aot.partition.classify import is_random

GATHERED = "gathered"
AGAIN = "computed_again"
"""In the meta of a call that is made a second time on purpose: it is not merged with the first."""


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
        own = dict.fromkeys(nodes)
        late: dict[fx.Node, None] = {}
        reached = list(nodes)
        for node in reached:  # which grows
            for user in node.users:
                if user in own or user.op == "output":
                    continue
                if place[user] > next_one:
                    late[user] = None
                elif len(user.all_input_nodes) == 1 and _is_repeatable(user):
                    own[user] = None
                    reached.append(user)
        if late:
            again += 1
            first = min(late, key=place.__getitem__)
            _copy(graph, sorted(_needed(own, late), key=place.__getitem__), list(late), first)
    return again


def _is_repeatable(node: fx.Node) -> bool:
    """Whether a call computes the same again, and does nothing else."""
    called = node.target
    return is_operator(called) and not is_random(called) and not communicates(called)


def _needed(own: Iterable[fx.Node], late: Iterable[fx.Node]) -> set[fx.Node]:
    """Those of some nodes that others depend on."""
    kept, found = set(own), set[fx.Node]()
    waiting = [source for user in late for source in user.all_input_nodes if source in kept]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [source for source in node.all_input_nodes if source in kept]
    return found


def _copy(graph: fx.Graph, nodes: list[fx.Node], late: list[fx.Node], first: fx.Node) -> None:
    """A copy of nodes before the first of those that are to read it."""
    copies: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(first):
        for node in nodes:
            copies[node] = graph.node_copy(node, lambda x: copies.get(x, x))
            copies[node].meta[AGAIN] = True
    for user in late:
        user.args = fx.map_arg(user.args, lambda x: copies.get(x, x))
        user.kwargs = fx.map_arg(user.kwargs, lambda x: copies.get(x, x))
