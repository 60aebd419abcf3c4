"""Lowering of shape primitives to index maps.

In: nodes and sizes. Out: `View` and `Choose` nodes. Invariant: no rule here reads an element; a
position that a map names is inside its base wherever its guards hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from flambeau_inductor.indexing import (
    Expr,
    Size,
    as_expr,
    decide_equal,
    hint,
    is_long,
    known,
    same,
    surely_less,
)
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.tensors import (
    Attribute,
    Choose,
    IndexCondition,
    Input,
    Joined,
    Node,
    Scatter,
    Shape,
    View,
    dim_ranges,
    dims_of,
    dot,
    flat_strides,
    spread,
    unflatten,
    viewed,
)
from flambeau_inductor.lowering.context import Context, LoweringError, convert
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single

CONCATENATION = "aten.cat.out"
MOST_PIECES = 8
"""More pieces than this are concatenated by the library: each element would select its piece."""


@rule("broadcast_in_dim")
def broadcast_in_dim(ctx: Context, a: Node, shape: Sequence[int], dims: Sequence[int]) -> Node:
    d = dims_of(len(shape))
    return ctx.view(a, shape, spread(a.shape, [d[dim] for dim in dims]))


@rule("reshape")
def reshape(
    ctx: Context, a: Node, shape: Sequence[int], stride: Sequence[int] | None = None
) -> Node:
    sizes = tuple(shape)
    if a.dtype.is_complex:
        raise LoweringError("reshape may copy, and complex numbers have no kernels")
    if decide_equal(prod(sizes), 0):
        return ctx.view(a, sizes, tuple(as_expr(0) for _ in a.shape))
    flat = dot(dims_of(len(sizes)), flat_strides(sizes))
    return ctx.view(a, sizes, unflatten(flat, a.shape, dim_ranges(sizes)))


@rule("permute")
def permute(ctx: Context, a: Node, dims: Sequence[int]) -> Node:
    d = dims_of(len(dims))
    index: list[Expr] = [as_expr(0)] * len(dims)
    for position, source in enumerate(dims):
        index[source] = d[position]
    return ctx.view(a, [a.shape[s] for s in dims], tuple(index))


@rule("slice")
def slice_(
    ctx: Context, a: Node, start: Sequence[int], stop: Sequence[int], step: Sequence[int]
) -> Node:
    shape = [(e - b + s - 1) // s for b, e, s in zip(start, stop, step, strict=True)]
    d = dims_of(len(shape))
    return ctx.view(a, shape, tuple(d[i] * step[i] + start[i] for i in range(len(shape))))


@rule("flip")
def flip(ctx: Context, a: Node, dims: Sequence[int]) -> Node:
    d = dims_of(len(a.shape))
    index = tuple((size - 1) - d[i] if i in dims else d[i] for i, size in enumerate(a.shape))
    return ctx.point("clone", (ctx.view(a, a.shape, index),))


@rule("cat")
def cat(ctx: Context, xs: Sequence[Node], dim: int) -> Lowered:
    pieces = [x for x in xs if not surely_less(x.shape[dim], 1)]
    if len(pieces) < 2:
        return ctx.point("clone", ((*pieces, *xs)[:1]))
    if len(pieces) > MOST_PIECES:
        return single(ctx.call(CONCATENATION, (tuple(pieces), dim), out=True))
    return joined(ctx, pieces, dim)


def joined(ctx: Context, pieces: Sequence[Node], dim: int) -> Node:
    """Nodes one after another along a dimension."""
    first = pieces[0]
    total = sum(x.shape[dim] for x in pieces)
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    d = dims_of(len(shape))
    begin: Size = 0
    branches: list[tuple[tuple[IndexCondition, ...], Node]] = []
    for x in pieces:
        end = begin + x.shape[dim]
        index = (*d[:dim], d[dim] - begin, *d[dim + 1 :])
        guards = _between(d[dim], begin, end, total)
        branches.append((tuple(guards), shifted(ctx, x, shape, index)))
        begin = end
    other = ctx.literal(0, shape, first.dtype, first.device)
    choice = Choose(tuple(branches), other, Joined(tuple(pieces), dim))
    return ctx.node(shape, first.dtype, first.device, choice)


def _between(position: Expr, begin: Size, end: Size, size: Size) -> list[IndexCondition]:
    """The conditions, of those that do not hold in a dimension of `size` anyway."""
    sure = known("lt", begin, 1), known("lt", size - 1, end)
    guards = [] if sure[0] else [IndexCondition("ge", position, begin)]
    return guards if sure[1] else [*guards, IndexCondition("lt", position, end)]


def _where_inside(
    ctx: Context,
    a: Node,
    guards: Sequence[IndexCondition],
    index: tuple[Expr, ...],
    other: Node,
    joined: Joined | None = None,
) -> Node:
    """`a` at `index` where the guards hold, else `other`."""
    if not guards:
        return ctx.point("clone", (a,))
    inside = shifted(ctx, a, other.shape, index)
    choice = Choose(((tuple(guards), inside),), other, joined)
    return ctx.node(other.shape, other.dtype, other.device, choice)


@rule("pad")
def pad(ctx: Context, a: Node, low: Sequence[int], high: Sequence[int], value: Scalar) -> Node:
    shape = tuple(b + n + e for b, n, e in zip(low, a.shape, high, strict=True))
    filling = ctx.literal(convert(value, a.dtype), shape, a.dtype, a.device)
    if decide_equal(a.numel, 0):
        return ctx.point("clone", (filling,))
    d = dims_of(len(shape))
    guards: list[IndexCondition] = []
    for i, size in enumerate(a.shape):
        if not known("lt", low[i], 1):
            guards.append(IndexCondition("ge", d[i], low[i]))
        if not known("lt", high[i], 1):
            guards.append(IndexCondition("lt", d[i], low[i] + size))
    index = tuple(d[i] - low[i] for i in range(len(shape)))
    return _where_inside(ctx, a, guards, index, filling, _longer_rows(ctx, a, guards, filling))


def _longer_rows(
    ctx: Context, a: Node, guards: Sequence[IndexCondition], filling: Node
) -> Joined | None:
    """What a pad at the end of rows amounts to on a GPU, where a loop over the rows of `a` may
    store them in place."""
    last = len(a.shape) - 1
    if a.device.type == "cpu" or [(g.op, g.index) for g in guards] != [
        ("lt", dims_of(last + 1)[-1])
    ]:
        return None
    shape = (*a.shape[:last], filling.shape[last] - a.shape[last])
    return Joined((a, ctx.view(filling, shape, dims_of(last + 1))), last)


SMALL_PART = 4
"""So many times a written part is fewer elements than its tensor, and a loop goes over it alone."""


@rule("slice_scatter")
def slice_scatter(
    ctx: Context, a: Node, src: Node, start: Sequence[int], stop: Sequence[int], step: Sequence[int]
) -> Node:
    if decide_equal(src.numel, 0):
        return ctx.point("clone", (a,))
    d = dims_of(len(a.shape))
    if ctx.origin in ctx.written_parts and SMALL_PART * hint(src.numel) <= hint(a.numel):
        places = tuple(d[i] * step[i] + start[i] for i in range(len(d)))
        alone = ctx.written_parts[ctx.origin] and isinstance(a.define, Scatter)
        define = Scatter(a if alone else ctx.point("clone", (a,)), places, src, "set")
        return ctx.node(a.shape, a.dtype, a.device, define)
    guards: list[IndexCondition] = []
    index: list[Expr] = []
    for i, size in enumerate(a.shape):
        begin, stride = start[i], step[i]
        last = begin + (src.shape[i] - 1) * stride
        guards += _between(d[i], begin, last + 1, size)
        if stride > 1:
            guards.append(IndexCondition("eq", (d[i] - begin) % stride, 0))
        index.append((d[i] - begin) // stride)
    return _where_inside(ctx, src, guards, tuple(index), a)


@rule("as_strided")
def as_strided(
    ctx: Context, a: Node, size: Sequence[int], stride: Sequence[int], offset: int
) -> Node:
    """As an index map, where the storage of `a` is known to hold it alone, without gaps."""
    if isinstance(a.define, View | Input | Attribute):
        raise LoweringError("as_strided on a view counts from the start of another storage")
    return _restrided(ctx, a, size, stride, offset)


@rule("restride")
def restride(ctx: Context, a: Node, size: Sequence[int], stride: Sequence[int]) -> Node:
    """As `as_strided`, from the first element of `a` on: wherever its storage begins."""
    if isinstance(a.define, View):
        raise LoweringError("the strides of a view are not those of its memory")
    return _restrided(ctx, a, size, stride, 0)


def _restrided(
    ctx: Context, a: Node, size: Sequence[int], stride: Sequence[int], offset: int
) -> Node:
    own = ctx.graph.stride_of(a)
    order = sorted((i for i, n in enumerate(a.shape) if is_long(n)), key=lambda i: -hint(own[i]))
    expected: Size = 1
    for i in reversed(order):
        if not same(own[i], expected):
            raise LoweringError(f"as_strided on storage with gaps ({a.shape}, {own})")
        expected *= a.shape[i]
    sizes = tuple(size)
    last = offset + sum((n - 1) * s for n, s in zip(sizes, stride, strict=True))
    inside = surely_less(last, a.numel) and all(surely_less(-1, step) for step in stride)
    if decide_equal(prod(sizes), 0) or not inside:
        raise LoweringError("as_strided beyond the elements of its operand")
    flat = dot(dims_of(len(sizes)), stride, offset)
    packed = unflatten(flat, [a.shape[i] for i in order], dim_ranges(sizes))
    index: list[Expr] = [as_expr(0)] * len(a.shape)
    for position, i in enumerate(order):
        index[i] = packed[position]
    return ctx.view(a, sizes, tuple(index))


def shifted(ctx: Context, a: Node, shape: Shape, index: tuple[Expr, ...]) -> Node:
    """A view that is only valid under guards: its map is kept as written.

    Positions outside `a` occur where the guards fail, so ranges must not be used to simplify.
    """
    return ctx.node(shape, a.dtype, a.device, viewed(a, index))
