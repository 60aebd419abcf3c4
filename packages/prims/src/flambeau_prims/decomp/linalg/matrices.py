"""Building blocks on batched matrices.

In: tensors with matrices in the last two dimensions. Out: prims on them.
Invariant: nothing is registered here; a batch is broadcast only by `batched`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.promotion import broadcast_shapes
from flambeau_prims.shape_rules import Size, product


def transposed(x: Tensor) -> Tensor:
    """A view with the last two dimensions exchanged."""
    n = x.ndim
    return p.permute(x, [*range(n - 2), n - 1, n - 2])


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose; of real matrices a view."""
    turned = transposed(x)
    return p.conj(turned) if x.dtype.is_complex else turned


def diagonal_of(x: Tensor) -> Tensor:
    """The main diagonals, as a view."""
    return p.diagonal(x, 0, x.ndim - 2, x.ndim - 1)


def difference(rows: Size, columns: Size, device: torch.device) -> Tensor:
    """An int64 matrix of column minus row."""
    row = p.broadcast_in_dim(e.counted(rows, device), [rows, columns], [0])
    column = p.broadcast_in_dim(e.counted(columns, device), [rows, columns], [1])
    return p.sub(column, row)


def identity(like: Tensor) -> Tensor:
    """Identity matrices of the shape of `like`, which holds square ones."""
    n = like.shape[-1]
    one = e.cast(e.eq(difference(n, n, like.device), 0), like.dtype)
    return e.expand(one, like.shape)


def lower(x: Tensor, unit: bool = False) -> Tensor:
    """The lower triangle, zeros above; with `unit` ones on the diagonal."""
    place = difference(x.shape[-2], x.shape[-1], x.device)
    kept = e.where(e.expand(e.lt(place, 0) if unit else e.le(place, 0), x.shape), x, 0)
    if unit:
        kept = e.where(e.expand(e.eq(place, 0), x.shape), 1, kept)
    return e.in_format(kept, torch.contiguous_format)


def upper(x: Tensor) -> Tensor:
    """The upper triangle, zeros below."""
    place = difference(x.shape[-2], x.shape[-1], x.device)
    return e.in_format(e.where(e.expand(e.ge(place, 0), x.shape), x, 0), torch.contiguous_format)


def batched(*xs: Tensor) -> tuple[Tensor, ...]:
    """The matrices with their leading dimensions broadcast to common ones."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in xs))
    return tuple(e.expand(x, [*batch, *x.shape[-2:]]) for x in xs)


def product_of(a: Tensor, b: Tensor) -> Tensor:
    """Products of matrices in equal batches."""
    if a.ndim == 2:
        return p.mm(a, b)
    batch = list(a.shape[:-2])
    count = product(batch)
    flat = [p.reshape(x, [count, *x.shape[-2:]]) for x in (a, b)]
    return p.reshape(p.bmm(*flat), [*batch, a.shape[-2], b.shape[-1]])


def as_columns(x: Tensor) -> Tensor:
    """A copy in matrices that are stored column by column; without elements as if rows were one."""
    n = x.ndim
    if e.no_elements(x.shape):
        return transposed(p.clone(transposed(x)))
    return p.clone(x, order=[*range(n - 2), n - 1, n - 2])
