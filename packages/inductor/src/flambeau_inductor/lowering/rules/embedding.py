"""Lowering of equal-sized bags of embeddings to gathers and sums.

In: a table, positions, and where bags begin. Out: nodes that read the rows directly. Invariant:
only bags that are known, while compiling, to be equally long (rows of a matrix of positions); any
other bags are the library's. Gradients are rows added to tables on a GPU, whatever the bags are.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_inductor.indexing import static_sizes
from flambeau_inductor.ir.tensors import Node, Position, Reduction, dims_of
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import looked_up
from flambeau_inductor.lowering.rules.library import called
from flambeau_inductor.lowering.rules.reduction import HALF
from flambeau_inductor.lowering.rules.scatter import added, in_any_order, narrowed

SUM, MEAN = 0, 1
"""Modes of `embedding_bag`; the third one takes maxima."""


@rule("embedding_bag")
def embedding_bag(ctx: Context, weight: Node, indices: Node, offsets: Node, *how: Any) -> Lowered:
    _, mode, per_sample_weights, include_last_offset, padding_idx = how
    length = _bag_length(indices, offsets)
    if mode not in (SUM, MEAN) or include_last_offset or padding_idx >= 0:
        raise LoweringError("embedding_bag: maxima, a last offset, or rows that count for nothing")
    bags, columns = offsets.shape[0], weight.shape[1]
    rows = weight.shape[0]
    expected = "Expected idx >= 0 && idx < num_embeddings but found idx to be {index}"
    message = f"embedding_bag: {expected} (of {rows})"
    d = dims_of(3)
    flat = d[0] * length + d[1]
    lookup = looked_up(ctx, indices, (flat,), rows, False, "RuntimeError", message)
    found = ctx.gather(weight, (bags, length, columns), (lookup, d[2]))
    wide = ctx.cast(found, torch.float32) if weight.dtype in HALF else found
    if per_sample_weights is not None:
        shares = ctx.view(per_sample_weights, (bags, length, columns), (flat,))
        wide = ctx.point("mul", (wide, ctx.cast(shares, wide.dtype)))
    total = ctx.node((bags, columns), wide.dtype, weight.device, Reduction("sum", wide, (1,)))
    if mode == MEAN:
        total = ctx.point("div", (total, ctx.like(float(length), total)))
    out = ctx.cast(total, weight.dtype)
    (d0,) = dims_of(1)
    bag_of = ctx.node((bags * length,), torch.int64, weight.device, Position(d0 // length))
    largest, kind = ctx.metas[3], indices.dtype
    assert largest is not None
    return (
        out,
        ctx.cast(bag_of, kind),
        ctx.literal(length, (bags,), kind, weight.device),
        ctx.literal(0, largest.shape, kind, weight.device),
    )


def _bag_length(indices: Node, offsets: Node) -> int:
    """How long every bag is; refuses bags of lengths that only the data know."""
    define = offsets.define
    sizes = static_sizes((indices.shape[0], offsets.shape[0]))
    if not isinstance(define, Position) or sizes is None:
        raise LoweringError("embedding_bag: where the bags begin is only known at run time")
    count, bags = sizes
    length = count // bags if bags else 0
    (d0,) = dims_of(1)
    if length < 2 or length * bags != count or define.index != d0 * length:
        raise LoweringError("embedding_bag: bags of unequal lengths")
    return length


@rule("embedding_bag_backward")
def embedding_bag_backward(ctx: Context, grad: Node, indices: Node, *args: Any) -> Lowered:
    """On a GPU the gradient of a bag is added to the rows that it was made of, in any order.

    The library sorts the positions for that, by some forty kernels a table; what it also does
    (maxima, rows that count for nothing, a fixed order) stays its own.
    """
    bag_of, sizes, _, rows, scale_grad_by_freq, mode, per_sample_weights, padding_idx = args
    summed = mode in (SUM, MEAN) and not scale_grad_by_freq and padding_idx < 0
    if summed and in_any_order(ctx, grad):
        values = _of_each(ctx, grad, bag_of)
        if mode == MEAN:
            values = _times(ctx, "div", values, _of_each(ctx, sizes, bag_of))
        if per_sample_weights is not None:
            values = _times(ctx, "mul", values, per_sample_weights)
        table = ctx.literal(0.0, (rows, grad.shape[1]), values.dtype, grad.device)
        # models with bags have many tables: none of them gets a copy in float32
        spared_from = 0 if grad.dtype in HALF else None
        total = added(ctx, table, indices, values, spared_from)
        return narrowed(ctx, total, grad.dtype) or ctx.cast(total, grad.dtype)
    return called(ctx, "aten._embedding_bag_dense_backward.default", grad, indices, *args)


def _of_each(ctx: Context, of_bags: Node, bag_of: Node) -> Node:
    shape = (*bag_of.shape, *of_bags.shape[1:])
    first, *rest = dims_of(len(shape))
    bags = of_bags.shape[0]
    message = "bag {index} is none of {size}"
    bag = looked_up(ctx, bag_of, (first,), bags, False, "IndexError", message)
    return ctx.gather(of_bags, shape, (bag, *rest))


def _times(ctx: Context, op: str, rows: Node, factors: Node) -> Node:
    """Rows in float32, each multiplied with (or divided by) its factor."""
    wide = ctx.cast(rows, torch.float32) if rows.dtype in HALF else rows
    (first, _) = dims_of(2)
    return ctx.point(op, (wide, ctx.view(ctx.cast(factors, wide.dtype), wide.shape, (first,))))
