"""Lowering of writes through index tensors.

In: a node, integer nodes, values. Out: `Scatter` nodes after checks of their positions; library
calls. Invariant: values that meet on a CPU are combined in row-major order by one thread, as in
eager, so that sums have the same bits; on a GPU they are added in float32 in any order, unless one
was requested, and rounded once: by atomic additions, or row by row into large tables, where the
call takes what was widened for the sum, and is made anew where its result is narrowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch

from flambeau_inductor.indexing import (
    Expr,
    as_expr,
    decide_equal,
    hint,
    same,
    same_sizes,
    static_sizes,
)
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.ir.tensors import (
    IndexLookup,
    Literal,
    Node,
    Pointwise,
    Result,
    Scatter,
    Shape,
    View,
    dims_of,
    flat_strides,
    spread,
)
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import addressed, looked_up, out_of_bounds, single
from flambeau_inductor.lowering.rules.reduction import HALF
from flambeau_inductor.runtime.operators import ROWS_ADDED
from flambeau_inductor.tuning import tuning_of


def added_in_order(
    ctx: Context, a: Node, rows: Node, values: Node, spared_from: int | None = None
) -> Node | None:
    """`a` with rows of values added; None where atomic additions cost no more: where they move
    fewer than `spared_from` bytes besides (None: as measured; 0: for the memory that they take)."""
    tuning = tuning_of((a.device,))
    width, least_width = tuning.added_rows_widths
    spared_from = tuning.added_rows_bytes if spared_from is None else spared_from
    shape, added = static_sizes(a.shape), static_sizes(values.shape)
    least = width if spared_from else least_width
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
    made = Layout(shape, flat_strides(shape), dtype, values.device)
    args = (rows, values, shape[0], dtype, base)
    return single(ctx.call(ROWS_ADDED, args, metas=(made,)))


def _narrowest(ctx: Context, node: Node) -> Node:
    """What was widened to float32 for the sums, or the node."""
    tried = (_before_widening(ctx, node, dtype) for dtype in HALF if node.dtype == torch.float32)
    return next(filter(None, tried), node)


def _before_widening(ctx: Context, node: Node, dtype: torch.dtype) -> Node | None:
    """What `node` widened from `dtype` to float32; None if it may hold other numbers."""
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


MODES = {
    "scatter": ("set", "aten.scatter.src", ()),
    "scatter_add": ("add", "aten.scatter_add.default", ()),
    "scatter_prod": ("mul", "aten.scatter_reduce.two", ("prod",)),
    "scatter_amax": ("max", "aten.scatter_reduce.two", ("amax",)),
    "scatter_amin": ("min", "aten.scatter_reduce.two", ("amin",)),
}
"""Primitive: the mode of its stores; the library's operator, and what it is given at the end."""


FEW = 4
"""So many times the values are fewer than the elements of a tensor of half precision, and it is not
made float32 for them."""
SUMMED = (torch.float32, torch.bfloat16, torch.float16)
"""Dtypes whose sums on a GPU are formed in float32."""


def _stored(
    ctx: Context, a: Node, src: Node, coordinates: tuple[Expr | IndexLookup, ...], mode: str
) -> Node:
    if mode != "set" and a.dtype == torch.bool:
        raise LoweringError("bools that are combined where they meet")
    base = ctx.point("clone", (a,))
    define = Scatter(base, coordinates, src, mode)
    return ctx.node(a.shape, a.dtype, a.device, define)


@rule(*MODES)
def scatter(ctx: Context, name: str, a: Node, dim: int, index: Node, src: Node) -> Lowered:
    mode, target, more = MODES[name]
    ordered = mode != "set" or ctx.deterministic
    if (a.device.type != "cpu" and ordered) or not a.shape:
        if mode == "add" and (made := _whole_rows(ctx, a, dim, index, src)) is not None:
            return made
        return single(ctx.call(target, (a, dim, index, src, *more)))
    if decide_equal(index.numel, 0):
        return ctx.point("clone", (a,))
    d = dims_of(len(a.shape))
    part = ctx.view(src, index.shape, d)
    lookup = looked_up(ctx, index, d, a.shape[dim], False, "RuntimeError", out_of_bounds(dim))
    return _stored(ctx, a, part, (*d[:dim], lookup, *d[dim + 1 :]), mode)


