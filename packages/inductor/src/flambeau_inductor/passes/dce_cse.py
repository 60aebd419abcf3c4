"""Dead-code and common-subexpression elimination.

In: a graph of primitives. Out: fewer nodes. Invariant: a node is only replaced by one of the same
shape, strides and dtype, bit for bit equal; two tensors that the caller gets stay two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from flambeau_inductor.passes.match import escaping, has_tag, name_of, placed, same_meta
from flambeau_inductor.passes.rewriter import Call, Ledger, Match, Rule, Value, ops, rewrite


def _in_order(node: fx.Node) -> bool:
    dims = node.args[1]
    return isinstance(dims, list | tuple) and list(dims) == list(range(len(dims)))


def _real(node: fx.Node) -> bool:
    """One times an infinite complex number has a part that is NaN."""
    value = node.meta["val"]
    return not (isinstance(value, torch.Tensor) and value.dtype.is_complex)


_x = Value("x")
EQUAL_TO_X = (
    Call(frozenset({"cast", "reshape", "broadcast_in_dim", "slice"}), (_x,), lambda node: True),
    ops.permute(_x, where=_in_order),
    ops.mul(_x, 1, where=_real),
    ops.div(_x, 1, where=_real),
)
"""What equals `x`, if shape, strides and dtype are the same. (x + 0 is not x: -0.)"""


def drop_redundant(graph: fx.Graph, ledger: Ledger | None = None) -> int:
    """Replace calls that give back their operand. What the caller sees, and that in which a place
    in memory is named, keeps its own memory."""
    seen = escaping(graph) | placed(graph)

    def operand(m: Match) -> fx.Node | None:
        own = m.root in seen and not has_tag(m.root, "view")
        return None if own or not same_meta(m.root, m["x"]) else m["x"]

    return rewrite(graph, (Rule("drop_redundant", EQUAL_TO_X, operand),), ledger)


def merge_equal(graph: fx.Graph, ledger: Ledger | None = None) -> int:
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
