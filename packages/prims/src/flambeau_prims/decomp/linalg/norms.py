"""Decompositions of vector norms and distances.

In: ATen's norms, of real and complex tensors, and distances of rows. Out: reductions of powers of
moduli, the distance prims.
Invariant: half precision is summed in float32; the result is real, at least as exact as eager's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.complex import squared_modulus
from flambeau_prims.decomp.emit import Number, canonical_dims, keep_dims, p
from flambeau_prims.decomp.reduction import Dims
from flambeau_prims.decomposition_table import (
    TABLE,
    Arguments,
    by_name,
    decomposition,
    overloads,
    same,
)
from flambeau_prims.ops.complex import REAL_OF
from flambeau_prims.promotion import broadcast_shapes, compute_dtype, is_inexact
from flambeau_prims.shape_rules import product

aten = torch.ops.aten

same(aten._pdist_forward.default, "pdist")
same(aten._pdist_backward.default, "pdist_backward")
_INFINITE = (float("inf"), float("-inf"))


def _reduced(
    row_of: Callable[[Tensor, Number, list[int]], Tensor],
    x: Tensor,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """A reduction of moduli over `dim`, computed wide; the result is in the real dtype."""
    wanted = dtype or x.dtype
    where = canonical_dims(dim, x.ndim)
    if not is_inexact(wanted) or isinstance(ord, complex):
        return NotImplemented
    if ord in _INFINITE and e.count(x.shape, where) == 0:
        return NotImplemented
    row = row_of(e.cast(x, compute_dtype(wanted)), ord, where)
    return e.cast(keep_dims(row, x.shape, where, keepdim), REAL_OF.get(wanted, wanted))


def _norm_row(x: Tensor, ord: Number, where: list[int], sees_one: bool = True) -> Tensor:
    """sees_one: whether a row of one number is its modulus, of which no power overflows or
    vanishes."""
    if ord in _INFINITE:
        return (p.amax if ord > 0 else p.amin)(p.abs(x), where)  # type: ignore[operator]
    length = e.count(x.shape, where)
    if sees_one and ord != 0 and isinstance(length, int) and length == 1:
        return p.amax(p.abs(x), where)
    row = _power_sum(x, ord, where)
    if ord == 2:
        return p.sqrt(row)
    return row if ord in (0, 1) else p.pow(*e.meet(row, 1.0 / float(ord)))  # type: ignore[arg-type]


@decomposition(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: Number = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    # eager's look for rows of one number sees none along a dimension that is not there
    row_of = functools.partial(_norm_row, sees_one=bool(x.ndim) or dim in (None, []))
    return _reduced(row_of, x, ord, dim, keepdim, dtype=dtype)


def _power_sum(x: Tensor, ord: Number, where: list[int]) -> Tensor:
    """The sum of |x|^ord; with 0 the number of elements that are not 0."""
    size = p.abs(x)
    if ord == 0:
        return p.sum(e.cast(e.ne(size, 0.0), size.dtype), where)
    if ord == 1:
        return p.sum(size, where)
    if ord == 2:
        return p.sum(squared_modulus(x), where)
    # powers in float64: a root magnifies what is lost
    total = p.sum(p.pow(*e.meet(e.cast(size, torch.float64), float(ord))), where)  # type: ignore[arg-type]
    return e.cast(
        e.cast(total, size.dtype), torch.float64
    )  # where eager's sum overflows, this does


if hasattr(aten, "linalg__powsum"):  # torch 2.11 has it not
    decomposition(aten.linalg__powsum.default)(functools.partial(_reduced, _power_sum))


@by_name(*overloads("norm", "Scalar", "ScalarOpt_dtype", "ScalarOpt_dim", "ScalarOpt_dim_dtype"))
def norm(a: Arguments) -> Any:
    order = 2 if a.p is None else a.p
    return vector_norm(a.self, order, a.dim, bool(a.keepdim), dtype=a.dtype)


_MATRIX_PRODUCT_FROM = 25
"""Eager's default for euclidean distances goes through a matrix product above this many rows."""


def _together(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rows with their batches broadcast."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2]) if a.ndim > 2 or b.ndim > 2 else ()
    return e.expand(a, [*batch, *a.shape[-2:]]), e.expand(b, [*batch, *b.shape[-2:]])


@decomposition(aten._cdist_forward.default)
def cdist_forward(a: Tensor, b: Tensor, p_: float, compute_mode: int | None) -> Any:
    many = a.shape[-2] > _MATRIX_PRODUCT_FROM or b.shape[-2] > _MATRIX_PRODUCT_FROM
    if p_ == 2.0 and (compute_mode == 1 or (compute_mode in (None, 0) and many)):
        return _euclidean(*_together(a, b))
    return p.cdist(*_together(a, b), p_)


@decomposition(aten._cdist_backward.default)
def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p_: float, distance: Tensor) -> Any:
    if product((*grad.shape, *a.shape)) == 0:
        return e.laid_out_as(a, e.filled(a, a.shape))
    first, second = _together(a, b)
    return p.cdist_backward(grad, first, second, p_, distance)


def _euclidean(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(|a|**2 - 2 a b + |b|**2), by one matrix product of extended rows."""
    last = a.ndim - 1
    ones_a = e.filled(a, [*a.shape[:-1], 1], 1)
    ones_b = e.filled(b, [*b.shape[:-1], 1], 1)
    square_a, square_b = (_row_squares(x) for x in (a, b))
    left = p.cat([e.mul(a, -2.0), square_a, ones_a], last)
    right = p.cat([b, ones_b, square_b], last)
    batch, (rows, width), columns = list(a.shape[:-2]), left.shape[-2:], b.shape[-2]
    many = product(batch)
    flat = p.bmm(
        p.reshape(left, [many, rows, width]),
        p.permute(p.reshape(right, [many, columns, width]), [0, 2, 1]),
    )
    return p.sqrt(e.maximum(p.reshape(flat, [*batch, rows, columns]), 0.0))


def _row_squares(x: Tensor) -> Tensor:
    last = x.ndim - 1
    return p.reshape(p.sum(p.mul(x, x), [last]), [*x.shape[:-1], 1])


@decomposition(aten._euclidean_dist.default)
def euclidean_dist(a: Tensor, b: Tensor) -> Tensor:
    return _euclidean(*_together(a, b))


@decomposition(aten.dist.default)
def dist(a: Tensor, b: Tensor, order: Any = 2) -> Any:
    norm = TABLE.get(aten.linalg_vector_norm.default)
    if norm is None:
        return NotImplemented
    return norm(e.elementwise(p.sub, (a, b)), order)
