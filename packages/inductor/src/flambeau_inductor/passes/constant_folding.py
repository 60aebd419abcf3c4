"""Fold arithmetic and shapes of constant tensors.

In: a graph with `full` nodes. Out: fewer. Invariant: a folded value is what the primitive's eager
implementation gives for one element.
"""

from __future__ import annotations

from typing import Any

import torch
from flambeau_prims import PRIMS, prim_of
from torch import fx

from flambeau_inductor.passes.match import MOVES, has_tag, name_of
from flambeau_inductor.passes.open_sizes import sizes_of


def fold_constants(graph: fx.Graph) -> int:
    """Replace views of constants, moves of them to a device and arithmetic on them by constants."""
    folded = 0
    for node in list(graph.nodes):
        name = name_of(node)
        if name is None or "val" not in node.meta:
            continue
        operands = node.all_input_nodes
        if not operands or not all(name_of(o) == "full" for o in operands):
            continue
        if any(isinstance(o.args[1], fx.Node) for o in operands):
            continue  # a number that varies
        if name in MOVES or name == "device_put":
            value = operands[0].args[1]
        elif has_tag(node, "pointwise") or name == "cast":
            value = _evaluated(node)
        else:
            continue
        if isinstance(value, complex) or node.meta["val"].dtype.is_complex:
            continue  # the library fills these, in strides of its own
        _replace(graph, node, value)
        folded += 1
    return folded


def _evaluated(node: fx.Node) -> Any:
    def element(operand: fx.Node) -> torch.Tensor:
        return torch.full((1,), operand.args[1], dtype=operand.kwargs["dtype"])  # type: ignore[arg-type]

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), element)
    prim = prim_of(node.target)
    if prim is None:
        raise TypeError(f"{node.name} calls no primitive")
    return prim.eager(*args, **kwargs).item()


def _replace(graph: fx.Graph, node: fx.Node, value: Any) -> None:
    meta = node.meta["val"]
    with graph.inserting_before(node):
        new = graph.call_function(
            PRIMS["full"].overload,
            (sizes_of(graph, meta.shape), value),
            {"dtype": meta.dtype, "device": meta.device},
        )
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    graph.erase_node(node)
