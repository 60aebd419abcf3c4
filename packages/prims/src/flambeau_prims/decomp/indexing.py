"""Embedding, indexing, gathering and scattering.

In: ATen's overloads. Out: the indexing prims, with int64 positions.
Invariant: what depends on the data for its shape (boolean masks, nonzero) stays with ATen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, canonical, p
from flambeau_prims.layout import Size
from flambeau_prims.promotion import compute_dtype
from flambeau_prims.table import decomposition

aten = torch.ops.aten
Indices = Sequence[Tensor | None]
_POSITIONS = (torch.int64, torch.int32)


@decomposition(aten.embedding.default)
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    del padding_idx, scale_grad_by_freq  # of interest to the backward only
    if sparse or weight.ndim != 2:
        return NotImplemented
    positions = e.cast(indices, torch.int64)
    if indices.ndim == 1:
        return p.index_select(weight, 0, positions)
    rows = p.index_select(weight, 0, p.reshape(positions, [indices.numel()]))
    return p.reshape(rows, [*indices.shape, weight.shape[1]])


@decomposition(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    grad: Tensor, indices: Tensor, num_weights: Size, padding_idx: Size, scale_grad_by_freq: bool
) -> Any:
    if scale_grad_by_freq:
        return NotImplemented
    width = grad.shape[-1]
    count = indices.numel()
    positions = p.reshape(e.cast(indices, torch.int64), [count])
    rows = p.reshape(e.widen(grad), [count, width])
    if padding_idx >= 0:
        used = p.broadcast_in_dim(e.ne(positions, padding_idx), [count, width], [0])
        rows = e.where(used, rows, 0.0)
    zeros = p.full([num_weights, width], 0, dtype=rows.dtype, device=rows.device)
    return e.cast(p.index_put(zeros, [positions], rows, True), grad.dtype)


def _usable(indices: Indices) -> bool:
    return all(i is None or i.dtype in _POSITIONS for i in indices)


def _at_home(x: Tensor, indices: Indices) -> list[Tensor | None]:
    """Indices on the device of `x` (eager takes CPU indices anywhere), None at the end dropped."""
    placed = [
        i if i is None or i.device == x.device else p.device_put(i, device=x.device)
        for i in indices
    ]
    while placed and placed[-1] is None:
        placed.pop()
    return [None if i is None else e.cast(i, torch.int64) for i in placed]


@decomposition(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(x: Tensor, indices: Indices) -> Any:
    if not _usable(indices):
        return NotImplemented
    return p.index(x, _at_home(x, indices))


@decomposition(aten.index_put.default, aten._unsafe_index_put.default, aten._index_put_impl.default)
def index_put(
    x: Tensor,
    indices: Indices,
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Any:
    del unsafe
    if _usable(indices):
        home = _at_home(x, indices)
        if values.device != x.device:
            values = p.device_put(values, device=x.device)
        return p.index_put(x, home, e.cast(values, x.dtype), accumulate)
    mask = indices[0]
    one_mask = len(indices) == 1 and mask is not None and mask.dtype == torch.bool
    if mask is None or not one_mask or accumulate or values.numel() != 1:
        return NotImplemented
    if mask.device != x.device or values.device != x.device:
        return NotImplemented
    # One number under a mask needs no positions.
    covered = p.broadcast_in_dim(mask, list(x.shape), list(range(mask.ndim)))
    number = p.broadcast_in_dim(p.reshape(e.cast(values, x.dtype), []), list(x.shape), [])
    return e.laid_out_as(x, p.where(covered, number, x))


@decomposition(aten.index_select.default)
def index_select(x: Tensor, dim: int, index: Tensor) -> Any:
    if x.ndim == 0 or index.ndim > 1:
        return NotImplemented
    positions = e.cast(index, torch.int64)
    flat = p.reshape(positions, [1]) if index.ndim == 0 else positions
    return p.index_select(x, canonical(dim, x.ndim), flat)


@decomposition(aten.gather.default)
def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    del sparse_grad
    if x.ndim == 0 or index.ndim != x.ndim:
        return NotImplemented
    return p.gather(x, canonical(dim, x.ndim), e.cast(index, torch.int64))


@decomposition(aten.scatter.src)
def scatter_src(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    if x.ndim == 0 or index.ndim != x.ndim or src.ndim != x.ndim or src.dtype != x.dtype:
        return NotImplemented
    return p.scatter(x, canonical(dim, x.ndim), e.cast(index, torch.int64), src)


@decomposition(aten.scatter.value)
def scatter_value(x: Tensor, dim: int, index: Tensor, value: Number) -> Any:
    if x.ndim == 0 or index.ndim != x.ndim:
        return NotImplemented
    src = p.full(list(index.shape), value, dtype=x.dtype, device=x.device)
    return p.scatter(x, canonical(dim, x.ndim), e.cast(index, torch.int64), src)


@decomposition(aten.scatter_add.default)
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    if x.ndim == 0 or index.ndim != x.ndim or src.ndim != x.ndim or src.dtype != x.dtype:
        return NotImplemented
    wide, added = e.widen(x, src)
    where = canonical(dim, x.ndim)
    return e.cast(p.scatter_add(wide, where, e.cast(index, torch.int64), added), x.dtype)


def _along(x: Tensor, dim: int, index: Tensor) -> list[Tensor | None] | None:
    """The index list that reaches `x` at `index` along `dim`; None where it is not that simple."""
    if x.ndim == 0 or index.ndim != 1:
        return None
    return [*[None] * canonical(dim, x.ndim), e.cast(index, torch.int64)]


@decomposition(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Any:
    indices = _along(x, dim, index)
    if indices is None or source.ndim != x.ndim or x.dtype == torch.bool:
        return NotImplemented
    dtype = compute_dtype(x.dtype)
    added = e.cast(source, dtype)
    added = added if alpha == 1 else e.mul(added, alpha)
    base = e.in_format(e.cast(x, dtype), torch.contiguous_format)
    return e.cast(p.index_put(base, indices, added, True), x.dtype)


@decomposition(aten.index_copy.default)
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    indices = _along(x, dim, index)
    if indices is None or source.ndim != x.ndim:
        return NotImplemented
    return p.index_put(e.in_format(x, torch.contiguous_format), indices, source, False)


@decomposition(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Tensor, dim: int, index: Tensor, value: Operand) -> Any:
    indices = _along(x, dim, index)
    if indices is None:
        return NotImplemented
    if e.is_number(value):
        number = p.full([], value, dtype=x.dtype, device=x.device)
    else:
        number = e.cast(value, x.dtype)  # type: ignore[arg-type]
    return p.index_put(x, indices, number, False)
