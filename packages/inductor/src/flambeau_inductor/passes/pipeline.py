"""The rewrites of a graph of primitives, in order.

In: an FX graph of primitives. Out: a new graph module with the same inputs and outputs.
Invariant: dialect in and out is the primitives'; what the caller sees as separate tensors stays
separate; each pass has a name and can be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import fx

from flambeau_inductor._torch_compat import OpOverload, has_effect
from flambeau_inductor.passes.attention import written_out_attention
from flambeau_inductor.passes.constant_folding import fold_constants
from flambeau_inductor.passes.dce_cse import drop_redundant, merge_equal
from flambeau_inductor.passes.products import bias_into_product
from flambeau_inductor.passes.transfers import gather_transfers

Pass = Callable[[fx.Graph], int]

Seen = Callable[[int, str, fx.Graph, int], None]
"""Told of a pass: its number and name, the graph after it, how many nodes it replaced."""

PASSES: tuple[tuple[str, Pass], ...] = (
    ("fold_constants", fold_constants),
    ("drop_redundant", drop_redundant),
    ("merge_equal", merge_equal),
    ("gather_transfers", gather_transfers),
    ("written_out_attention", written_out_attention),
    ("bias_into_product", bias_into_product),
)
"""Name and function; a pass returns how many nodes it replaced."""


def run(gm: fx.GraphModule, skip: Collection[str] = (), seen: Seen | None = None) -> fx.GraphModule:
    """Apply every pass but those named in `skip` to a copy of `gm`; `seen` is told of each."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    output = graph.graph_copy(gm.graph, copied)
    graph.output(output)
    for number, (name, rewrite) in enumerate(PASSES):
        if name in skip:
            continue
        replaced = rewrite(graph)
        if replaced:
            remove_dead(graph)
        if seen is not None:
            seen(number, name, graph, replaced)
    graph.lint()
    return fx.GraphModule(gm, graph)


def remove_dead(graph: fx.Graph) -> None:
    """Erase calls that nobody uses; only drawing a seed has an effect."""
    for node in reversed(graph.nodes):
        if node.op in ("call_function", "get_attr") and not node.users and not _impure(node):
            graph.erase_node(node)


def _impure(node: fx.Node) -> bool:
    target = node.target
    drawn = str(target) == "flambeau_prims.seed.default"
    return drawn or node.is_impure() or (isinstance(target, OpOverload) and has_effect(target))
