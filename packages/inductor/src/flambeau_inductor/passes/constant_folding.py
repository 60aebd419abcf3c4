"""Constant folding.

In: a graph with `full` nodes. Out: fewer. Invariant: a folded value is what the primitive's eager
implementation gives for one element.
"""

from __future__ import annotations

from typing import Any

import torch
from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.passes.match import MOVES, name_of
from flambeau_inductor.passes.open_sizes import sizes_of
from flambeau_inductor.passes.rewriter import Call, Ledger, Match, Rule, rewrite

POINTWISE = frozenset(name for name, prim in PRIMS.items() if "pointwise" in prim.tags) | {"cast"}


def _are_numbers(node: fx.Node) -> bool:
    """Whether all operands are numbers that do not vary."""
    operands = node.all_input_nodes
    return bool(operands) and all(
        name_of(each) == "full" and not isinstance(each.args[1], fx.Node) for each in operands
    )


def _folded(m: Match) -> fx.Node | None:
    def element(operand: fx.Node) -> Any:
        return torch.full((1,), operand.args[1], dtype=operand.kwargs["dtype"])  # type: ignore[arg-type]

    node, name = m.root, name_of(m.root) or ""
    made: Any = node.all_input_nodes[0].args[1]
    if name in POINTWISE:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), element)
        made = PRIMS[name].eager(*args, **kwargs).item()
    meta = node.meta.get("val")
    if meta is None or isinstance(made, complex) or meta.dtype.is_complex:
        return None  # the library fills these, in strides of its own
    with m.graph.inserting_before(node):
        sizes = sizes_of(m.graph, meta.shape)
    return m.call(PRIMS["full"].overload, sizes, made, dtype=meta.dtype, device=meta.device)


RULES = (
    Rule("fold_constants", (Call(POINTWISE | MOVES | {"device_put"}, (), _are_numbers),), _folded),
)


def fold_constants(graph: fx.Graph, ledger: Ledger | None = None) -> int:
    """Replace views of constants, moves of them to a device and arithmetic on them by constants."""
    return rewrite(graph, RULES, ledger)
