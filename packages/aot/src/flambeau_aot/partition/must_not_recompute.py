"""Values that must not be recomputed: written between forward and backward, or random.

In: a joint graph. Out: the values that a backward part may not compute again, for they are computed
from an input, or a result, that eager's autograd would not have kept.
Invariant: a compiled program keeps an input or a result for its backward part only if eager does,
so that a write to it after the call is noticed exactly where eager notices it. A value in a region
under a checkpoint is computed again from the region's inputs, as eager does.

Parameters are exempt, and so are arguments that are leaves and require grad: what is computed from
them is computed again where that is cheaper. An optimizer writes to them after the backward pass.
The same argument may have a history at another call: that is for the call to notice.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from torch import fx

from flambeau_aot.interface import Classifier
from flambeau_aot.joint.differentiate import in_backward
from flambeau_aot.joint.trace import FRESH, Joint
from flambeau_aot.partition.classify import classify
from flambeau_aot.partition.split import backward_only, readers_of
from flambeau_aot.runtime_plan import Saved, Watched

IsView = Callable[[fx.Node], bool]


def is_view_node(known: Classifier | None, node: fx.Node) -> bool:
    return node.op == "call_function" and classify(node.target, known) == "view"


def volatile_inputs(joint: Joint) -> frozenset[fx.Node]:
    """Inputs that others may write to after the call: all but parameters, other leaves that require
    grad, constants that nobody else knows, sizes, and inputs that the program itself writes to,
    which are kept as copies."""
    parameters = {
        node
        for node, known in zip(joint.primals, joint.inputs, strict=True)
        if known.static and (known.leaf or FRESH in node.meta)
    }
    written = {joint.primals[primal] for primal in joint.plan.written}
    leaves = {joint.primals[primal] for primal in joint.leaves}
    return frozenset(joint.primals) - parameters - leaves - written - frozenset(joint.symbols)


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


def relying_on_leaves(
    joint: Joint, saved: Iterable[fx.Node], known: Classifier | None = None
) -> Joint:
    """The same with a plan that names the leaves which are saved though eager would not keep them:
    a call in which one of them has a history needs another cut."""
    if not joint.leaves:
        return joint

    is_view = partial(is_view_node, known)
    read = _read_by_backward(joint, _backward_nodes(joint, backward_only(joint)), is_view)
    roots = {root_of(node, is_view) for node in saved} - read
    leaves = tuple(primal for primal in sorted(joint.leaves) if joint.primals[primal] in roots)
    return replace(joint, plan=replace(joint.plan, leaves=leaves))


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
    # a leaf at this call may have a history at another
    volatile = volatile_inputs(joint) | {joint.primals[at] for at in joint.leaves}
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
    return replace(joint, plan=replace(joint.plan, watched=tuple(watched)), kept=())


def _backward_nodes(joint: Joint, late: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes of the backward part, and of the forward part those that stand for one of them."""
    return {*late, *(node for node in joint.graph.nodes if in_backward(node))}


def _read_by_backward(joint: Joint, behind: set[fx.Node], is_view: IsView) -> set[fx.Node]:
    """What the backward part reads itself."""
    return {
        root_of(source, is_view)
        for node in behind
        for source in node.all_input_nodes
        if source not in behind
    }


def pinned(joint: Joint, late: Iterable[fx.Node], is_view: IsView) -> frozenset[fx.Node]:
    """The values of the forward part that are computed, through views, from an input or a result
    which the backward part does not read itself."""
    behind = _backward_nodes(joint, late)
    kept = _read_by_backward(joint, behind, is_view)
    unkept = (volatile_inputs(joint) | volatile_results(joint, is_view)) - kept
    return frozenset(
        node
        for node in joint.graph.nodes
        if node.op == "call_function"
        and node not in behind
        and not is_view(node)
        and any(root_of(source, is_view) in unkept for source in node.all_input_nodes)
    )
