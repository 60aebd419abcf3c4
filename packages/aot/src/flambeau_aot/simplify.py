"""Dead-code and common-subexpression elimination on a joint graph.

In: a joint graph. Out: the same graph object with fewer operators.
Invariant: no random operator is added, removed, merged or moved past another, so that the random
stream is eager's; no two results come to share memory that did not share it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from flambeau_aot._torch_compat import expression_of, is_view_op
from flambeau_aot.joint.absent_derivatives import LED_TO
from flambeau_aot.joint.differentiate import in_backward, mark_as_backward
from flambeau_aot.joint.metadata.corrections import contiguous
from flambeau_aot.joint.trace import Joint
from flambeau_aot.partition.cost import runs_anyway
from flambeau_aot.partition.memory import is_snapshot
from flambeau_aot.sizes import data_extents, is_symbolic, same_sizes

aten = torch.ops.aten


def simplify(joint: Joint) -> tuple[Joint, dict[str, int]]:
    """The joint graph without dead operators, unread arguments, needless and repeated operators;
    how many operators each rule removed, under "unread" how many lost arguments."""
    dead, unread = _remove_dead(joint), drop_unread(joint)
    joint, copies = _replaced(joint, _needless(joint))
    joint, round_trips = _replaced(joint, _start_of_round_trip)
    joint, repeated = _replaced(joint, _repeated(joint))
    dead += _remove_dead(joint)
    counts = {"dead": dead, "repeated": repeated, "needless": copies + round_trips}
    return joint, {**counts, "unread": unread}


def _replaced(joint: Joint, instead: Callable[[fx.Node], fx.Node | None]) -> tuple[Joint, int]:
    """The joint graph with values in the place of operators, where there are any, and how many."""
    moved: dict[fx.Node, fx.Node] = {}
    for node in list(joint.graph.nodes):
        source = instead(node) if node.op == "call_function" else None
        if source is not None:
            node.replace_all_uses_with(source)
            moved[node] = source
            joint.graph.erase_node(node)

    def final(node: fx.Node) -> fx.Node:
        while node in moved:
            node = moved[node]
        return node

    outputs = tuple(map(final, joint.outputs))
    grads = tuple(None if node is None else final(node) for node in joint.grads)
    return replace(joint, outputs=outputs, grads=grads), len(moved)


def _results(joint: Joint) -> set[fx.Node]:
    return {*joint.outputs, *(node for node in joint.grads if node is not None)}


def _protected(joint: Joint) -> set[fx.Node]:
    """Results and the values they are views of: merging these would make results share memory."""
    protected: set[fx.Node] = set()
    for node in _results(joint):
        while node not in protected:
            protected.add(node)
            if node.op != "call_function" or not is_view_node(node):
                break
            node = node.args[0]  # type: ignore[assignment]
    return protected


def is_view_node(node: fx.Node) -> bool:
    """Whether a node's value shares memory with its first argument."""
    if node.target is operator.getitem:
        return isinstance(node.args[0], fx.Node) and is_view_node(node.args[0])
    return is_view_op(node.target)


# Operators whose result, in a functional graph, may be their first argument itself.
_COPIES: set[Any] = {
    aten.clone.default,
    aten.detach.default,
    aten.alias.default,
    aten.lift_fresh_copy.default,
    aten._to_copy.default,
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.reshape.default,
}


def _start_of_round_trip(node: fx.Node) -> fx.Node | None:
    """What a view of views came back to, as transposing twice does.

    A view with the sizes, strides and offset of what it is a view of is that value, results
    included: they shared its memory before.
    """
    source: Any = node
    while source.op == "call_function" and _moves_only(source):
        view, source = source, source.args[0]
        if not isinstance(source, fx.Node) or _may_copy(view, source):
            return None
        if isinstance(source.meta["val"], torch.Tensor) and _same_metadata(node, source):
            return source
    return None


def _moves_only(node: fx.Node) -> bool:
    """Whether a node is a view defined by positions, not by addresses as `as_strided` is."""
    return (
        is_view_node(node)
        and isinstance(node.meta["val"], torch.Tensor)
        and "as_strided" not in str(node.target)
    )


