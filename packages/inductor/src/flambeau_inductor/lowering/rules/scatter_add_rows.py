"""Lowering of row-wise scatter-add into large tables on GPUs.

In: a table, where each row goes, the rows. Out: a call that kernels take the place of. Invariant:
what is read and written has the program's own dtype, and sums are float32, rounded once.

The primitive is given a table and rows that were widened before, and its result is narrowed behind
it: the call takes what was widened, and is made anew where it is narrowed.
"""

from __future__ import annotations

from math import prod

import torch

from flambeau_inductor.indexing import static_sizes
from flambeau_inductor.ir.tensors import Literal, Node, Pointwise, Result, Shape, View, flat_strides
from flambeau_inductor.lowering.context import Context, Meta
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.lowering.rules.reduction import HALF
from flambeau_inductor.runtime.scatter_add_rows import ROWS_ADDED

SPARED = 100 << 20
"""Bytes that atomic additions move besides, from which on the rows are put in order first.

Measured on an H200, us by atomic additions and in order, words by Zipf's law: the gradient of
GPT-2's embedding (50257 rows of 768) for 4096 words in bfloat16 106 and 67 (335 MB besides), in
float32 51 and 90 (25 MB), for 16384 words in float32 83 and 103 (101 MB); 10000 rows of 256 for
65536 words in float32 93 and 85 (134 MB); 50000 rows of 4096 for 65536 in bfloat16 1030 and 328.
"""
WIDTH = 128
"""Fewer elements are no row that a program of its own is worth."""
LEAST_WIDTH = 32
"""The same where a table of float32 would be held besides."""


def added_in_order(
    ctx: Context, a: Node, rows: Node, values: Node, spared_from: int = SPARED
) -> Node | None:
    """`a` with rows of values added; None where atomic additions cost no more: where they move
    fewer than `spared_from` bytes besides (0: for the memory that they take besides)."""
    shape, added = static_sizes(a.shape), static_sizes(values.shape)
    least = WIDTH if spared_from else LEAST_WIDTH
    if shape is None or added is None or len(shape) != 2 or shape[1] < least:
        return None
    source = _narrowest(ctx, values)
    # a sum is read and written where it is added to, and all of a table for half precision again
    spared = 8 * prod(added) + (8 * prod(shape) if source.dtype in HALF else 0)
    if spared < spared_from or max(prod(shape), prod(added)) >= 2**40 or added[0] >= 2**30:
        return None
    zeros = isinstance(a.define, Literal) and a.define.value == 0
    base = None if zeros else _narrowest(ctx, a)
    return _called(ctx, rows, source, shape, a.dtype, base)


def narrowed(ctx: Context, node: Node, dtype: torch.dtype) -> Node | None:
    """The result of such a call as `dtype`, of half precision; None for anything else."""
    define = node.define
    if dtype not in HALF or not isinstance(define, Result) or define.call.target != ROWS_ADDED:
        return None
    rows, values, _, _, base = define.call.args
    assert isinstance(rows, Node) and isinstance(values, Node)
    assert base is None or isinstance(base, Node)
    return _called(ctx, rows, values, node.shape, dtype, base)


def _called(
    ctx: Context, rows: Node, values: Node, shape: Shape, dtype: torch.dtype, base: Node | None
) -> Node:
    made = Meta(shape, flat_strides(shape), dtype, values.device)
    args = (rows, values, shape[0], dtype, base)
    return single(ctx.call(ROWS_ADDED, args, metas=(made,)))


def _narrowest(ctx: Context, node: Node) -> Node:
    """What was widened to float32 for the sums, or the node."""
    found = None
    if node.dtype == torch.float32:
        for dtype in HALF:
            found = found or _before_widening(ctx, node, dtype)
    return found or node


def _before_widening(ctx: Context, node: Node, dtype: torch.dtype) -> Node | None:
    """`node`, which holds numbers of `dtype` in float32, in that; None if it may hold others."""
    define = node.define
    if isinstance(define, View):
        base = _before_widening(ctx, define.base, dtype)
        return None if base is None else ctx.view(base, node.shape, define.index)
    if isinstance(define, Literal) and define.value == 0:
        return ctx.literal(0.0, node.shape, dtype, node.device)
    if not isinstance(define, Pointwise):
        return None
    if define.op == "clone":
        return _before_widening(ctx, define.args[0], dtype)
    if define.op == "cast":
        (source,) = define.args
        return source if source.dtype == dtype else None
    if define.op == "where":
        chosen = [_before_widening(ctx, arg, dtype) for arg in define.args[1:]]
        if all(isinstance(each, Node) for each in chosen):
            return ctx.point("where", (define.args[0], *(n for n in chosen if n)), dtype)
    return None
