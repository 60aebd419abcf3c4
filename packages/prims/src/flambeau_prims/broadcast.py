"""Broadcasting of shapes.

In: shapes. Out: their common shape, and the dimensions an operand goes to.
Invariant: shapes are aligned at the right; a size is 1 or the common one.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_prims._op import PrimError
from flambeau_prims.layout import Shape, Size


def broadcast_shapes(*shapes: Sequence[Size]) -> Shape:
    """The common shape, or `PrimError` naming the two sizes that do not meet."""
    ndim = max(map(len, shapes))
    result: list[Size] = [1] * ndim
    for shape in shapes:
        for dim, size in enumerate(shape, ndim - len(shape)):
            known = result[dim]
            if size is known or size == 1:
                continue
            if known == 1:
                result[dim] = size
            elif size != known:
                raise PrimError(
                    f"shapes {[tuple(s) for s in shapes]} do not broadcast: {known} and {size}"
                )
    return tuple(result)


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes are one; tuples would compare sizes of shapes that differ in rank, and
    something would be assumed about a symbol."""
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b, strict=True))


def trailing_dims(ndim: int, of: int) -> list[int]:
    """The last `ndim` of `of` dimensions: where an operand of fewer dimensions is aligned."""
    return list(range(of - ndim, of))