def _may_copy(view: fx.Node, source: fx.Node) -> bool:
    """Whether a view may be of a copy, as a reshape is of what has no view of that shape: what
    may keep all elements is of its source's memory if that is row-major or its strides stay."""
    one, other = view.meta["val"], source.meta["val"]
    if not isinstance(other, torch.Tensor):
        return False
    counts = one.numel(), other.numel()
    if not any(map(is_symbolic, counts)) and counts[0] != counts[1]:
        return False  # of open sizes, two expressions may come to one number
    kept, given = (
        sorted(str(pair) for pair in zip(x.shape, x.stride(), strict=True) if str(pair[0]) != "1")
        for x in (one, other)
    )
    row_major = (
        str(size) == "1" or same_sizes((step,), (row,))
        for size, step, row in zip(
            other.shape, other.stride(), contiguous(other.shape), strict=True
        )
    )
    return kept != given and not all(row_major)


def _needless(joint: Joint) -> Callable[[fx.Node], fx.Node | None]:
    """What copies and reshapes give that is what they take, where no result depends on the copy."""
    protected = _protected(joint)

    def source_of(node: fx.Node) -> fx.Node | None:
        if node in protected or node.target not in _COPIES or is_snapshot(node):
            return None
        source = node.args[0]
        return source if isinstance(source, fx.Node) and _same_metadata(node, source) else None

    return source_of


def _same_metadata(node: fx.Node, source: fx.Node) -> bool:
    one, other = node.meta["val"], source.meta["val"]
    return bool(
        one.dtype == other.dtype
        and same_sizes(one.shape, other.shape)
        and same_sizes(one.stride(), other.stride())
        and one.fake_device == other.fake_device
        and same_sizes((one.storage_offset(),), (other.storage_offset(),))
        and one.is_conj() == other.is_conj()
        and one.is_neg() == other.is_neg()
    )


def _repeated(joint: Joint) -> Callable[[fx.Node], fx.Node | None]:
    """Common subexpressions; a value made for a result is never replaced by another, nor one that a
    checkpoint policy marks by one that it does not."""
    protected = _protected(joint)
    seen: dict[Any, fx.Node] = {}

    def first_of(node: fx.Node) -> fx.Node | None:
        if node in protected or runs_anyway(node.target) or LED_TO in node.meta:
            return None
        key = _key(node)
        first = node if key is None else seen.setdefault(key, node)
        if first is node or not _same_counts(node, first):
            return None
        if in_backward(node):  # eager has kept what it reads, whatever else reads it
            mark_as_backward(first)
        return first

    return first_of


def _same_counts(one: fx.Node, other: fx.Node) -> bool:
    """Whether two values that are computed alike have the same sizes by name: what depends on data
    is counted anew by each operator, and has another name."""
    values = one.meta.get("val"), other.meta.get("val")
    first, second = ([extent for extent, *_ in data_extents(value)] for value in values)
    numbers = [expression_of(value) for value in values if is_symbolic(value)]
    return first == second and len(set(numbers)) <= 1


def _part_of_key(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple([_part_of_key(item) for item in value])
    if isinstance(value, float):
        # 0.0 and -0.0 are equal but not the same constant; nan equals nothing.
        return (float, value.hex())
    return (type(value), value)


def _key(node: fx.Node) -> Any:
    try:
        key = (
            node.target,
            node.meta.get("recompute"),
            _part_of_key(node.args),
            tuple([(name, _part_of_key(item)) for name, item in node.kwargs.items()]),
        )
        hash(key)
    except TypeError:
        return None
    return key


def _remove_dead(joint: Joint) -> int:
    kept = _results(joint)
    removed = 0
    for node in reversed(list(joint.graph.nodes)):
        if node.op != "call_function" or node.users or node in kept or runs_anyway(node.target):
            continue
        joint.graph.erase_node(node)
        removed += 1
    return removed


def drop_unread(joint: Joint) -> int:
    """Rewrite every operator that the rules know, users first; the number of rewrites."""
    kept = _results(joint)
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
