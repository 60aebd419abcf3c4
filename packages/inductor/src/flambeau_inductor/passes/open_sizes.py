"""Symbolic sizes as arguments of new nodes.

In: a shape that may have symbols. Out: the same, with nodes in their place.
Invariant: no argument of a node is a symbol itself; an open size is read from the graph's inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from flambeau_prims.layout import TensorMeta
from flambeau_prims.sizes import SizeNodes
from torch import fx


def sizes_of(graph: fx.Graph, shape: Sequence[Any]) -> list[Any]:
    """The sizes of a shape, computed where the graph is being extended."""
    if not any(isinstance(size, torch.SymInt) for size in shape):
        return list(shape)
    known = SizeNodes(graph)
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt):
            known.given(node, value)
        elif isinstance(value, torch.Tensor):
            known.seen(node, TensorMeta.of(value))
    return [known.node_of(size) if isinstance(size, torch.SymInt) else size for size in shape]
