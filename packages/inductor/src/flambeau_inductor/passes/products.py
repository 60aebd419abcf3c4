"""Bias fusion into matrix products.

In: `add(mm(a, b), bias)`, the product perhaps seen in another shape with the same last dimension.
Out: `addmm(bias, a, b, 1, 1)`. Invariant: only where the sum would otherwise be a loop of its own:
nobody computes with it element by element, and nobody else needs the product.
"""

from __future__ import annotations

from flambeau_prims import PRIMS
from torch import fx

from flambeau_inductor.passes.match import has_tag, name_of, readers, same_meta, val_of
from flambeau_inductor.passes.rewriter import (
    Argument,
    Match,
    Named,
    Rule,
    Value,
    ops,
)
from flambeau_inductor.passes.simplify import sizes_of

COMPUTING = ("pointwise", "reduction", "shape", "index")
_PRODUCT = Named("product", ops.mm(Value("a"), Value("b")))
_SEEN = Named("seen", ops.reshape(_PRODUCT, Argument()))
_BIAS = Value("bias", lambda node: name_of(node) == "broadcast_in_dim")


def _ends_here(product: fx.Node, total: fx.Node) -> bool:
    """Whether the total has the product's place, and is not computed with."""
    if len(product.users) != 1 or not same_meta(product, total):
        return False
    return not any(has_tag(r, tag) for r in readers(total) for tag in COMPUTING)


def _sum(m: Match) -> fx.Node | None:
    if not _ends_here(m["product"], m.root):
        return None
    return m.call(PRIMS["addmm"].overload, m["bias"], m["a"], m["b"], 1, 1)


def _sum_by_rows(m: Match) -> fx.Node | None:
    """The product is seen in another shape, and the bias is a row that its rows all get."""
    row, _, dims = m["bias"].args[:3]
    parts = (m["seen"], m["product"], row)
    shape, product, width = (getattr(val_of(part), "shape", None) for part in parts)
    if shape is None or product is None or width is None or not _ends_here(m["seen"], m.root):
        return None
    rows, columns = product
    if tuple(dims) != (len(shape) - 1,) or shape[-1] != columns or tuple(width) != (columns,):
        return None
    with m.graph.inserting_before(m.root):
        sizes = sizes_of(m.graph, (rows, columns))
    repeated = m.call(PRIMS["broadcast_in_dim"].overload, row, sizes, [1])
    total = m.call(PRIMS["addmm"].overload, repeated, m["a"], m["b"], 1, 1)
    return m.call(PRIMS["reshape"].overload, total, *m["seen"].args[1:])


RULES = (
    Rule("bias_into_product", (_PRODUCT + _BIAS,), _sum),
    Rule("bias_into_rows_of_product", (_SEEN + _BIAS,), _sum_by_rows),
)
