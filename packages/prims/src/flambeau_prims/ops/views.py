"""Strided-view primitives: diagonals, windows, dtype views; writes through a view.

In: tensors; dimensions, never negative. Out: views of the operand; from the `_scatter` ones a copy
of the operand in which what the view would show is replaced.
Invariant: a view names every element by the storage of its operand; nothing is copied.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from flambeau_prims._op import primitive, require
from flambeau_prims.ops.shape import writing_through, written_through
from flambeau_prims.shape_rules import Size, Sizes, TensorMeta

_view = partial(primitive, tags=("shape", "view"))


@_view(
    "diagonal(Tensor(a) a, int offset, int dim1, int dim2) -> Tensor(a)",
    lambda a, offset, dim1, dim2: torch.diagonal(a, offset, dim1, dim2),
    shape="the operand's without the two dimensions, the diagonal's length behind the rest",
    edge_cases={"empty": "an offset beyond the matrix gives no elements"},
    source="Golub and Van Loan, Matrix Computations, 1.2",
)
def diagonal(a: TensorMeta, offset: int, dim1: int, dim2: int) -> TensorMeta:
    """out[..., i] = a[..., i, ..., i + offset, ...] at `dim1` and `dim2` (offset >= 0)."""
    require(
        0 <= dim1 < a.ndim and 0 <= dim2 < a.ndim and dim1 != dim2,
        f"dims {dim1} and {dim2} of a {a.ndim}-d tensor",
    )
    rows, columns = a.shape[dim1], a.shape[dim2]
    rows, columns = (rows, columns - offset) if offset >= 0 else (rows + offset, columns)
    length = rows if rows < columns else columns
    length = 0 if length < 0 else length
    kept = [d for d in range(a.ndim) if d not in (dim1, dim2)]
    shape = [*(a.shape[d] for d in kept), length]
    return a.like(shape, [*(a.stride[d] for d in kept), a.stride[dim1] + a.stride[dim2]])


@primitive(
    "diagonal_scatter(Tensor a, Tensor src, int offset, int dim1, int dim2) -> Tensor",
    writing_through(torch.diagonal),
    tags=("shape",),
    shape="that of `a`; `src` has the shape of the diagonal",
    edge_cases={"empty": "an offset beyond the matrix: a copy of `a`"},
    source="inverse of `diagonal`",
)
def diagonal_scatter(a: TensorMeta, src: TensorMeta, *where: Any) -> TensorMeta:
    """A copy of `a` in which the elements that `diagonal` would take are those of `src`."""
    return written_through(diagonal, a, src, *where)


@_view(
    "unfold(Tensor(a) a, int dim, SymInt size, SymInt step) -> Tensor(a)",
    lambda a, dim, size, step: a.unfold(dim, size, step),
    shape="(n - size) // step + 1 windows at `dim`, and the window's elements behind the rest",
    edge_cases={"duplicates": "windows overlap where step < size: one element is seen often"},
    source="sliding windows, e.g. Oppenheim and Schafer, Discrete-Time Signal Processing, 10.3",
)
def unfold(a: TensorMeta, dim: int, size: Size, step: Size) -> TensorMeta:
    """Windows along `dim`: out[..., i, ..., j] = a[..., i * step + j, ...], j below `size`."""
    require(0 <= dim < a.ndim, f"dim {dim} of a {a.ndim}-d tensor")
    require(
        bool(step > 0) and bool(size >= 0) and bool(size <= a.shape[dim]),
        f"size {size} and step {step} in a dimension of {a.shape[dim]}",
    )
    count = (a.shape[dim] - size) // step + 1
    shape = [*a.shape[:dim], count, *a.shape[dim + 1 :], size]
    stride = [*a.stride[:dim], a.stride[dim] * step, *a.stride[dim + 1 :], a.stride[dim]]
    return a.like(shape, stride)


def _strided(a: TensorMeta, size: Sizes, stride: Sizes) -> TensorMeta:
    good = len(size) == len(stride) and all(n >= 0 for n in size)
    require(good, f"size {list(size)}, stride {list(stride)}")
    return a.like(tuple(size), tuple(stride))


@_view(
    "as_strided(Tensor(a) a, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor(a)",
    lambda a, size, stride, offset: a.as_strided(size, stride, offset),
    shape="`size`, with the strides given",
    edge_cases={"out of range": "a view that leaves the storage is an error"},
    source="strided arrays as in the NumPy reference, ndarray.strides",
)
def as_strided(a: TensorMeta, size: Sizes, stride: Sizes, offset: Size) -> TensorMeta:
    """Another view of the storage of `a`; `offset` counts from the start of the storage."""
    require(bool(offset >= 0), f"size {list(size)}, stride {list(stride)}, offset {offset}")
    return _strided(a, size, stride)


@_view(
    "restride(Tensor(a) a, SymInt[] size, SymInt[] stride) -> Tensor(a)",
    lambda a, size, stride: a.as_strided(size, stride),
    shape="`size`, with the strides given",
    edge_cases={"out of range": "a view that leaves the storage is an error"},
    source="strided arrays as in the NumPy reference, ndarray.strides",
)
def restride(a: TensorMeta, size: Sizes, stride: Sizes) -> TensorMeta:
    """Another view of the storage of `a` that begins with the first element of `a`, wherever in the
    storage that lies."""
    return _strided(a, size, stride)


@primitive(
    "as_strided_scatter(Tensor a, Tensor src, SymInt[] size, SymInt[] stride, SymInt offset)"
    " -> Tensor",
    torch.as_strided_scatter,
    tags=("shape",),
    shape="shape and strides of `a`",
    edge_cases={"duplicates": "where the view shows an element twice, which wins is undefined"},
    source="inverse of `as_strided`",
)
def as_strided_scatter(a: TensorMeta, src: TensorMeta, *where: Any) -> TensorMeta:
    """A copy of `a` in which the elements that `as_strided` would show are those of `src`."""
    written_through(as_strided, a, src, *where)
    return a


@_view(
    "bitcast(Tensor(a) a, *, ScalarType dtype) -> Tensor(a)",
    lambda a, *, dtype: torch.ops.aten.view.dtype(a, dtype),
    shape="the operand's; the last dimension scaled by the ratio of the item sizes",
    edge_cases={"nan": "payloads are kept", "signed zero": "kept"},
    source="reinterpretation of IEEE 754 interchange formats",
    differentiable=False,
)
def bitcast(a: TensorMeta, *, dtype: torch.dtype) -> TensorMeta:
    """The same bytes read as another dtype, little-endian."""
    old, new = a.dtype.itemsize, dtype.itemsize
    if old == new:
        return a.like(dtype=dtype)
    require(a.ndim > 0, f"a 0-d {a.dtype} to {dtype}, which is of another size")
    if old > new:
        factor = old // new
        require(bool(a.stride[-1] == 1), "the last dimension is not dense")
        stride = [*(s * factor for s in a.stride[:-1]), 1]
        return a.like([*a.shape[:-1], a.shape[-1] * factor], stride, dtype=dtype)
    factor = new // old
    good = bool(a.stride[-1] == 1) and bool(a.shape[-1] % factor == 0)
    good = good and all(bool(s % factor == 0) for s in a.stride[:-1])
    require(good, f"{a.shape} with strides {a.stride} does not divide by {factor}")
    stride = [*(s // factor for s in a.stride[:-1]), 1]
    return a.like([*a.shape[:-1], a.shape[-1] // factor], stride, dtype=dtype)
