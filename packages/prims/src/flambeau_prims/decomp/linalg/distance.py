"""Decompositions of distances.

In: ATen's overloads. Out: the distance prims, or plain reductions.
Invariant: results are at least as exact as eager's, which for many rows uses a matrix product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.broadcast import broadcast_shapes
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.layout import product
from flambeau_prims.table import TABLE, decomposition

aten = torch.ops.aten
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
        zeros = p.full(list(a.shape), 0, dtype=a.dtype, device=a.device)
        return e.laid_out_as(a, zeros)
    first, second = _together(a, b)
    return p.cdist_backward(grad, first, second, p_, distance)


@decomposition(aten._pdist_forward.default)
def pdist_forward(x: Tensor, p_: float = 2.0) -> Any:
    return p.pdist(x, p_)


@decomposition(aten._pdist_backward.default)
def pdist_backward(grad: Tensor, x: Tensor, p_: float, distance: Tensor) -> Any:
    return p.pdist_backward(grad, x, p_, distance)


def _euclidean(a: Tensor, b: Tensor) -> Tensor:
    """sqrt(|a|**2 - 2 a b + |b|**2), by one matrix product of extended rows."""
    last = a.ndim - 1
    ones_a = p.full([*a.shape[:-1], 1], 1, dtype=a.dtype, device=a.device)
    ones_b = p.full([*b.shape[:-1], 1], 1, dtype=b.dtype, device=b.device)
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
