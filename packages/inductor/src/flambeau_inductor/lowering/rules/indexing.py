"""Lowering of reads through index tensors.

In: a node and integer nodes. Out: `Gather` nodes with a `Check` each.
Invariant: every index tensor that a kernel reads through has been checked first, and once, so that
no kernel touches memory out of bounds and a bad index raises what eager raises.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_inductor.indexing import Expr, Size, as_expr, decide_equal, same
from flambeau_inductor.ir.tensors import (
    Gather,
    Index,
    IndexLookup,
    Literal,
    Node,
    Position,
    View,
    at,
    dims_of,
    spread,
    viewed,
)
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import rule

IN_SELF = ("IndexError", "index out of range in self")
OF_SECOND = ("RuntimeError", "INDICES element is out of DATA bounds, id={index} axis_dim={size}")
"""How eager refuses to select a slice, and one along the second dimension: by another kernel."""


@rule("bounds_checked")
def bounds_checked(ctx: Context, index: Node, size: Size, error: str, message: str) -> Node:
    """Each position looked up among all positions, which finds itself: read once checked."""
    d = dims_of(len(index.shape))
    lookup = looked_up(ctx, index, d, size, False, error, message)
    numbers = ctx.node((size,), torch.int64, index.device, Position(dims_of(1)[0]))
    return ctx.gather(numbers, index.shape, (lookup,))


def looked_up(
    ctx: Context, index: Node, where: Index, size: Size, wrap: bool, error: str, message: str
) -> IndexLookup:
    """The element of `index` at `where` as a position in a dimension of `size`, all of `index`
    having been checked; or the checked positions of which it is made."""
    seen = viewed(index, where)
    if (checked := _found_itself(seen.base)) is not None and same(checked.size, size):
        return IndexLookup(checked.node, at(checked.index, seen.index), size, False)
    index, where = _unrepeated(ctx, whole(ctx, index), where)
    ctx.check(index, size, wrap, error, message)
    return IndexLookup(index, where, size, wrap)


def _unrepeated(ctx: Context, index: Node, where: Index) -> tuple[Node, Index]:
    """`index` without the dimensions along which it repeats itself, and `where` in it."""
    if not isinstance(index.define, View) or decide_equal(index.numel, 0):
        return index, where
    needed = {name for e in index.define.index for name in e.vars}
    dims = dims_of(len(index.shape))
    kept = [k for k, d in enumerate(dims) if d.name in needed]
    if len(kept) == len(dims):
        return index, where
    place = dict(zip(kept, dims_of(len(kept)), strict=True))
    once = tuple(place.get(k, as_expr(0)) for k in range(len(dims)))
    shown = ctx.view(index, [index.shape[k] for k in kept], once)
    return shown, tuple(where[k] for k in kept)


def _found_itself(node: Node) -> IndexLookup | None:
    """The lookup of which a node is the result, if it was looked up among positions."""
    define = node.define
    if not isinstance(define, Gather) or not isinstance(define.base.define, Position):
        return None
    (lookup,) = define.index if len(define.index) == 1 else (None,)
    itself = define.base.define.index == dims_of(1)[0]
    return lookup if itself and isinstance(lookup, IndexLookup) and not lookup.wrap else None


@rule("index_select")
def index_select(ctx: Context, a: Node, dim: int, index: Node) -> Node:
    shape = (*a.shape[:dim], index.shape[0], *a.shape[dim + 1 :])
    d = dims_of(len(shape))
    refusal = OF_SECOND if dim == 1 else IN_SELF
    lookup = looked_up(ctx, index, (d[dim],), a.shape[dim], False, *refusal)
    return ctx.gather(a, shape, (*d[:dim], lookup, *d[dim + 1 :]))


@rule("gather")
def gather(ctx: Context, a: Node, dim: int, index: Node) -> Node:
    if not a.shape:
        raise LoweringError("gather from a 0-d tensor")
    d = dims_of(len(a.shape))
    lookup = looked_up(ctx, index, d, a.shape[dim], False, "RuntimeError", out_of_bounds(dim))
    return ctx.gather(a, index.shape, (*d[:dim], lookup, *d[dim + 1 :]))


def out_of_bounds(dim: int) -> str:
    """What eager says of a position outside along `dim`."""
    return f"index {{index}} is out of bounds for dimension {dim} with size {{size}}"


def addressed(
    ctx: Context, a: Node, indices: Sequence[Node | None]
) -> tuple[list[Size], tuple[Expr | IndexLookup, ...]]:
    """The shape of `a[indices]`, and the coordinates in `a` of each of its elements."""
    given = [i for i, node in enumerate(indices) if node is not None]
    tensors = [node for node in indices if node is not None]
    rank = max(len(node.shape) for node in tensors)
    common: list[Size] = [1] * rank
    for node in tensors:
        for position, size in enumerate(node.shape, rank - len(node.shape)):
            if not decide_equal(size, 1):
                common[position] = size
    adjacent = given == list(range(given[0], given[0] + len(given)))
    first = given[0] if adjacent else 0
    rest = [i for i in range(len(a.shape)) if i not in given]
    shape = [a.shape[i] for i in rest]
    shape[first:first] = common
    d = dims_of(len(shape))
    coordinates: list[Expr | IndexLookup] = [as_expr(0)] * len(a.shape)
    for position, i in enumerate(rest):
        coordinates[i] = d[position if position < first else position + rank]
    for i, node in zip(given, tensors, strict=True):
        own = spread(node.shape, d[first + rank - len(node.shape) : first + rank])
        size = a.shape[i]
        coordinates[i] = looked_up(ctx, node, own, size, True, "IndexError", out_of_bounds(i))
    return shape, tuple(coordinates)


@rule("index")
def index(ctx: Context, a: Node, indices: Sequence[Node | None]) -> Node:
    shape, coordinates = addressed(ctx, a, indices)
    return ctx.gather(a, shape, coordinates)


def whole(ctx: Context, index: Node) -> Node:
    """`index`, or a copy where it shows part of a tensor in a way that strides cannot describe.

    The check reads an index tensor through strides; its base may have positions that
    are never looked up. What is known without memory is left alone: it is checked while compiling.
    """
    root, strided = index, True
    while isinstance(root.define, View):
        affine = (e.coefficient(v) is not None for e in root.define.index for v in e.vars)
        strided = strided and all(affine)
        root = root.define.base
    known = isinstance(root.define, Literal | Position)
    if strided or known or same(root.numel, index.numel):
        return index
    return ctx.point("clone", (index,))


def single(results: Sequence[Node | None]) -> Node:
    """The only result of a call."""
    (result,) = results
    if result is None:
        raise LoweringError("a library call without a result")
    return result