def _whole_rows(ctx: Context, a: Node, dim: int, index: Node, src: Node) -> Node | None:
    """Sums of whole rows; None where columns differ in place, or the library is as fast."""
    shape, define = index.shape, index.define
    fits = dim == 0 and len(a.shape) == len(shape) == 2 and same(shape[1], a.shape[1])
    if not fits or index.dtype != torch.int64 or not isinstance(define, View):
        return None
    row, column = dims_of(2)
    if any(column.vars & e.vars for e in define.index):
        return None
    (d0,) = dims_of(1)
    rows, values = ctx.view(index, shape[:1], (d0, as_expr(0))), ctx.view(src, shape, (row, column))
    if not (in_any_order(ctx, a) and a.dtype == values.dtype):
        return None
    # a negative place, which elsewhere counts from the end, is none here
    negative = ctx.point("lt", (rows, ctx.like(0, rows)), torch.bool)
    placed = ctx.point("where", (negative, ctx.like(a.shape[0], rows), rows), torch.int64)
    return added_in_order(ctx, a, placed, values)


@rule("index_put")
def index_put(
    ctx: Context, a: Node, indices: Sequence[Node | None], values: Node, accumulate: bool
) -> Lowered:
    if a.device.type == "cpu" or not (accumulate or ctx.deterministic):
        return _put(ctx, a, indices, values, "add" if accumulate else "set")
    adds = accumulate and in_any_order(ctx, a) and a.dtype == values.dtype
    rows = indices[0]
    if adds and rows is not None and len(indices) == 1 and rows.dtype == torch.int64:
        if same_sizes(values.shape, (*rows.shape, *a.shape[1:])) and len(rows.shape) == 1:
            return added(ctx, a, rows, values)
    few = a.dtype != torch.float32 and FEW * hint(values.numel) < hint(a.numel)
    if adds and not few:
        return _put_in_float32(ctx, a, indices, values)
    return single(ctx.call("aten.index_put.default", (a, tuple(indices), values, accumulate)))


def _put(ctx: Context, a: Node, indices: Sequence[Node | None], values: Node, mode: str) -> Node:
    shape, coordinates = addressed(ctx, a, indices)
    own = dims_of(len(shape))[len(shape) - len(values.shape) :]
    src = ctx.view(values, shape, spread(values.shape, own))
    if decide_equal(src.numel, 0):
        return ctx.point("clone", (a,))
    return _stored(ctx, a, src, coordinates, mode)


def added(ctx: Context, a: Node, rows: Node, values: Node, spared_from: int | None = None) -> Node:
    """Rows added to those of `a` in float32, rounded once at the end: in order where that moves
    so many bytes less, else by atomic additions."""
    ordered = added_in_order(ctx, a, rows, values, spared_from)
    return ordered or _put_in_float32(ctx, a, (rows,), values)


def _put_in_float32(ctx: Context, a: Node, indices: Sequence[Node | None], values: Node) -> Node:
    """`values` added by atomic additions in float32, rounded once at the end."""
    wide, src = (ctx.cast(node, torch.float32) for node in (a, values))
    return ctx.cast(_put(ctx, wide, indices, src, "add"), a.dtype)


def in_any_order(ctx: Context, node: Node) -> bool:
    """Whether sums of such a dtype, on such a device, may be formed by a kernel that does not sort
    what it adds: in float32, whatever the dtype is; the program may ask for a fixed order."""
    return node.device.type == "cuda" and node.dtype in SUMMED and not ctx.deterministic
