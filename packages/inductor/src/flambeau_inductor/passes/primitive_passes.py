"""The passes on a graph of primitives, in order.

In: an FX graph of primitives. Out: a new graph module with the same inputs and outputs. Invariant:
dialect in and out is the primitives'; what the caller sees as separate tensors stays separate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flambeau_prims
from torch import fx

from flambeau_inductor.driver import Pass, PassContext, run_passes
from flambeau_inductor.options import Options
from flambeau_inductor.passes import attention, epilogues
from flambeau_inductor.passes.chunk_products import chunk_products
from flambeau_inductor.passes.merge_collectives import gather_transfers, merge_collectives
from flambeau_inductor.passes.pad_products import pad_products
from flambeau_inductor.passes.rewriter import Ledger, Rule
from flambeau_inductor.passes.rewriter import rewrite as apply_rules
from flambeau_inductor.passes.simplify import (
    drop_redundant,
    fold_constants,
    merge_equal,
    merge_part_writes,
    remove_dead,
)

GraphPass = Pass[PassContext, fx.Graph]


def _always(options: Options) -> bool:
    return True


def _pass(
    name: str,
    change: Callable[[fx.Graph, Ledger], int],
    rules: Sequence[Rule] = (),
    when: Callable[[Options], bool] = _always,
) -> GraphPass:
    """A pass of a function that says how many nodes it has replaced; they are erased here."""

    def run(context: PassContext, graph: fx.Graph) -> tuple[fx.Graph, int]:
        replaced = change(graph, context.ledger)
        if replaced:
            remove_dead(graph)
        return graph, replaced

    return Pass(name, run, when, rules=tuple(rule.name for rule in rules if rule.name != name))


def _rules(name: str, rules: Sequence[Rule]) -> GraphPass:
    return _pass(name, lambda graph, ledger: apply_rules(graph, rules, ledger), rules)


PRIMITIVE_PASSES: tuple[GraphPass, ...] = (
    _pass("fold_constants", fold_constants),
    _pass("drop_redundant", drop_redundant),
    _pass("merge_equal", lambda graph, _: merge_equal(graph)),
    _pass("merge_part_writes", merge_part_writes),
    _pass("gather_transfers", lambda graph, _: gather_transfers(graph)),
    _rules("written_out_attention", attention.RULES),
    _rules("bias_into_product", epilogues.BIASES),
    _pass("pad_products", pad_products),
    _pass(
        "merge_collectives",
        lambda graph, _: merge_collectives(graph),
        when=lambda options: options.merge_collectives,
    ),
    _pass(
        "chunk_products",
        lambda graph, _: chunk_products(graph),
        when=lambda options: options.chunk_products,
    ),
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

    graph = run_passes(context, "fx", PRIMITIVE_PASSES, graph, verify)
    graph.lint()
    return fx.GraphModule(gm, graph)


def _in_dialect(gm: fx.GraphModule) -> bool:
    """Whether a graph keeps the rules of the dialect: more is taken than what does."""
    try:
        flambeau_prims.verify(gm)
    except flambeau_prims.DialectError:
        return False
    return True
