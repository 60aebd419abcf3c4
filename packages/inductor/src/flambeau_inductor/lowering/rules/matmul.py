"""Lowering of matrix products: which library, and how it is called.

In: matrices. Out: `LibraryCall`s. Invariant: operands come in any strides; a result has the layout
that the primitive's shape rule promised. Float32 goes to torch's BLAS or to oneDNN, whichever
`ctx.choices` prefers for the sizes.
"""

from __future__ import annotations

import torch

from flambeau_inductor.indexing import hint, same_sizes, static_sizes
from flambeau_inductor.ir.call_with_epilogue import NOTHING
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.ir.tensors import Argument, Node, View, dims_of
from flambeau_inductor.lowering.context import Context
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.tuning import host_tuning

PRODUCTS = {"mm": "aten.mm.out", "bmm": "aten.bmm.out"}
"""Matrix products: they take operands of any strides and write into given memory."""

ONEDNN = "mkldnn._linear_pointwise.default"
ONEDNN_MORE = "mkldnn._linear_pointwise.binary"

PART = 1024
"""oneDNN adds up all the terms one by one, which rounds more than a BLAS does that adds parts of
them: sums of more terms than this are computed in parts."""


@rule(*PRODUCTS)
def product(ctx: Context, name: str, a: Node, b: Node) -> Lowered:
    if name == "mm" and by_onednn(ctx, a, b):
        return linear(ctx, a, b)
    return single(ctx.call(PRODUCTS[name], (a, b), out=True, any_strides=True))


@rule("addmm", "baddbmm")
def product_and_sum(
    ctx: Context, name: str, x: Node, a: Node, b: Node, beta: Scalar, alpha: Scalar
) -> Lowered:
    summand = _row(x) if name == "addmm" else x
    if name == "addmm" and len(summand.shape) == 1 and beta == alpha == 1:
        if summand.dtype == a.dtype and by_onednn(ctx, a, b):
            return linear(ctx, a, b, summand)
    kwargs = (("beta", beta), ("alpha", alpha))
    args = (summand, a, b)
    return single(ctx.call(f"aten.{name}.out", args, kwargs, out=True, any_strides=True))


def _row(x: Node) -> Node:
    """The row that `x` repeats, which libraries add as they store; a matrix would be copied."""
    define = x.define
    if isinstance(define, View) and same_sizes(define.base.shape, x.shape[1:]):
        if define.index == dims_of(2)[1:]:
            return define.base
    return x


def by_onednn(ctx: Context, a: Node, b: Node) -> bool:
    """Whether oneDNN computes this product, and does so sooner than torch's BLAS."""
    sizes = static_sizes((*a.shape, b.shape[1]))
    if a.device.type != "cpu" or a.dtype != torch.float32 or b.dtype != torch.float32:
        return False
    if sizes is None:
        return False  # how large it will be is not known
    (rows, terms, columns), tuning = sizes, host_tuning()
    large = 2 * rows * terms * columns >= ctx.choices.least_operations
    if not large or min(rows, columns) < tuning.onednn_least_side:
        return False
    few = min(rows, columns) < tuning.onednn_parts_side
    if terms > PART and (few or terms > PART * tuning.onednn_parts):
        return False
    return ctx.choices.onednn_products((rows, terms, columns))


def multiplied(ctx: Context, a: Node, b: Node, bias: Node | None = None) -> Node:
    """`a @ b + bias` of matrices, row-major, by whom it is computed soonest."""
    if by_onednn(ctx, a, b):
        return linear(ctx, a, b, bias)
    target, args = (PRODUCTS["mm"], (a, b)) if bias is None else ("aten.addmm.out", (bias, a, b))
    return single(ctx.call(target, args, out=True, any_strides=True, metas=(_row_major(a, b),)))


def _row_major(a: Node, b: Node) -> Layout:
    rows, columns = a.shape[0], b.shape[1]
    return Layout((rows, columns), (columns, 1), a.dtype, a.device)


def linear(ctx: Context, a: Node, b: Node, bias: Node | None = None) -> Node:
    """`a @ b + bias` by oneDNN, row-major, where `by_onednn` accepts it."""
    rows, terms, columns = *a.shape, b.shape[1]
    total: Node | None = None
    args: tuple[Argument, ...]
    parts = _parts(hint(terms))
    after = ctx.epilogue if len(parts) == 1 else NOTHING
    for start, count in parts:
        row, term = dims_of(2)
        some = ctx.view(a, (rows, count), (row, term + start))
        weight = ctx.view(b, (columns, count), (term + start, row))
        target, args = ONEDNN_MORE, (some, total, weight, None, "add")
        if total is None:
            target, args = ONEDNN, (some, weight, bias, *after)
        total = single(ctx.call(target, args, any_strides=True, metas=(_row_major(a, b),)))
    assert total is not None
    return total


def _parts(terms: int) -> list[tuple[int, int]]:
    """First term and number of terms of parts of about equal length."""
    count = -(-terms // PART)
    length = -(-terms // (16 * count)) * 16
    return [(start, min(length, terms - start)) for start in range(0, terms, length)]
