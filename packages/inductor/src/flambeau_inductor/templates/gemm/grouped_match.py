"""Pattern matching of grouped products.

In: a library call. Out: its `Product`; None for one that no template takes. Invariant: where groups
end is never read on the host.

Of two operands one or both are matrices in which the groups lie behind each other: rows of the left
one (the tokens of each expert, with a matrix of weights an expert), columns of the right one, or
both along the inner dimension (gradients of such weights). Two batches are an ordinary product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch

from flambeau_inductor.ir.program import Argument, Extern, Layout, Ref
from flambeau_inductor.templates.gemm.operand_layout import Static, dtype_of, row_major, static_of
from flambeau_inductor.templates.gemm.problem import Groups, Matrix, Product
from flambeau_inductor.templates.gemm.tiles import GemmTile, candidates, seconds
from flambeau_inductor.tuning import MEASURED, Tuning

TARGET = "aten._grouped_mm.default"
NAMES = ("self", "mat2", "offs", "bias", "out_dtype")
HALF = frozenset({torch.bfloat16, torch.float16})
MOST = 1024
"""Groups: a program looks at the ends of all of them."""


def grouped_of(step: Extern, layouts: Mapping[str, Layout]) -> Product | None:
    """The product that a call is."""
    given = dict(zip(NAMES, step.args, strict=False)) | dict(step.kwargs)
    if given.get("bias") is not None or not step.results or step.results[0] is None:
        return None
    into = Ref(step.results[0])
    a, b, out = (static_of(each, layouts) for each in (given["self"], given["mat2"], into))
    if a is None or b is None or out is None:
        return None
    dtype = layouts[into.buffer].dtype
    if dtype not in HALF or any(dtype_of(given[n], layouts) != dtype for n in ("self", "mat2")):
        return None
    (left, _, _), (right, _, _), (shape, strides, _) = a, b, out
    if 0 in (*left, *right, *shape) or strides != row_major(shape):
        return None
    groups = _groups(given.get("offs"), layouts, (len(left), len(right)))
    if groups is None and (len(left), len(right)) != (3, 3):
        return None
    batch = shape[0] if len(shape) == 3 else 1
    return Product(
        _matrix(given["self"], a),
        _matrix(given["mat2"], b),
        (batch, left[-2], right[-1], left[-1]),
        dtype,
        groups=groups,
    )


def tiles_for(
    product: Product, described: bool, tuning: Tuning = MEASURED, most: int = 6
) -> tuple[GemmTile, ...]:
    """The tiles that the model prefers for groups of equal size, without programs that stay: how
    many tiles there are is not known when they begin."""
    groups = product.groups
    assert groups is not None
    rows, columns, inner = (
        -(-size // groups.count) if name == groups.along else size
        for name, size in zip(("rows", "columns", "inner"), product.sizes[1:], strict=True)
    )
    item = product.dtype.itemsize
    sizes = (rows, columns, inner, groups.count)
    found = candidates(*sizes, item, 2 * most, parts=False, described=described, tuning=tuning)
    some = [tile for tile in found if not tile.resident][:most]
    if groups.along == "rows":  # of tiles that the model holds for equal, the taller were faster
        some.sort(key=lambda t: (seconds(t, *sizes, item, tuning=tuning), -t.rows))
    # two beside each other on a multiprocessor: one stores while the other multiplies
    pairs = [tile for tile in found if tile.resident > 1]
    sooner = (
        pairs
        and some
        and tuning.pairs_gain * seconds(pairs[0], *sizes, item, tuning=tuning)
        < seconds(some[0], *sizes, item, tuning=tuning)
    )
    both = (*pairs, *some) if sooner else (*some, *pairs)
    return tuple(replace(tile, resident=0) for tile in both)


def tiles_down(product: Product, tile: GemmTile) -> int:
    """Rows of tiles that all groups together take at most, each of which begins with a new one;
    what lies behind the last group is as one more."""
    groups, rows = product.groups, product.sizes[1]
    if groups is None or groups.along != "rows":
        return -(-rows // tile.rows)
    return (rows + (groups.count + 1) * (tile.rows - 1)) // tile.rows


def tiles_across(product: Product, tile: GemmTile) -> int:
    """The same of columns."""
    groups, columns = product.groups, product.sizes[2]
    if groups is None or groups.along != "columns":
        return -(-columns // tile.columns)
    return (columns + (groups.count + 1) * (tile.columns - 1)) // tile.columns


def even_ends(product: Product) -> torch.Tensor:
    """Ends of groups of equal size, to measure with."""
    groups = product.groups
    assert groups is not None
    whole = product.sizes[{"rows": 1, "columns": 2, "inner": 3}[groups.along]]
    ends = [whole * (number + 1) // groups.count for number in range(groups.count)]
    return torch.tensor(ends, dtype=torch.int32)


def _groups(ends: Argument, layouts: Mapping[str, Layout], ranks: tuple[int, int]) -> Groups | None:
    along: dict[tuple[int, int], Literal["rows", "columns", "inner"]]
    along = {(2, 3): "rows", (3, 2): "columns", (2, 2): "inner"}
    static = static_of(ends, layouts)
    if ranks not in along or static is None or dtype_of(ends, layouts) != torch.int32:
        return None
    (count,), (step,), offset = static
    if not 0 < count <= MOST:
        return None
    assert isinstance(ends, Ref)
    return Groups(Matrix(ends.buffer, (0, 0, step), offset), count, along[ranks])


def _matrix(argument: Argument, static: Static) -> Matrix:
    assert isinstance(argument, Ref)
    _, strides, offset = static
    apart = strides[0] if len(strides) == 3 else 0
    return Matrix(argument.buffer, (apart, strides[-2], strides[-1]), offset)
