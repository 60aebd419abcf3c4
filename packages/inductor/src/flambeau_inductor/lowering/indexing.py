"""Reads through index tensors.

In: a node and integer nodes. Out: `Gather` nodes with a `Check` each.
Invariant: every index tensor that a kernel reads through has been checked first, so that no kernel
touches memory out of bounds and a bad index raises what eager raises.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_inductor.indexing import Expr, as_expr
from flambeau_inductor.ir.tensors import Literal, Lookup, Node, Position, View, dims_of
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import rule


@rule("index_select")
def index_select(ctx: Context, a: Node, dim: int, index: Node) -> Node:
    index = whole(ctx, index)
    shape = (*a.shape[:dim], index.shape[0], *a.shape[dim + 1 :])
    d = dims_of(len(shape))
    ctx.check(index, a.shape[dim], False, "IndexError", "index out of range in self")
    lookup = Lookup(index, (d[dim],), a.shape[dim], False)
    return ctx.gather(a, shape, (*d[:dim], lookup, *d[dim + 1 :]))


@rule("gather")
def gather(ctx: Context, a: Node, dim: int, index: Node) -> Node:
    if not a.shape:
        raise LoweringError("gather from a 0-d tensor")
    index = whole(ctx, index)
    d = dims_of(len(a.shape))
    size = a.shape[dim]
    message = f"index {{index}} is out of bounds for dimension {dim} with size {{size}}"
    ctx.check(index, size, False, "RuntimeError", message)
    lookup = Lookup(index, d, size, False)
    return ctx.gather(a, index.shape, (*d[:dim], lookup, *d[dim + 1 :]))


def addressed(
    ctx: Context, a: Node, indices: Sequence[Node | None]
) -> tuple[list[int], tuple[Expr | Lookup, ...]]:
    """The shape of `a[indices]`, and the coordinates in `a` of each of its elements."""
    given = [i for i, node in enumerate(indices) if node is not None]
    tensors = [whole(ctx, node) for node in indices if node is not None]
    rank = max(len(node.shape) for node in tensors)
    common = [1] * rank
    for node in tensors:
        for position, size in enumerate(node.shape, rank - len(node.shape)):
            if size != 1:
                common[position] = size
    adjacent = given == list(range(given[0], given[0] + len(given)))
    first = given[0] if adjacent else 0
    rest = [i for i in range(len(a.shape)) if i not in given]
    shape = [a.shape[i] for i in rest]
    shape[first:first] = common
    d = dims_of(len(shape))
    coordinates: list[Expr | Lookup] = [as_expr(0)] * len(a.shape)
    for position, i in enumerate(rest):
        coordinates[i] = d[position if position < first else position + rank]
    for i, node in zip(given, tensors, strict=True):
        size = a.shape[i]
        message = f"index {{index}} is out of bounds for dimension {i} with size {{size}}"
        ctx.check(node, size, True, "IndexError", message)
        start = first + rank - len(node.shape)
        own = tuple(as_expr(0) if n == 1 else d[start + p] for p, n in enumerate(node.shape))
        coordinates[i] = Lookup(node, own, size, True)
    return shape, tuple(coordinates)


@rule("index")
def index(ctx: Context, a: Node, indices: Sequence[Node | None]) -> Node:
    shape, coordinates = addressed(ctx, a, indices)
    return ctx.gather(a, shape, coordinates)


def whole(ctx: Context, index: Node) -> Node:
    """`index`, or a copy where it shows part of a tensor in a way that strides cannot describe.

    The check reads an index tensor through strides; the tensor behind it may hold positions that
    are never looked up. What is known without memory is left alone: it is checked while compiling.
    """
    root, strided = index, True
    while isinstance(root.define, View):
        affine = (e.coefficient(v) is not None for e in root.define.index for v in e.vars)
        strided = strided and all(affine)
        root = root.define.base
    known = isinstance(root.define, Literal | Position)
    if strided or known or root.numel == index.numel:
        return index
    return ctx.point("clone", (index,))


def single(results: Sequence[Node | None]) -> Node:
    """The only result of a call."""
    (result,) = results
    if result is None:
        raise LoweringError("a library call without a result")
    return result
