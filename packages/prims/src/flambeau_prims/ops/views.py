"""Strided-view primitives: diagonals, windows, dtype views; writes through a view.

In: tensors; dimensions, never negative. Out: views of the operand; from the `_scatter` ones a copy
of the operand in which what the view would show is replaced.
Invariant: a view names every element by the storage of its operand; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_prims._op import define, require
from flambeau_prims.layout import Size, TensorMeta, elementwise_strides


def _diagonal_rule(a: TensorMeta, offset: int, dim1: int, dim2: int) -> TensorMeta:
    require(
        0 <= dim1 < a.ndim and 0 <= dim2 < a.ndim and dim1 != dim2,
        f"diagonal: dims {dim1} and {dim2} of a {a.ndim}-d tensor",
    )
    rows, columns = a.shape[dim1], a.shape[dim2]
    rows, columns = (rows, columns - offset) if offset >= 0 else (rows + offset, columns)
    length = rows if rows < columns else columns
    length = 0 if length < 0 else length
    kept = [d for d in range(a.ndim) if d not in (dim1, dim2)]
    shape = [*(a.shape[d] for d in kept), length]
    return a.like(shape, [*(a.stride[d] for d in kept), a.stride[dim1] + a.stride[dim2]])


diagonal = define(
    "diagonal(Tensor(a) a, int offset, int dim1, int dim2) -> Tensor(a)",
    rule=_diagonal_rule,
    eager=lambda a, offset, dim1, dim2: torch.diagonal(a, offset, dim1, dim2),
    tags=("shape", "view"),
    doc="out[..., i] = a[..., i, ..., i + offset, ...] at `dim1` and `dim2` (offset >= 0).",
    shape="the operand's without the two dimensions, the diagonal's length behind the rest",
    edge_cases={"empty": "an offset beyond the matrix gives no elements"},
    source="Golub and Van Loan, Matrix Computations, 1.2",
)


def _diagonal_scatter_rule(
    a: TensorMeta, src: TensorMeta, offset: int, dim1: int, dim2: int
) -> TensorMeta:
    part = _diagonal_rule(a, offset, dim1, dim2)
    require(
        src.shape == part.shape, f"diagonal_scatter: src {src.shape} for a diagonal {part.shape}"
    )
    require(src.dtype == a.dtype, f"diagonal_scatter: {src.dtype} into {a.dtype}; cast first")
    strides = elementwise_strides((a,))
    return a.like(a.shape, strides)


def _diagonal_scatter(
    a: torch.Tensor, src: torch.Tensor, offset: int, dim1: int, dim2: int
) -> torch.Tensor:
    strides = elementwise_strides((TensorMeta.of(a),))
    result = torch.empty_strided(a.shape, strides, dtype=a.dtype, device=a.device).copy_(a)
    torch.diagonal(result, offset, dim1, dim2).copy_(src)
    return result


diagonal_scatter = define(
    "diagonal_scatter(Tensor a, Tensor src, int offset, int dim1, int dim2) -> Tensor",
    rule=_diagonal_scatter_rule,
    eager=_diagonal_scatter,
    tags=("shape",),
    doc="A copy of `a` in which the elements that `diagonal` would take are those of `src`.",
    shape="that of `a`; `src` has the shape of the diagonal",
    edge_cases={"empty": "an offset beyond the matrix: a copy of `a`"},
    source="inverse of `diagonal`",
)


def _unfold_rule(a: TensorMeta, dim: int, size: Size, step: Size) -> TensorMeta:
    require(0 <= dim < a.ndim, f"unfold: dim {dim} of a {a.ndim}-d tensor")
    require(
        bool(step > 0) and bool(size >= 0) and bool(size <= a.shape[dim]),
        f"unfold: size {size} and step {step} in a dimension of {a.shape[dim]}",
    )
    count = (a.shape[dim] - size) // step + 1
    shape = [*a.shape[:dim], count, *a.shape[dim + 1 :], size]
    stride = [*a.stride[:dim], a.stride[dim] * step, *a.stride[dim + 1 :], a.stride[dim]]
    return a.like(shape, stride)


unfold = define(
    "unfold(Tensor(a) a, int dim, SymInt size, SymInt step) -> Tensor(a)",
    rule=_unfold_rule,
    eager=lambda a, dim, size, step: a.unfold(dim, size, step),
    tags=("shape", "view"),
    doc="Windows along `dim`: out[..., i, ..., j] = a[..., i * step + j, ...], j below `size`.",
    shape="(n - size) // step + 1 windows at `dim`, and the window's elements behind the rest",
    edge_cases={"duplicates": "windows overlap where step < size: one element is seen often"},
    source="sliding windows, e.g. Oppenheim and Schafer, Discrete-Time Signal Processing, 10.3",
)


def _as_strided_rule(
    a: TensorMeta, size: Sequence[Size], stride: Sequence[Size], offset: Size
) -> TensorMeta:
    require(
        len(size) == len(stride) and bool(offset >= 0) and all(n >= 0 for n in size),
        f"as_strided: size {list(size)}, stride {list(stride)}, offset {offset}",
    )
    return a.like(tuple(size), tuple(stride))


as_strided = define(
    "as_strided(Tensor(a) a, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor(a)",
    rule=_as_strided_rule,
    eager=lambda a, size, stride, offset: a.as_strided(size, stride, offset),
    tags=("shape", "view"),
    doc="Another view of the storage of `a`; `offset` counts from the start of the storage.",
    shape="`size`, with the strides given",
    edge_cases={"out of range": "a view that leaves the storage is an error"},
    source="strided arrays as in the NumPy reference, ndarray.strides",
)


def _restride_rule(a: TensorMeta, size: Sequence[Size], stride: Sequence[Size]) -> TensorMeta:
    require(
        len(size) == len(stride) and all(n >= 0 for n in size),
        f"restride: size {list(size)}, stride {list(stride)}",
    )
    return a.like(tuple(size), tuple(stride))


restride = define(
    "restride(Tensor(a) a, SymInt[] size, SymInt[] stride) -> Tensor(a)",
    rule=_restride_rule,
    eager=lambda a, size, stride: a.as_strided(size, stride),
    tags=("shape", "view"),
    doc="Another view of the storage of `a` that begins with the first element of `a`, wherever"
    " in the storage that lies.",
    shape="`size`, with the strides given",
    edge_cases={"out of range": "a view that leaves the storage is an error"},
    source="strided arrays as in the NumPy reference, ndarray.strides",
)


def _as_strided_scatter_rule(
    a: TensorMeta, src: TensorMeta, size: Sequence[Size], stride: Sequence[Size], offset: Size
) -> TensorMeta:
    part = _as_strided_rule(a, size, stride, offset)
    require(src.shape == part.shape, f"as_strided_scatter: src {src.shape} into {part.shape}")
    require(src.dtype == a.dtype, f"as_strided_scatter: {src.dtype} into {a.dtype}; cast first")
    return a


as_strided_scatter = define(
    "as_strided_scatter(Tensor a, Tensor src, SymInt[] size, SymInt[] stride, SymInt offset)"
    " -> Tensor",
    rule=_as_strided_scatter_rule,
    eager=torch.as_strided_scatter,
    tags=("shape",),
    doc="A copy of `a` in which the elements that `as_strided` would show are those of `src`.",
    shape="shape and strides of `a`",
    edge_cases={"duplicates": "where the view shows an element twice, which wins is undefined"},
    source="inverse of `as_strided`",
)


def _bitcast_rule(a: TensorMeta, *, dtype: torch.dtype) -> TensorMeta:
    old, new = a.dtype.itemsize, dtype.itemsize
    if old == new:
        return a.like(dtype=dtype)
    require(a.ndim > 0, f"bitcast: a 0-d {a.dtype} to {dtype}, which is of another size")
    if old > new:
        factor = old // new
        require(bool(a.stride[-1] == 1), "bitcast: the last dimension is not dense")
        stride = [*(s * factor for s in a.stride[:-1]), 1]
        return a.like([*a.shape[:-1], a.shape[-1] * factor], stride, dtype=dtype)
    factor = new // old
    good = bool(a.stride[-1] == 1) and bool(a.shape[-1] % factor == 0)
    good = good and all(bool(s % factor == 0) for s in a.stride[:-1])
    require(good, f"bitcast: {a.shape} with strides {a.stride} does not divide by {factor}")
    stride = [*(s // factor for s in a.stride[:-1]), 1]
    return a.like([*a.shape[:-1], a.shape[-1] // factor], stride, dtype=dtype)


bitcast = define(
    "bitcast(Tensor(a) a, *, ScalarType dtype) -> Tensor(a)",
    rule=_bitcast_rule,
    eager=lambda a, *, dtype: torch.ops.aten.view.dtype(a, dtype),
    tags=("shape", "view"),
    doc="The same bytes read as another dtype, little-endian.",
    shape="the operand's; the last dimension scaled by the ratio of the item sizes",
    edge_cases={"nan": "payloads are kept", "signed zero": "kept"},
    source="reinterpretation of IEEE 754 interchange formats",
    differentiable=False,
)
