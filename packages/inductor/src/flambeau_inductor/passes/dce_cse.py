"""Drop what changes nothing, and compute equal things once.

In: a graph of primitives. Out: fewer nodes. Invariant: a node is only replaced by one of the same
shape, strides and dtype, bit for bit equal; two tensors that the caller gets stay two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from flambeau_inductor.passes.match import escaping, has_tag, name_of, placed, same_meta


def _first(node: fx.Node) -> fx.Node | None:
    source = node.args[0]
    return source if isinstance(source, fx.Node) else None


def _if_in_order(node: fx.Node) -> fx.Node | None:
    dims = node.args[1]
    in_order = isinstance(dims, list | tuple) and list(dims) == list(range(len(dims)))
    return _first(node) if in_order else None


def _unless(value: float) -> Callable[[fx.Node], fx.Node | None]:
    """The first operand, if the second is a constant equal to `value`."""

    def rule(node: fx.Node) -> fx.Node | None:
        other = node.args[1]
        if name_of(other) != "full" or not isinstance(other, fx.Node):
            return None
        constant = other.args[1]
        return _first(node) if constant == value and not isinstance(constant, complex) else None

    return rule


REDUNDANT: Mapping[str, Callable[[fx.Node], fx.Node | None]] = {
    "cast": _first,
    "reshape": _first,
    "permute": _if_in_order,
    "broadcast_in_dim": _first,
    "slice": _first,
    "mul": _unless(1),
    "div": _unless(1),
}
"""Primitive: what it equals, if shape, strides and dtype are the same. (x + 0 is not x: -0.)"""


def drop_redundant(graph: fx.Graph) -> int:
    """Replace calls that give back their operand. What the caller sees, and that in which a place
    in memory is named, keeps its own memory."""
    dropped = 0
    seen = escaping(graph) | placed(graph)
    for node in list(graph.nodes):
        rule = REDUNDANT.get(name_of(node) or "")
        if rule is None or (node in seen and not has_tag(node, "view")):
            continue
        source = rule(node)
        if source is not None and same_meta(node, source):
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            dropped += 1
    return dropped


def merge_equal(graph: fx.Graph) -> int:
    """Compute equal calls of primitives once."""
    merged = 0
    seen = escaping(graph)
    known: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        name = name_of(node)
        if name is None or has_tag(node, "mutating") or name == "seed":
            continue
        key = (node.target, _key(node.args), _key(node.kwargs))
        first = known.setdefault(key, node)
        if first is node or (node in seen and first in seen):
            continue
        if node in seen:
            # The caller sees this one: let it be the one that stays out of the table.
            continue
        node.replace_all_uses_with(first)
        graph.erase_node(node)
        merged += 1
    return merged


def _key(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, list | tuple):
        return tuple(_key(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in value.items())
    # By text: 1, 1.0 and True are equal, and so are 0.0 and -0.0, but they are not the same.
    return f"{type(value).__name__}:{value!r}"
