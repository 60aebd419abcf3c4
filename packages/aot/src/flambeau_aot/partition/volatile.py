"""What may be written to between forward and backward, and what must not be read again.

What comes in: a joint graph. What goes out: the values that a backward part may not compute again,
for they are computed from an input, or a result, that eager's autograd would not have kept.
Invariant: a compiled program keeps an input or a result for its backward part only if eager does,
so that a write to it after the call is noticed exactly where eager notices it. A value in a region
under a checkpoint is computed again from the region's inputs, as eager does.

Parameters are exempt: what is computed from them alone, as their casts, is computed again where
that is cheaper. An optimizer writes to them after the backward pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable

from torch import fx

from flambeau_aot.joint.differentiate import in_backward
from flambeau_aot.joint.trace import FRESH, Joint
from flambeau_aot.plan import FromGraph, ViewOfOutput

IsView = Callable[[fx.Node], bool]


def volatile_inputs(joint: Joint) -> frozenset[fx.Node]:
    """Inputs that others may write to after the call: all but parameters, constants that nobody
    else knows, sizes, and inputs that the program itself writes to, which are kept as copies."""
    parameters = {
        node
        for node, tensor in zip(joint.primals, joint.static, strict=False)
        if (tensor.requires_grad and tensor.is_leaf) or FRESH in node.meta
    }
    written = {joint.primals[primal] for primal in joint.plan.written}
    return frozenset(joint.primals) - parameters - written - frozenset(joint.symbols)


def volatile_results(joint: Joint, is_view: IsView) -> frozenset[fx.Node]:
    """Values that the caller is given, or views of them, and may write to after the call."""
    given = {
        item.output for item in joint.plan.results if isinstance(item, (FromGraph, ViewOfOutput))
    }
    roots = {root_of(joint.outputs[place], is_view) for place in given}
    return frozenset(node for node in roots if node.op == "call_function")


def root_of(node: fx.Node, is_view: IsView) -> fx.Node:
    """What a value is a view of, by way of any number of views."""
    while node.op == "call_function" and node.all_input_nodes and is_view(node):
        source = node.all_input_nodes[0]
        if node.target is operator.getitem and not is_view(source):
            return node  # one of several new tensors
        node = source
    return node


def pinned(joint: Joint, late: Iterable[fx.Node], is_view: IsView) -> frozenset[fx.Node]:
    """The values of the forward part that are computed, through views, from an input or a result
    which the backward part does not read itself."""
    behind = {*late, *(node for node in joint.graph.nodes if in_backward(node))}
    kept = {
        root_of(source, is_view)
        for node in behind
        for source in node.all_input_nodes
        if source not in behind
    }
    unkept = (volatile_inputs(joint) | volatile_results(joint, is_view)) - kept
    return frozenset(
        node
        for node in joint.graph.nodes
        if node.op == "call_function"
        and node not in behind
        and not is_view(node)
        and any(root_of(source, is_view) in unkept for source in node.all_input_nodes)
    )
