"""Save-everything partitioning, the tests' oracle.

What comes in: a `Joint`. What goes out: the nodes to save.
A checkpoint policy is honoured all the same: a value that must be computed again is.
Invariant: no forward operator is in the backward graph, so gradients are those of the joint
graph by construction; every other partition is held to its results.
"""

from __future__ import annotations

from torch import fx

from flambeau_aot.joint.differentiate import in_backward
from flambeau_aot.joint.trace import Joint
from flambeau_aot.options import Options
from flambeau_aot.partition.problem import mark_of
from flambeau_aot.partition.split import backward_only, forward_part


def save_all(joint: Joint, options: Options | None = None) -> list[fx.Node]:
    """Every value of the forward part that the backward part reads."""
    del options
    late = backward_only(joint)
    early = forward_part(joint) | set(joint.primals)
    wanted: list[fx.Node] = []
    seen: set[fx.Node] = set()
    stack = [node for node in joint.grads if node is not None]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in joint.symbols:
            continue  # both halves take them
        known = node in early or not in_backward(node)
        if known and node not in late and _may_be_saved(node):
            wanted.append(node)
        elif node.op != "placeholder":
            stack.extend(node.all_input_nodes)
    return wanted


def isinstance_tensor(node: fx.Node) -> bool:
    """Whether a node's value is one tensor, rather than a list of them."""
    return hasattr(node.meta["val"], "shape")


def _may_be_saved(node: fx.Node) -> bool:
    marked = node.op == "call_function" and mark_of(node) == "must_recompute"
    return isinstance_tensor(node) and not marked
