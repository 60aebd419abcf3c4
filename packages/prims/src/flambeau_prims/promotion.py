"""Type promotion and broadcasting: how operands are combined.

In: tensors and Python numbers, shapes. Out: dtypes, the common shape.
Invariant: agrees with `torch.result_type` on tensors and numbers alike; shapes are aligned at the
right, and a size is 1 or the common one.

Operands fall into three ranks: tensors with dimensions, 0-d tensors, Python numbers. A lower rank
changes the dtype of a higher one only if it is of a higher category (bool, integer, float,
complex). Within a rank, torch's lattice of pairs decides (`torch.promote_types`).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import torch

from flambeau_prims._op import PrimError
from flambeau_prims.shape_rules import Shape, Size, Sizes


class Promotion(Enum):
    """How an operation's result dtype follows from its operands' common dtype."""

    SAME = "same"  # the common dtype
    FLOAT = "float"  # integers and bool become the default float dtype
    BOOL = "bool"  # a comparison: computed in the common dtype, the result is bool


# half precision computes in float32 and rounds once, at the end of the ATen operation
_WIDE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.complex32: torch.complex64,
}

_COMPLEX_OF = {
    torch.float16: torch.complex32,
    torch.bfloat16: torch.complex64,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}


_REAL_OF = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the parts of a complex dtype; any other is its own."""
    return _REAL_OF.get(dtype, dtype)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values of `dtype` are computed with."""
    return _WIDE.get(dtype, dtype)


def is_inexact(dtype: torch.dtype) -> bool:
    """Float or complex."""
    return dtype.is_floating_point or dtype.is_complex


def to_float(dtype: torch.dtype) -> torch.dtype:
    """`dtype`, or the default float dtype if it is bool or an integer."""
    return dtype if is_inexact(dtype) else torch.get_default_dtype()


def number_dtype(value: object) -> torch.dtype:
    """The dtype that a Python number (or symbolic number) stands for."""
    if isinstance(value, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(value, (int, torch.SymInt)):
        return torch.int64
    if isinstance(value, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    if isinstance(value, complex):
        return _COMPLEX_OF[torch.get_default_dtype()]
    raise TypeError(f"not a number: {value!r}")


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype == torch.bool else 1


def _under(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """The dtype of a rank and one below it."""
    if higher is None or lower is None:
        return higher or lower
    if _category(lower) <= _category(higher):
        return higher
    if higher.is_floating_point:  # and the lower rank is complex
        return _COMPLEX_OF[higher]
    return torch.promote_types(higher, lower)


def result_type(operands: Iterable[Any]) -> torch.dtype:
    """The common dtype of tensors (anything with `dtype` and `ndim`) and Python numbers."""
    ranks: list[torch.dtype | None] = [None, None, None]
    for operand in operands:
        dtype = getattr(operand, "dtype", None)
        if dtype is None:
            rank, dtype = 2, number_dtype(operand)
        else:
            rank = 0 if operand.ndim else 1
        known = ranks[rank]
        if known is None:
            ranks[rank] = dtype
        elif known != dtype:
            ranks[rank] = torch.promote_types(known, dtype)
    result = _under(ranks[0], _under(ranks[1], ranks[2]))
    if result is None:
        raise TypeError("no operands")
    return result


def dtypes_of(operands: Iterable[Any], promotion: Promotion) -> tuple[torch.dtype, torch.dtype]:
    """(computation dtype, result dtype) of an operation on `operands`."""
    common = result_type(operands)
    if promotion is Promotion.FLOAT:
        common = to_float(common)
    return compute_dtype(common), torch.bool if promotion is Promotion.BOOL else common


def broadcast_shapes(*shapes: Sizes) -> Shape:
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


def same_shape(a: Sizes, b: Sizes) -> bool:
    """Whether two shapes are one; tuples would compare sizes of shapes that differ in rank, and
    something would be assumed about a symbol."""
    return len(a) == len(b) and all(x is y or x == y for x, y in zip(a, b, strict=True))


def trailing_dims(ndim: int, of: int) -> list[int]:
    """The last `ndim` of `of` dimensions: where an operand of fewer dimensions is aligned."""
    return list(range(of - ndim, of))
