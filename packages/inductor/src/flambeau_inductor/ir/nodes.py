"""Metadata of FX nodes, for passes and lowering.

In: nodes with `meta["val"]` (fake, meta or real tensors), or primitives whose operands have it.
Out: that value. Invariant: what a shape rule worked out is kept on the node.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from flambeau_inductor._torch_compat import OpOverload

PRIMITIVES = "flambeau_prims"
"""The namespace of their operators; Torch IR has none, and does not load the package."""


class NoValue(LookupError):
    """A node whose value is not known; the text names it."""


def name_of(node: object) -> str | None:
    """Name of the primitive that `node` calls; None for anything else."""
    target = node.target if isinstance(node, fx.Node) and node.op == "call_function" else None
    if not isinstance(target, OpOverload) or target.namespace != PRIMITIVES:
        return None
    return str(target.overloadpacket.__name__)


def value_of(node: fx.Node) -> Any:
    """`meta["val"]`, worked out from the operands' by the primitive's shape rule if missing.

    Raises NoValue where neither is there.
    """
    if "val" in node.meta:
        return node.meta["val"]
    if node.target is operator.getitem:
        return value_of(node.args[0])[node.args[1]]  # type: ignore[arg-type]
    prim = None
    if name_of(node) is not None:
        from flambeau_prims import prim_of

        prim = prim_of(node.target)
    if prim is None:
        raise NoValue(f"{node.name}: no meta['val'] on this node ({node.op} {node.target})")
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), _operand)
    node.meta["val"] = prim.rule(*args, **kwargs)
    return node.meta["val"]


def _operand(node: fx.Node) -> Any:
    from flambeau_prims import TensorMeta

    value = value_of(node)
    return TensorMeta.of(value) if isinstance(value, torch.Tensor) else value
