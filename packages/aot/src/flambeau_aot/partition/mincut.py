"""The values to save, as a minimum cut.

What comes in: a `Joint` and the caller's classifier. What goes out: the nodes to save.
Invariant: matrix products, library calls, random operators and everything unknown run once;
an input that nobody writes to is free to save, for it is alive anyway.

Every candidate value v becomes two vertices, v.in -> v.out, with the bytes of v as capacity:
cutting there saves v. A value whose v.in falls on the sink's side is computed in the backward
graph, and an edge source -> v.in with the cost of doing so is cut then; where it must not be,
that edge is infinite. Values that only the backward part needs are computed there for nothing.
"""

from __future__ import annotations

from torch import fx

from flambeau_aot.joint.trace import Joint
from flambeau_aot.options import Options
from flambeau_aot.partition.classify import classify as class_of
from flambeau_aot.partition.cost import recompute_cost, save_cost
from flambeau_aot.partition.flow import Edge, minimum_cut
from flambeau_aot.partition.save_all import isinstance_tensor
from flambeau_aot.partition.split import backward_only, forward_part

_SOURCE, _SINK = "source", "sink"


def min_cut_partition(joint: Joint, options: Options | None = None) -> list[fx.Node]:
    """The cheapest set of values from which the backward part can be computed."""
    classify = None if options is None else options.classify
    late = backward_only(joint)
    early = forward_part(joint) | set(joint.primals)
    read, candidates = _candidates(joint, late)
    written = {joint.primals[update.primal] for update in joint.plan.updates}
    among = set(candidates)
    edges: list[Edge] = []
    for node in candidates:
        kind = class_of(node.target, classify) if node.op == "call_function" else "leaf"
        name = node.name
        edges.append((f"{name}.in", f"{name}.out", _saving(node, kind, written)))
        if node.op == "placeholder":
            edges.append((_SOURCE, f"{name}.in", None))
        elif node in early:
            edges.append((_SOURCE, f"{name}.in", recompute_cost(node, kind)))
        elif not node.all_input_nodes:
            edges.append((_SOURCE, f"{name}.in", 0))
        for user in node.users:
            if user in among:
                edges.append((f"{name}.out", f"{user.name}.in", None))
        if node in read:
            edges.append((f"{name}.out", _SINK, None))
    _, near = minimum_cut(edges, _SOURCE, _SINK)
    return [
        node for node in candidates if f"{node.name}.in" in near and f"{node.name}.out" not in near
    ]


def _saving(node: fx.Node, kind: str, written: set[fx.Node]) -> int | None:
    if not isinstance_tensor(node):
        return None
    if node.op == "placeholder" and node not in written:
        return 0
    return save_cost(node, kind)  # type: ignore[arg-type]


def _candidates(joint: Joint, late: set[fx.Node]) -> tuple[set[fx.Node], list[fx.Node]]:
    """Values the backward part reads itself, and all that these are computed from, in order."""
    read: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    stack: list[fx.Node] = []
    for node in joint.grads:
        if node is None:
            continue
        if node in late:
            stack.append(node)
        else:
            read.add(node)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        for source in node.all_input_nodes:
            if source in late:
                stack.append(source)
            else:
                read.add(source)
    reached: set[fx.Node] = set()
    pending = list(read)
    while pending:
        node = pending.pop()
        if node not in reached:
            reached.add(node)
            pending.extend(node.all_input_nodes)
    return read, [node for node in joint.graph.nodes if node in reached]
