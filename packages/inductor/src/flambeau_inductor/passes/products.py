"""Matrix products that take the bias addition with them.

In: `add(mm(a, b), bias)`, the product perhaps seen in another shape with the same last dimension.
Out: `addmm(bias, a, b, 1, 1)`. Invariant: only where the sum would otherwise be a loop of its own:
nobody computes with it element by element, and nobody else needs the product.
"""

from __future__ import annotations

from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.ir.nodes import value_of
from flambeau_inductor.passes.match import has_tag, name_of, readers, same_meta
from flambeau_inductor.passes.open_sizes import sizes_of

ADDMM = PRIMS["addmm"].overload
BROADCAST = PRIMS["broadcast_in_dim"].overload
RESHAPE = PRIMS["reshape"].overload


def bias_into_product(graph: fx.Graph) -> int:
    """Rewrite every such sum."""
    rewritten = 0
    for node in list(graph.nodes):
        if name_of(node) != "add":
            continue
        for product, bias in ((node.args[0], node.args[1]), (node.args[1], node.args[0])):
            if not isinstance(product, fx.Node) or not isinstance(bias, fx.Node):
                continue
            if name_of(bias) != "broadcast_in_dim" or not _ends_here(product, node):
                continue
            if name_of(product) == "mm":
                _rewrite(graph, node, product, bias)
            elif _is_seen_by_rows(product, bias):
                _rewrite_rows(graph, node, product, bias)
            else:
                continue
            rewritten += 1
            break
    return rewritten


def _ends_here(product: fx.Node, total: fx.Node) -> bool:
    """Whether `total` alone reads the product, and is not computed with."""
    if len(product.users) != 1 or not same_meta(product, total):
        return False
    computing = ("pointwise", "reduction", "shape", "index")
    return not any(has_tag(r, tag) for r in readers(total) for tag in computing)


def _is_seen_by_rows(seen: fx.Node, bias: fx.Node) -> bool:
    """Whether `seen` is a product in another shape, and `bias` a row that its rows all get."""
    source = seen.args[0] if name_of(seen) == "reshape" else None
    if not isinstance(source, fx.Node) or name_of(source) != "mm" or len(source.users) != 1:
        return False
    whole, row, dims = value_of(seen), bias.args[0], bias.args[2]
    if not isinstance(row, fx.Node) or tuple(dims) != (len(whole.shape) - 1,):  # type: ignore[arg-type]
        return False
    columns = value_of(source).shape[-1]
    return bool(whole.shape[-1] == columns and tuple(value_of(row).shape) == (columns,))


def _rewrite(graph: fx.Graph, total: fx.Node, product: fx.Node, bias: fx.Node) -> None:
    with graph.inserting_before(total):
        new = graph.call_function(ADDMM, (bias, *product.args, 1, 1))
    new.meta = dict(total.meta)
    total.replace_all_uses_with(new)
    graph.erase_node(total)


def _rewrite_rows(graph: fx.Graph, total: fx.Node, seen: fx.Node, bias: fx.Node) -> None:
    (product,) = seen.all_input_nodes
    with graph.inserting_before(total):
        shape = sizes_of(graph, value_of(product).shape)
        rows = graph.call_function(BROADCAST, (bias.args[0], shape, [1]))
        sums = graph.call_function(ADDMM, (rows, *product.args, 1, 1))
        sums.meta = dict(product.meta)
        new = graph.call_function(RESHAPE, (sums, *seen.args[1:]))
    new.meta = dict(total.meta)
    total.replace_all_uses_with(new)
    graph.erase_node(total)
