"""Metadata of FX nodes, for passes and lowering.

In: nodes with `meta["val"]` (fake, meta or real tensors), or primitives whose operands have it.
Out: that value. Invariant: what a shape rule worked out is kept on the node.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from flambeau_prims import TensorMeta, prim_of
from torch import fx


class NoValue(LookupError):
    """A node whose value is not known; the text names it."""


def value_of(node: fx.Node) -> Any:
    """`meta["val"]`, worked out from the operands' by the primitive's shape rule if missing.

    Raises NoValue where neither is there.
    """
    if "val" in node.meta:
        return node.meta["val"]
    if node.target is operator.getitem:
        return value_of(node.args[0])[node.args[1]]  # type: ignore[arg-type]
    prim = prim_of(node.target) if node.op == "call_function" else None
    if prim is None:
        raise NoValue(f"{node.name}: no meta['val'] on this node ({node.op} {node.target})")
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), _operand)
    node.meta["val"] = prim.rule(*args, **kwargs)
    return node.meta["val"]


def _operand(node: fx.Node) -> Any:
    value = value_of(node)
    return TensorMeta.of(value) if isinstance(value, torch.Tensor) else value
