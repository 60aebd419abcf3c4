"""Lowering of matrix products: which library, and how it is called.

In: matrices. Out: `LibraryCall`s; on a GPU sums of products where an operand is a few vectors.
Invariant: operands come in any strides; a result has the layout that its primitive promised.
Float32 goes to torch's BLAS or to oneDNN, whichever `ctx.choices` prefers for the sizes.

A matrix times a few vectors takes as long as reading the matrix once, and no tensor unit makes that
shorter. As a sum like any other it is fused like any other: with what its
operands are made of (weights in bytes and their scales), with what follows, and with the sums over
another matrix that the same vector is multiplied by.
"""

from __future__ import annotations

import torch

from flambeau_inductor.indexing import hint, same_sizes, static_sizes
from flambeau_inductor.ir.call_with_epilogue import NOTHING
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.ir.tensors import (
    Argument,
    Node,
    Pointwise,
    Reduction,
    View,
    dims_of,
    dot,
    spread,
)
from flambeau_inductor.lowering.context import Context
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.lowering.rules.packed_weights import COLUMN, GROUP, packed_weight
from flambeau_inductor.lowering.rules.shape import joined
from flambeau_inductor.runtime.operators import PACKED_PRODUCT, WIDENED_PRODUCT
from flambeau_inductor.tuning import host_tuning, tuning_of

PRODUCTS = {"mm": "aten.mm.out", "bmm": "aten.bmm.out"}
"""Matrix products: they take operands of any strides and write into given memory."""

BYTES = frozenset({torch.int8, torch.uint8})
"""Dtypes that templates widen as they read."""

