"""Partitioners: the minimum cut, and save-everything, the tests' oracle.

In: a joint graph, or its partition problem, and which expensive operators may run twice. Out: the
nodes to save.
Invariant: random operators, and operators nobody knows, run once; so do matrix products and library
calls unless they are allowed. An input that nobody writes to is free to save; a result that eager
keeps for its backward pass all but free, except under a memory budget, as a caller may release it.
Save-everything runs no forward operator in the backward graph but what a checkpoint policy demands
for.

Every candidate value v becomes two vertices, v.in -> v.out, with the bytes of v as capacity:
cutting there saves v. A value whose v.in falls on the sink's side is computed in the backward
graph, and an edge source -> v.in with the cost of doing so is cut then; where it must not be, that
edge is infinite (max-flow min-cut: Ford and Fulkerson 1956; the solver is networkx's).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable

from torch import fx

from flambeau_aot.interface import Options
from flambeau_aot.joint.differentiate import in_backward
from flambeau_aot.joint.reach import computed_from
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.cost import WRITE_PART, recompute_cost, save_cost
from flambeau_aot.partition.memory import is_snapshot
from flambeau_aot.partition.problem import Problem, mark_of
from flambeau_aot.partition.split import backward_only, forward_part
from flambeau_aot.sizes import is_symbolic

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
    capacities: dict[tuple[Hashable, Hashable], int | None] = {}
    for start, end, capacity in edges:
        known = capacities.get((start, end), 0)
        total = None if known is None or capacity is None else known + capacity
        capacities[start, end] = total
    for (start, end), total in capacities.items():
        graph.add_edge(start, end, **({} if total is None else {"capacity": total}))
    try:
        value, (near, _) = nx.minimum_cut(graph, source, sink, flow_func=boykov_kolmogorov)
    except nx.NetworkXUnbounded as error:
        raise Unbounded("no finite cut separates source and sink") from error
    return int(value), set(near)


def save_all(joint: Joint, options: Options | None = None) -> list[fx.Node]:
    """Every value of the forward part that the backward part reads."""
    late = backward_only(joint)
    early = forward_part(joint) | set(joint.primals)

    def is_saved(node: fx.Node) -> bool:
        known = node in early or not in_backward(node)
        marked = node.op == "call_function" and mark_of(node) == "must_recompute"
        whole = isinstance_tensor(node) or is_symbolic(node.meta["val"])
        return known and node not in late and whole and not marked

    found = computed_from(
        joint.grads,
        lambda node: () if is_saved(node) else node.all_input_nodes,
        given=joint.symbols,  # both halves take them
    )
    return [node for node in joint.graph.nodes if node in found and is_saved(node)]


def isinstance_tensor(node: fx.Node) -> bool:
    """Whether a node's value is one tensor, rather than a list of them."""
    return hasattr(node.meta["val"], "shape")


_NUMBER = 64
"""What it costs to keep a size that depends on data, in bytes: it crosses as a tensor."""

_COPY = 1 << 16
"""What it costs to copy an input or a result, besides its bytes: a kernel of its own."""

_SOURCE, _SINK = "source", "sink"


def cheapest(
    problem: Problem, allowed: Collection[fx.Node] = (), banned: Collection[fx.Node] = ()
) -> list[fx.Node]:
    """The minimum cut; `allowed` may run twice though expensive, `banned` may not though cheap."""
    edges: list[Edge] = []
    among = set(problem.candidates)

    def runs_once(node: fx.Node) -> bool:
        return _again(problem, node, allowed, banned) is None

    for node in problem.candidates:
        name = node.name
        edges.append((f"{name}.in", f"{name}.out", _saving(problem, node, runs_once)))
        if node.op == "placeholder":
            edges.append((_SOURCE, f"{name}.in", None))
        elif node in problem.early or is_snapshot(node):
            edges.append((_SOURCE, f"{name}.in", _again(problem, node, allowed, banned)))
        elif not node.all_input_nodes:
            edges.append((_SOURCE, f"{name}.in", 0))
        for user in node.users:
            if user in among:
                edges.append((f"{name}.out", f"{user.name}.in", None))
        if node in problem.read:
            edges.append((f"{name}.out", _SINK, None))
    _, near = minimum_cut(edges, _SOURCE, _SINK)
    return [
        node
        for node in problem.candidates
        if f"{node.name}.in" in near and f"{node.name}.out" not in near
    ]


def _saving(problem: Problem, node: fx.Node, runs_once: Callable[[fx.Node], bool]) -> int | None:
    if node in problem.joint.symbols:
        return 0  # both halves take them
    if is_symbolic(node.meta["val"]):
        return _NUMBER
    if not isinstance_tensor(node):
        return None
    if node in problem.read_late:
        return None
    if not problem.owned(node):
        return 0
    mark = mark_of(node)
    if mark == "must_recompute" and not _is_part_of(node, runs_once):
        return None
    if mark == "must_save":
        return 0
    if node in problem.lent and mark == "":
        return 0
    cost = save_cost(node, problem.kinds[node]) + _COPY * is_snapshot(node)
    if not problem.stored(node):
        cost += int(cost * WRITE_PART)
    return cost * (4 if mark == "prefer_recompute" else 1)


def _is_part_of(node: fx.Node, runs_once: Callable[[fx.Node], bool]) -> bool:
    """Whether a value is one of several that an operator returns which may not run twice: nothing
    but the value itself can be saved then."""
    if node.target is not operator.getitem:
        return False
    source = node.all_input_nodes[0]
    return not isinstance_tensor(source) and runs_once(source)


def _again(
    problem: Problem, node: fx.Node, allowed: Collection[fx.Node], banned: Collection[fx.Node]
) -> int | None:
    mark = mark_of(node)
    if is_snapshot(node):
        return 0 if node.args[0] in problem.again_of else None
    if mark in ("must_recompute", "prefer_recompute"):
        return 0
    if problem.kinds[node] == "random":
        return None
    if mark in ("must_save", "prefer_save"):
        return None
    if node in banned:
        return None
    if node in problem.lent and mark == "":
        return None  # a write to the result is an error, as in eager
    if node in allowed:
        return 0
    return recompute_cost(node, problem.kinds[node])
