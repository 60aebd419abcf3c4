"""Decompositions of sorting, selection by rank, searching, counting.

In: ATen's operations, with keepdim, 0-d tensors, numbers to search for. Out: the sorting prims.
Invariant: a 0-d tensor is its own only element, at position 0.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, canonical, is_number, keep_dims, p
from flambeau_prims.decomp.indexing.indexing import ranked
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition
from flambeau_prims.promotion import result_type
from flambeau_prims.shape_rules import Size

aten = torch.ops.aten

_FEW = 32


@decomposition(aten.nonzero.default)
def nonzero(x: Tensor) -> Tensor:
    """The library kernel writes a row for each dimension, and gives the transpose."""
    return p.clone(p.nonzero(x), order=[1, 0])


@decomposition(aten.sort.default)
def sort(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    return sort_stable(x, stable=False, dim=dim, descending=descending)


@decomposition(aten.sort.stable)
def sort_stable(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    where = canonical(dim, x.ndim)
    if x.ndim == 0:
        return e.first_of_one(x)
    return tuple(p.sort(x, where, descending, bool(stable)))


@decomposition(aten.topk.default)
def topk(x: Tensor, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    where = canonical(dim, x.ndim)
    if x.ndim == 0:
        return e.first_of_one(x) if k == 1 else NotImplemented
    return tuple(p.topk(x, k, where, largest, sorted))


def _selecting(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
        where = canonical(dim, x.ndim)
        if x.ndim == 0:
            return e.first_of_one(x)
        return tuple(keep_dims(part, x.shape, [where], keepdim) for part in op(x, where))

    return call


decomposition(aten.median.dim)(_selecting(p.median))
decomposition(aten.nanmedian.dim)(_selecting(p.nanmedian))
decomposition(aten.mode.default)(_selecting(p.mode))


@decomposition(aten.kthvalue.default)
def kthvalue(x: Tensor, k: Size, dim: int = -1, keepdim: bool = False) -> Any:
    if isinstance(k, int) and not 0 < k <= (x.shape[canonical(dim, x.ndim)] if x.ndim else 1):
        return NotImplemented  # eager has the message
    return _selecting(lambda a, where: p.kthvalue(a, k, where))(x, dim, keepdim)


def _of_all(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor) -> Any:
        if x.numel() == 0:
            if not x.dtype.is_floating_point:
                return NotImplemented
            return e.filled(x, [], float("nan"))
        return op(p.reshape(x, [x.numel()]), 0)[0]

    return call


decomposition(aten.median.default)(_of_all(p.median))
decomposition(aten.nanmedian.default)(_of_all(p.nanmedian))


def _searched(boundaries: Tensor, values: Operand, right: bool, out_int32: bool) -> Any:
    dtype = result_type((boundaries, values))
    if is_number(values):
        wanted = e.filled(boundaries, [], e.wrapped(values, dtype), dtype)
    else:
        wanted = e.cast(values, dtype)  # type: ignore[arg-type]
    found = p.searchsorted(e.cast(boundaries, dtype), wanted, right)
    return e.cast(found, torch.int32) if out_int32 else found


@by_name(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(a: Arguments) -> Any:
    if a.side == "left" and a.right:
        raise RuntimeError("torch.searchsorted(): side and right can't be set to opposites")
    rows = a.sorted_sequence
    if a.sorter is not None:
        rows = p.gather(rows, rows.ndim - 1, a.sorter)
    return _searched(rows, a.self, a.right or a.side == "right", a.out_int32)


@decomposition(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(
    values: Operand, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Any:
    return _searched(boundaries, values, right, out_int32)


@decomposition(aten.histc.default)
def histc(x: Tensor, bins: int = 100, min: Number = 0, max: Number = 0) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    flat = p.reshape(x, [x.numel()])
    if min == max and x.numel() != 0:
        return p.histc(flat, bins, p.amin(flat, [0]), p.amax(flat, [0]))
    low, high = (e.filled(x, [], b) for b in (min, max))
    return p.histc(flat, bins, low, high)


@decomposition(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten.isin.Scalar_Tensor)
def isin(
    elements: Operand, test_elements: Operand, *, assume_unique: bool = False, invert: bool = False
) -> Any:
    by_views = not is_number(test_elements) and e.on_gpu(test_elements)
    if by_views and not _is_even(test_elements):  # type: ignore[arg-type]
        return NotImplemented  # eager views a few of them as one row, or has the message
    found = _among(*_as_tensors(elements, test_elements))
    return p.logical_not(found) if invert else found


def _is_even(x: Tensor) -> bool:
    """Whether a tensor can be viewed as one row: its elements are at even steps in memory."""
    long = [(n, step) for n, step in zip(x.shape, x.stride()) if not e.is_one(n)]
    return x.numel() == 0 or all(a == n * step for (_, a), (n, step) in pairwise(long))


def _as_tensors(*operands: Operand) -> list[Tensor]:
    dtype = result_type(operands)
    model = next(x for x in operands if not is_number(x))
    return [
        e.filled(model, [], e.wrapped(x, dtype), dtype)  # type: ignore[arg-type]
        if is_number(x)
        else e.cast(x, dtype)  # type: ignore[arg-type]
        for x in operands
    ]


def _among(elements: Tensor, tests: Tensor) -> Tensor:
    count, shape = tests.numel(), list(elements.shape)
    if count == 0 or elements.numel() == 0:
        return e.filled(elements, shape, False, torch.bool)
    flat = p.reshape(tests, [count])
    if count <= _FEW or elements.dtype in (torch.bool,):
        wide = p.broadcast_in_dim(elements, [*shape, count], list(range(len(shape))))
        return p.any(p.eq(wide, e.expand(flat, [*shape, count])), [len(shape)])
    ordered, _ = p.sort(flat, 0, False, False)
    place = e.minimum(p.searchsorted(ordered, elements, False), count - 1)
    return p.eq(p.index(ordered, [place]), elements)


@decomposition(aten.nonzero_static.default)
def nonzero_static(x: Tensor, *, size: Size, fill_value: int = -1) -> Tensor:
    """A row for each place; a GPU writes the columns one after another."""
    count, ndim = x.numel(), x.ndim
    by_columns = e.on_gpu(x)
    if count == 0 or size == 0 or ndim == 0:
        shape = [ndim, size] if by_columns else [size, ndim]
        filled = e.filled(x, shape, fill_value, torch.int64)
        return p.permute(filled, [1, 0]) if by_columns else filled
    chosen = p.reshape(e.ne(x, 0), [count])
    place = e.where(chosen, e.minimum(ranked(chosen), size), size)  # the rest go past the end
    found = e.filled(x, [size + 1], -1, torch.int64)
    found = p.index_put(found, [place], e.counted(count, x.device), False)
    found = p.slice(found, [0], [size], [1])
    missing = e.lt(found, 0)
    columns = []
    for n in reversed(x.shape):
        digit = e.where(missing, fill_value, p.remainder(*e.meet(found, n)))
        columns.append(p.reshape(digit, [1, size] if by_columns else [size, 1]))
        found = p.floor_div(*e.meet(found, n))
    if by_columns:
        return p.permute(p.cat(columns[::-1], 0), [1, 0])
    return p.cat(columns[::-1], 1)


@decomposition(aten.masked_select.default)
def masked_select(x: Tensor, mask: Tensor) -> Any:
    return p.masked_select(*e.meet(x, e.cast(mask, torch.bool)))


@decomposition(aten.bincount.default)
def bincount(x: Tensor, weights: Tensor | None = None, minlength: Size = 0) -> Any:
    if weights is not None and weights.dtype != torch.float32:
        weights = e.cast(weights, torch.float64)
    return p.bincount(x, weights, minlength)


@decomposition(aten.repeat_interleave.Tensor)
def repeat_interleave(repeats: Tensor, *, output_size: Size | None = None) -> Any:
    if output_size is None:
        return p.repeat_interleave(repeats)
    ends = p.cumsum(e.cast(repeats, torch.int64), 0)
    number = e.counted(output_size, repeats.device)
    return e.cast(p.searchsorted(ends, number, True), repeats.dtype)


def _requested(a: Arguments, parts: Any) -> Any:
    """Distinct ones, in ascending order in any case, and what else is requested."""
    values, *others = parts
    wanted = (a.return_inverse, a.return_counts)
    return values, *(
        part if asked else e.filled(a.self, [0], 0, torch.int64)
        for part, asked in zip(others, wanted, strict=True)
    )


@by_name(aten._unique2.default)
def unique2(a: Arguments) -> Any:
    return _requested(a, p.unique(a.self))


@by_name(aten._unique.default, absent=("return_counts",))
def unique(a: Arguments) -> Any:
    return _requested(a, p.unique(a.self))[:2]


@by_name(aten.unique_dim.default)
def unique_dim(a: Arguments) -> Any:
    return _requested(a, p.unique_dim(a.self, canonical(a.dim, a.self.ndim), False))


@by_name(aten.unique_consecutive.default, aten.unique_dim_consecutive.default)
def unique_consecutive(a: Arguments) -> Any:
    if a.dim is None:
        return _requested(a, p.unique_consecutive(a.self))
    return _requested(a, p.unique_dim(a.self, canonical(a.dim, a.self.ndim), True))