SUMMED = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""Dtypes whose products are summed in float32."""

ONEDNN = "mkldnn._linear_pointwise.default"
ONEDNN_MORE = "mkldnn._linear_pointwise.binary"

PART = 1024
"""oneDNN adds up all the terms one by one, which rounds more than a BLAS does that adds parts of
them: sums of more terms than this are computed in parts."""


@rule(*PRODUCTS)
def product(ctx: Context, name: str, a: Node, b: Node) -> Lowered:
    if name == "mm" and (packed := packed_operands(ctx, a, b)) is not None:
        return single(ctx.call(PACKED_PRODUCT, (a, *packed), any_strides=True))
    if name == "mm" and (stored := widened(ctx, a, b)) is not None:
        return single(ctx.call(WIDENED_PRODUCT, (a, stored), any_strides=True))
    if by_vectors(a, b):
        return ctx.cast(summed_by_rows(ctx, a, b), a.dtype)
    if name == "mm" and by_onednn(ctx, a, b):
        return linear(ctx, a, b)
    return single(ctx.call(PRODUCTS[name], (a, b), out=True, any_strides=True))


@rule("addmm", "baddbmm")
def product_and_sum(
    ctx: Context, name: str, x: Node, a: Node, b: Node, beta: Scalar, alpha: Scalar
) -> Lowered:
    if by_vectors(a, b):
        return _added(ctx, x, summed_by_rows(ctx, a, b), beta, alpha)
    summand = _row(x) if name == "addmm" else x
    if name == "addmm" and len(summand.shape) == 1 and beta == alpha == 1:
        if summand.dtype == a.dtype and by_onednn(ctx, a, b):
            return linear(ctx, a, b, summand)
    kwargs = (("beta", beta), ("alpha", alpha))
    args = (summand, a, b)
    return single(ctx.call(f"aten.{name}.out", args, kwargs, out=True, any_strides=True))


def by_vectors(a: Node, b: Node) -> bool:
    """Whether a product on a GPU is of so few vectors that its time is that of reading the matrix:
    of one, or of a few where the library would have to be given a matrix that is computed, such as
    one of weights in bytes. The library multiplies float64, and sizes that are open, as it did."""
    sizes = static_sizes((*a.shape, *b.shape))
    if a.device.type != "cuda" or a.dtype not in SUMMED or sizes is None or 0 in sizes:
        return False
    rows, terms, columns = hint(a.shape[-2]), hint(a.shape[-1]), hint(b.shape[-1])
    few = tuning_of((a.device,)).vector_rows if len(a.shape) == 2 and _is_computed(b) else 1
    return terms > 1 and (columns == 1 or (rows <= few and (rows == 1 or rows < columns)))


def widened(ctx: Context, a: Node, b: Node) -> Node | None:
    """What lies in memory of the right operand, its inner dimension in one piece, where a template
    for a few vectors widens it as it reads; None where it is nothing that is widened."""
    define = b.define if isinstance(b.define, View) else View(b, dims_of(2))
    cast, index = define.base.define, define.index
    if not isinstance(cast, Pointwise) or cast.op != "cast" or cast.args[0].dtype not in BYTES:
        return None
    sizes = static_sizes((*a.shape, *b.shape))
    if _is_computed(cast.args[0]) or a.device.type != "cuda" or sizes is None or 0 in sizes:
        return None
    if not tuning_of((a.device,)).widens_few(sizes[0], sizes[1], a.dtype):
        return None
    stored = ctx.view(cast.args[0], b.shape, index)
    whole = dot(index, cast.args[0].stride)
    return stored if whole.coefficient(dims_of(1)[0].name) == 1 else None


def packed_operands(ctx: Context, a: Node, b: Node) -> tuple[Argument, ...] | None:
    """The arguments after `a` of a product of a few vectors by a matrix of four bits an element;
    None where it is nothing that a template takes."""
    sizes = static_sizes((*a.shape, *b.shape))
    if a.device.type != "cuda" or not _is_computed(b) or sizes is None or 0 in sizes:
        return None
    if a.dtype != b.dtype or not tuning_of((a.device,)).unpacks_few(sizes[0], sizes[1], a.dtype):
        return None
    packed = packed_weight(b)
    if packed is None:
        return None
    scales = packed.scales
    if scales is not None:
        places = {each.name: d for each, d in zip((COLUMN, GROUP), dims_of(2), strict=True)}
        index = tuple(each.substitute(places) for each in packed.index)
        scales = ctx.view(scales, (sizes[3], sizes[1] // packed.group), index)
    return packed.words, scales, packed.group, packed.zero


def _is_computed(x: Node) -> bool:
    """Whether the elements of a matrix are computed of others, and are not in memory yet."""
    while isinstance(x.define, View):
        x = x.define.base
    return isinstance(x.define, Pointwise)


def summed_by_rows(ctx: Context, a: Node, b: Node) -> Node:
    """`a @ b` in float32, each row a sum of its own, so that all are made of one reading of `b`."""
    if 1 in (hint(a.shape[-2]), hint(b.shape[-1])):
        return summed(ctx, a, b)
    row, term = dims_of(2)
    rows = (
        ctx.view(a, (1, a.shape[1]), (row + number, term)) for number in range(hint(a.shape[0]))
    )
    return joined(ctx, [summed(ctx, each, b) for each in rows], 0)


def summed(ctx: Context, a: Node, b: Node) -> Node:
    """`a @ b` as a sum in float32, which is not rounded to the operands' dtype."""
    *batch, row, column, term = dims_of(len(a.shape) + 1)
    shape = (*a.shape[:-1], b.shape[-1], a.shape[-1])
    left = ctx.view(a, shape, (*batch, row, term))
    right = ctx.view(b, shape, (*batch, term, column))
    wide = [ctx.cast(each, torch.float32) for each in (left, right)]
    define = Reduction("sum", ctx.point("mul", wide), (len(shape) - 1,))
    return ctx.node(shape[:-1], torch.float32, a.device, define)


def _added(ctx: Context, x: Node, total: Node, beta: Scalar, alpha: Scalar) -> Node:
    """`alpha * total + beta * x`, rounded once; what is multiplied by 0 is not read."""
    scaled = [(total, alpha)]
    if beta != 0:
        whole = ctx.view(x, total.shape, spread(x.shape, dims_of(len(x.shape))))
        scaled.append((ctx.cast(whole, torch.float32), beta))
    terms = [
        each if factor == 1 else ctx.point("mul", (each, ctx.like(factor, each)))
        for each, factor in scaled
    ]
    made = terms[0] if len(terms) == 1 else ctx.point("add", terms)
    return ctx.cast(made, x.dtype)


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
