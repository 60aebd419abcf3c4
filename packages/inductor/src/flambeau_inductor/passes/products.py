"""Matrix products that take the bias addition with them.

In: `add(mm(a, b), bias)`. Out: `addmm(bias, a, b, 1, 1)`. Invariant: only where the sum would
otherwise be a loop of its own: nobody computes with it element by element, and nobody else needs
the product.
"""

from __future__ import annotations

from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.passes.match import has_tag, name_of, readers, same_meta

ADDMM = PRIMS["addmm"].overload


def bias_into_product(graph: fx.Graph) -> int:
    """Rewrite every such sum."""
    rewritten = 0
    for node in list(graph.nodes):
        if name_of(node) != "add":
            continue
        for product, bias in ((node.args[0], node.args[1]), (node.args[1], node.args[0])):
            if _is_product_of_its_own(product, node) and name_of(bias) == "broadcast_in_dim":
                if isinstance(product, fx.Node) and isinstance(bias, fx.Node):
                    _rewrite(graph, node, product, bias)
                    rewritten += 1
                    break
    return rewritten


def _is_product_of_its_own(product: object, total: fx.Node) -> bool:
    if not isinstance(product, fx.Node) or name_of(product) != "mm":
        return False
    if len(product.users) != 1 or not same_meta(product, total):
        return False
    computing = ("pointwise", "reduction", "shape", "index")
    return not any(has_tag(r, tag) for r in readers(total) for tag in computing)


def _rewrite(graph: fx.Graph, total: fx.Node, product: fx.Node, bias: fx.Node) -> None:
    with graph.inserting_before(total):
        new = graph.call_function(ADDMM, (bias, *product.args, 1, 1))
    new.meta = dict(total.meta)
    total.replace_all_uses_with(new)
    graph.erase_node(total)
