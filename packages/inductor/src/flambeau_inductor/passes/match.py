"""Questions that rewrites ask about nodes.

In: FX nodes. Out: answers. Invariant: nothing is changed here.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from flambeau_prims import prim_of
from torch import fx

MOVES = frozenset({"broadcast_in_dim", "reshape", "permute", "slice", "diagonal", "unfold"})
"""Views whose elements are elements of their operand, at other places."""

PLACING = frozenset({"as_strided", "as_strided_scatter"})
"""Primitives that are told a place in the memory of their first operand."""


def name_of(node: object) -> str | None:
    """Name of the primitive that `node` calls; None for anything else."""
    if not isinstance(node, fx.Node) or node.op != "call_function":
        return None
    prim = prim_of(node.target)
    return None if prim is None else prim.name


def has_tag(node: fx.Node, tag: str) -> bool:
    """Whether `node` calls a primitive with `tag`."""
    prim = prim_of(node.target) if node.op == "call_function" else None
    return prim is not None and tag in prim.tags


def escaping(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose memory the caller may see: outputs, and what they are views of."""
    return _with_memory(a for n in graph.nodes if n.op == "output" for a in n.all_input_nodes)


def placed(graph: fx.Graph) -> set[fx.Node]:
    """Nodes in whose memory a place is named, counted from where that memory begins: an equal
    value that begins elsewhere in its own cannot stand for them."""
    readers = (node for node in graph.nodes if name_of(node) in PLACING)
    return _with_memory(a for n in readers for a in n.all_input_nodes[:1])


def _with_memory(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """The nodes, and what they are views of."""
    found: set[fx.Node] = set()
    work = [*nodes]
    while work:
        node = work.pop()
        if node in found:
            continue
        found.add(node)
        if has_tag(node, "view") or node.target is operator.getitem:
            work.extend(node.all_input_nodes)
    return found


def readers(node: fx.Node) -> Iterable[fx.Node]:
    """Users of `node`, views of it looked through."""
    for user in node.users:
        if has_tag(user, "view"):
            yield from readers(user)
        else:
            yield user


def same_meta(a: fx.Node, b: fx.Node) -> bool:
    """Whether two nodes have equal shape, strides and dtype."""
    x, y = a.meta.get("val"), b.meta.get("val")
    if x is None or y is None or isinstance(x, tuple | list) or isinstance(y, tuple | list):
        return False
    if x.dtype != y.dtype or len(x.shape) != len(y.shape):
        return False
    return bool(x.shape == y.shape and strides(x) == strides(y))


def strides(value: Any) -> tuple[int, ...]:
    """Strides of a tensor or of a `TensorMeta`."""
    stride = value.stride
    return tuple(stride() if callable(stride) else stride)
