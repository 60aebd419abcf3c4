"""Arguments that an operator ignores.

What comes in: a joint graph. What goes out: the same graph without those arguments.
Invariant: no operator's result changes; what is gone is a dependence on a value that had no
effect, and with it the need to keep that value.

A batch norm in training normalises by the batch, and takes its running statistics only to give
back new ones; its derivative does not read them at all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import torch
from torch import fx

from flambeau_aot.joint.trace import Joint

aten = torch.ops.aten


def drop_unread(joint: Joint) -> int:
    """Rewrite every operator that the rules know, users first; the number of rewrites."""
    kept = {*joint.outputs, *(node for node in joint.grads if node is not None)}
    return sum(
        RULES[node.target](node, kept)  # type: ignore[index]
        for node in reversed(list(joint.graph.nodes))
        if node.op == "call_function" and node.target in RULES
    )


def _statistics_in_derivative(node: fx.Node, kept: set[fx.Node]) -> bool:
    """grad, input, weight, running mean, running var, saved mean, saved scale, train, ..."""
    if not node.args[7] or node.args[5] is None or node.args[6] is None:
        return False
    if node.args[3] is None and node.args[4] is None:
        return False
    node.args = (*node.args[:3], None, None, *node.args[5:])
    return True


def _statistics_nobody_takes(node: fx.Node, kept: set[fx.Node]) -> bool:
    """input, weight, bias, running mean, running var, train, momentum, eps"""
    if not node.args[5] or len(node.args) != 8:
        return False
    items = [(user, user.args[1]) for user in node.users if user.target is operator.getitem]
    if len(items) != len(node.users) or any(
        place in (3, 4) and (item.users or item in kept) for item, place in items
    ):
        return False
    graph = node.graph
    for item, place in items:
        if place in (3, 4):
            graph.erase_node(item)
    node.target = aten._native_batch_norm_legit.no_stats
    node.args = (*node.args[:3], *node.args[5:])
    node.meta["val"] = tuple(node.meta["val"][:3])
    return True


def inputs_of_result(node: fx.Node) -> list[fx.Node]:
    """The values that one result depends on: all its operator takes, but for what is known.

    In training, the results of a batch norm depend on the running statistics in the new running
    statistics only.
    """
    if node.target is operator.getitem:
        source, place = node.args
        if isinstance(source, fx.Node) and source.target in _WITH_STATISTICS and source.args[5]:
            unread = source.args[3:5] if place in (0, 1, 2) else ()
            return [item for item in source.all_input_nodes if item not in unread]
    return node.all_input_nodes


_WITH_STATISTICS = frozenset({aten._native_batch_norm_legit_functional.default})

RULES: dict[object, Callable[[fx.Node, set[fx.Node]], bool]] = {
    aten.native_batch_norm_backward.default: _statistics_in_derivative,
    aten._native_batch_norm_legit_functional.default: _statistics_nobody_takes,
}
