"""Memory that others reach: written between forward and backward, where eager sees it.

In: a joint graph. Out: the graph, its forward part reading snapshots where its backward part reads
that memory; what must not be written to before a backward pass.
Invariant: the backward part reads an input or a result exactly where eager's autograd keeps that
tensor, and in the backward pass; whatever else it needs depends on no memory that others reach. So
a write after the call is noticed, and seen, where eager notices and sees it. A value in a region
under a checkpoint is computed again from the region's inputs, as eager does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import fx

from flambeau_aot.interface import Classifier
from flambeau_aot.joint.differentiate import in_backward
from flambeau_aot.joint.trace import FRESH, Joint
from flambeau_aot.partition.cost import classify
from flambeau_aot.partition.memory import SNAPSHOT
from flambeau_aot.partition.split import backward_only, readers_of
from flambeau_aot.runtime_plan import FromGraph, Saved, Watched

aten = torch.ops.aten

IsView = Callable[[fx.Node], bool]


def is_view_node(known: Classifier | None, node: fx.Node) -> bool:
    return node.op == "call_function" and classify(node.target, known) == "view"


def volatile_inputs(joint: Joint) -> frozenset[fx.Node]:
    """Inputs that others may write to after the call: all but constants that nobody else knows,
    sizes, and inputs that the program itself writes to, which are kept as copies."""
    written = {joint.primals[primal] for primal in joint.plan.written}
    known = zip(joint.primals, joint.inputs, strict=True)
    constants = {node for node, each in known if each.static and FRESH in node.meta}
    return frozenset(joint.primals) - constants - written - frozenset(joint.symbols)


def volatile_results(joint: Joint, is_view: IsView) -> frozenset[fx.Node]:
    """Values that the caller is given, or views of them, and may write to after the call."""
    roots = {root_of(node, is_view) for node in _given(joint)}
    return frozenset(node for node in roots if node.op == "call_function")


def results_kept(joint: Joint, late: Iterable[fx.Node]) -> frozenset[fx.Node]:
    """The results that the caller is given, or views of them, and that eager keeps besides: the
    operators of the backward part read them themselves."""
    behind = _backward_nodes(joint, late)
    return frozenset(
        node
        for node in _given(joint)
        if node.op == "call_function"
        and node not in behind
        and any(user in behind for user in node.users)
    )


def _given(joint: Joint) -> frozenset[fx.Node]:
    """The results that the caller is given, or views of them; not what is copied into inputs."""
    return frozenset(joint.outputs[output] for output in joint.plan.handed)


def root_of(node: fx.Node, is_view: IsView) -> fx.Node:
    """What a value is a view of, by way of any number of views."""
    while node.op == "call_function" and node.all_input_nodes and is_view(node):
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not is_view(source):
            return node  # one of several new tensors
        node = source
    return node


#: marks of values in regions under a checkpoint that eager does not keep
_COMPUTED_AGAIN = ("must_recompute", "prefer_recompute")


def watching(joint: Joint, known: Classifier | None = None) -> Joint:
    """The same with a plan that names the results, and the inputs, in whose memory the operators of
    the backward part read, or that autograd keeps unread: eager keeps that memory, whichever values
    of it are saved here.

    It is read off before the graph is simplified: what is read of a result that was written to in
    part may then be the part that was written.
    """
    if not joint.training:
        return joint

    is_view = partial(is_view_node, known)
    behind = _backward_nodes(joint, backward_only(joint))
    every = [x for node in joint.graph.nodes if node in behind for x in node.all_input_nodes]
    read = {
        source: root_of(source, is_view)
        for source in (*every, *(node for node, _ in joint.kept))
        if source not in behind and source.meta.get("recompute") not in _COMPUTED_AGAIN
    }
    roots = {
        **{Saved("output", at): joint.outputs[at] for at in sorted(joint.plan.handed)},
        **{Saved("input", item.primal): joint.outputs[item.output] for item in joint.plan.updates},
    }
    volatile = volatile_inputs(joint)
    roots |= {Saved("input", at): x for at, x in enumerate(joint.primals) if x in volatile}
    readers = dict(zip(read, readers_of(joint, list(read)), strict=True))
    for node, tangents in joint.kept:
        readers[node] = readers.get(node, frozenset()) | tangents
    watched = []
    for place, node in roots.items():
        root = root_of(node, is_view)
        sources = [source for source, known_root in read.items() if known_root is root]
        if sources:
            watched.append(Watched(place, frozenset().union(*(readers[x] for x in sources))))
    own = {*read.values()}
    kept = tuple(
        at
        for at, item in enumerate(joint.plan.results)
        if isinstance(item, FromGraph)
        and item.output in joint.plan.differentiable
        and not (item.leaf or item.view)
        and joint.outputs[item.output] in own
    )
    plan = replace(joint.plan, watched=tuple(watched), kept_results=kept)
    itself = {*joint.primals}
    return replace(
        joint,
        plan=plan,
        kept=tuple(x for x in joint.kept if x[0] in itself),
        viewed=frozenset(root for node, root in read.items() if node is not root) & itself,
    )


def _backward_nodes(joint: Joint, late: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes of the backward part, and of the forward part those that stand for one of them."""
    return {*late, *(node for node in joint.graph.nodes if in_backward(node))}


def separated(joint: Joint, known: Classifier | None = None) -> Joint:
    """The same graph, the forward part of which reads snapshots of the memory that others reach.

    The backward part reads that memory as it then is, as eager does, and what it computes again it
    computes from a snapshot, which is a value like any other: in the forward graph it is the memory
    itself, and a copy is made of one that crosses.
    """
    if not joint.training:
        return joint
    is_view = partial(is_view_node, known)
    behind = _backward_nodes(joint, backward_only(joint))
    shared = volatile_inputs(joint) | volatile_results(joint, is_view)
    first = next(node for node in joint.graph.nodes if node.op != "placeholder")
    snapshots = _Snapshots(joint.graph, first, shared, is_view)
    for node in list(joint.graph.nodes):
        if node.op != "call_function" or node in behind or is_view(node):
            continue
        if node.meta.get("recompute") not in _COMPUTED_AGAIN:
            for source in node.all_input_nodes:
                node.replace_input_with(source, snapshots.of(source))
    return joint


@dataclass
class _Snapshots:
    """What forward operators read in the place of values in `shared` memory; those of inputs stand
    before the `first` node that is none."""

    graph: fx.Graph
    first: fx.Node
    shared: Collection[fx.Node]
    is_view: IsView
    made: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def of(self, node: fx.Node) -> fx.Node:
        if root_of(node, self.is_view) not in self.shared:
            return node
        if node not in self.made:
            after = self.first.prev if node.op == "placeholder" else node
            with self.graph.inserting_after(after):
                if node in self.shared:
                    made = self.graph.call_function(aten.clone.default, (node,))
                else:
                    made = self.graph.node_copy(node, self.of)
            made.meta = {**node.meta, **({SNAPSHOT: True} if node in self.shared else {})}
            self.made[node] = made
        return self.made[node]


def read_late(joint: Joint, late: Collection[fx.Node], is_view: IsView) -> frozenset[fx.Node]:
    """What the backward part computes of memory that others reach, whatever the cotangents: eager
    computes it in the backward pass, of what that memory then holds."""
    shared = volatile_inputs(joint) | volatile_results(joint, is_view)
    found: set[fx.Node] = set()
    for node in joint.graph.nodes:
        if node in late or not in_backward(node) or is_view(node):
            continue
        if any(x in found or root_of(x, is_view) in shared for x in node.all_input_nodes):
            found.add(node)
    return frozenset(found)
