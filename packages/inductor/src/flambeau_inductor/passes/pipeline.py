"""The passes on a graph of primitives, in order.

In: an FX graph of primitives. Out: a new graph module with the same inputs and outputs.
Invariant: dialect in and out is the primitives'; what the caller sees as separate tensors stays
separate.
"""

from __future__ import annotations

from collections.abc import Callable

import flambeau_prims
from torch import fx

from flambeau_inductor._torch_compat import OpOverload, has_effect
from flambeau_inductor.driver import Pass, PassContext, run_passes
from flambeau_inductor.passes import products
from flambeau_inductor.passes.attention import written_out_attention
from flambeau_inductor.passes.products import bias_into_product
from flambeau_inductor.passes.rewriter import Ledger, names_of
from flambeau_inductor.passes.simplify import drop_redundant, fold_constants, merge_equal
from flambeau_inductor.passes.transfers import gather_transfers

InPlace = Callable[[PassContext, fx.Graph], tuple[fx.Graph, int]]


def _rewriting(rewrite: Callable[[fx.Graph, Ledger], int]) -> InPlace:
    """A pass of a function that says how many nodes it has replaced; they are erased here."""

    def run(context: PassContext, graph: fx.Graph) -> tuple[fx.Graph, int]:
        replaced = rewrite(graph, context.ledger)
        if replaced:
            remove_dead(graph)
        return graph, replaced

    return run


FX_PASSES: tuple[Pass[PassContext, fx.Graph], ...] = (
    Pass("fold_constants", _rewriting(fold_constants)),
    Pass("drop_redundant", _rewriting(drop_redundant)),
    Pass("merge_equal", _rewriting(lambda graph, _: merge_equal(graph))),
    Pass("gather_transfers", _rewriting(lambda graph, _: gather_transfers(graph))),
    Pass("written_out_attention", _rewriting(written_out_attention)),
    Pass("bias_into_product", _rewriting(bias_into_product), rules=names_of(products.RULES)),
)


def rewrite(gm: fx.GraphModule, context: PassContext | None = None) -> fx.GraphModule:
    """Apply the passes to a copy of `gm`."""
    context = PassContext() if context is None else context
    graph = fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    strict = bool(context.options.verify) and _in_dialect(gm)

    def verify(graph: fx.Graph) -> None:
        graph.lint()
        if strict:
            flambeau_prims.verify(fx.GraphModule(gm, graph))

    graph = run_passes(context, "fx", FX_PASSES, graph, verify)
    graph.lint()
    return fx.GraphModule(gm, graph)


def _in_dialect(gm: fx.GraphModule) -> bool:
    """Whether a graph keeps the rules of the dialect: more is taken than what does."""
    try:
        flambeau_prims.verify(gm)
    except flambeau_prims.DialectError:
        return False
    return True


def remove_dead(graph: fx.Graph) -> None:
    """Erase calls that nobody uses; only drawing a seed has an effect."""
    for node in reversed(graph.nodes):
        if node.op in ("call_function", "get_attr") and not node.users and not _impure(node):
            graph.erase_node(node)


def _impure(node: fx.Node) -> bool:
    target = node.target
    drawn = str(target) == "flambeau_prims.seed.default"
    return drawn or node.is_impure() or (isinstance(target, OpOverload) and has_effect(target))
