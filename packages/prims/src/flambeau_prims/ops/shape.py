"""Shape primitives: move, repeat, join, pad, copy.

In: tensors and sizes. Out: for those tagged `view` a view of the operand; dense copies otherwise.
Invariant: sizes are explicit (no -1, no negative dimensions), every dimension is spoken for.

`reshape` is tagged `view` although it copies where no view exists: graphs are functional, so the
two differ in their cost alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch

from flambeau_prims._op import define, require
from flambeau_prims.layout import (
    Size,
    TensorMeta,
    channels_last_strides,
    elementwise_strides,
    ordered_strides,
    preserved_strides,
    product,
    suggests_channels_last,
    view_strides,
)


def _broadcast_in_dim_rule(a: TensorMeta, shape: Sequence[Size], dims: Sequence[int]) -> TensorMeta:
    good = len(dims) == a.ndim and all(0 <= d < len(shape) for d in dims)
    good = good and all(p < q for p, q in itertools.pairwise(dims))
    require(good, f"broadcast_in_dim: dims {list(dims)} of {list(shape)} for shape {a.shape}")
    strides: list[Size] = [0] * len(shape)
    source = {dim: position for position, dim in enumerate(dims)}
    step: Size = 1  # of a new dimension of size 1, which is all that is left of an `unsqueeze`
    for dim in range(len(shape) - 1, -1, -1):
        position = source.get(dim)
        if position is None:
            strides[dim] = step if shape[dim] == 1 else 0
        elif a.shape[position] == shape[dim]:
            strides[dim] = a.stride[position]
        else:
            require(
                a.shape[position] == 1,
                f"broadcast_in_dim: size {a.shape[position]} does not go to {shape[dim]}",
            )
        step = shape[dim] * strides[dim]
    return a.like(tuple(shape), strides)


def _broadcast_in_dim(a: torch.Tensor, shape: Sequence[Size], dims: Sequence[int]) -> torch.Tensor:
    meta = _broadcast_in_dim_rule(TensorMeta.of(a), shape, dims)
    return a.as_strided(meta.shape, meta.stride)


broadcast_in_dim = define(
    "broadcast_in_dim(Tensor(a) a, SymInt[] shape, int[] dims) -> Tensor(a)",
    rule=_broadcast_in_dim_rule,
    eager=_broadcast_in_dim,
    tags=("shape", "view"),
    doc="Dimension i of `a` becomes dimension `dims[i]` of `shape`; sizes equal or 1, rest new.",
    shape="`shape`",
    edge_cases="a dimension of size 1 that grows has stride 0",
    source="broadcasting as in the NumPy reference",
)


def _reshape_rule(a: TensorMeta, shape: Sequence[Size]) -> TensorMeta:
    sizes = tuple(shape)
    require(
        product(sizes) == a.numel() and all(size >= 0 for size in sizes),
        f"reshape: {a.shape} does not have the elements of {sizes}",
    )
    return a.like(sizes, view_strides(a.shape, a.stride, sizes))


reshape = define(
    "reshape(Tensor(a) a, SymInt[] shape) -> Tensor(a)",
    rule=_reshape_rule,
    eager=lambda a, shape: a.reshape(shape),
    tags=("shape", "view"),
    doc="The elements in row-major order under another shape; a view where one exists.",
    shape="`shape`",
    edge_cases="sizes must have the product of the operand's; 0-d takes one element",
    source="row-major order: Knuth, The Art of Computer Programming, vol. 1, 2.2.6",
)


def _permute_rule(a: TensorMeta, dims: Sequence[int]) -> TensorMeta:
    require(sorted(dims) == list(range(a.ndim)), f"permute: {list(dims)} of a {a.ndim}-d tensor")
    return a.like([a.shape[d] for d in dims], [a.stride[d] for d in dims])


permute = define(
    "permute(Tensor(a) a, int[] dims) -> Tensor(a)",
    rule=_permute_rule,
    eager=lambda a, dims: a.permute(dims),
    tags=("shape", "view"),
    doc="Dimension i of the result is dimension `dims[i]` of `a`.",
    shape="the operand's sizes in the order of `dims`",
    edge_cases="`dims` lists each dimension once",
    source="transposition of tensors",
)


def _slice_shape(
    name: str, a: TensorMeta, start: Sequence[Size], stop: Sequence[Size], step: Sequence[int]
) -> list[Size]:
    require(
        len(start) == len(stop) == len(step) == a.ndim and all(s > 0 for s in step),
        f"{name}: start, stop and step > 0 are needed for each of {a.ndim} dimensions",
    )
    good = all(b >= 0 and b <= e and e <= n for b, e, n in zip(start, stop, a.shape, strict=True))
    require(good, f"{name}: {list(start)} to {list(stop)} is not inside {a.shape}")
    return [(e - b + s - 1) // s for b, e, s in zip(start, stop, step, strict=True)]


def _slice_rule(
    a: TensorMeta, start: Sequence[Size], stop: Sequence[Size], step: Sequence[int]
) -> TensorMeta:
    shape = _slice_shape("slice", a, start, stop, step)
    return a.like(shape, [s * k for s, k in zip(a.stride, step, strict=True)])


def _slice(
    a: torch.Tensor, start: Sequence[Size], stop: Sequence[Size], step: Sequence[int]
) -> torch.Tensor:
    meta = _slice_rule(TensorMeta.of(a), start, stop, step)
    offset = sum(b * s for b, s in zip(start, a.stride(), strict=True)) if a.numel() else 0
    return a.as_strided(meta.shape, meta.stride, a.storage_offset() + offset)


slice_ = define(
    "slice(Tensor(a) a, SymInt[] start, SymInt[] stop, int[] step) -> Tensor(a)",
    rule=_slice_rule,
    eager=_slice,
    tags=("shape", "view"),
    doc="Elements start, start+step, ... below stop, in every dimension; 0 <= start <= stop.",
    shape="(stop - start) / step, rounded up, in each dimension",
    edge_cases="start == stop gives no elements",
    source="slices as in the Python reference",
)


def _cat_rule(xs: Sequence[TensorMeta], dim: int) -> TensorMeta:
    require(len(xs) > 0, "cat: no tensors")
    first = xs[0]
    require(0 <= dim < first.ndim, f"cat: dim {dim} of a {first.ndim}-d tensor")
    total: Size = 0
    for x in xs:
        require(x.dtype == first.dtype, f"cat: dtypes {first.dtype} and {x.dtype}; cast first")
        alike = x.ndim == first.ndim and all(
            p == q for d, (p, q) in enumerate(zip(x.shape, first.shape, strict=True)) if d != dim
        )
        require(alike, f"cat: shapes {first.shape} and {x.shape} along {dim}")
        total = total + x.shape[dim]
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    if all(map(suggests_channels_last, xs)):
        return first.like(shape, channels_last_strides(shape))
    return first.like(shape)


cat = define(
    "cat(Tensor[] xs, int dim) -> Tensor",
    rule=_cat_rule,
    eager=lambda xs, dim: torch.cat(xs, dim),
    tags=("shape",),
    doc="The tensors (of one dtype) one after another along `dim`.",
    shape="the sum of the sizes along `dim`; all others equal",
    edge_cases="tensors of size 0 along `dim` add nothing",
    source="concatenation",
)


def _pad_rule(
    a: TensorMeta, low: Sequence[Size], high: Sequence[Size], value: complex
) -> TensorMeta:
    del value
    good = len(low) == len(high) == a.ndim and all(n >= 0 for n in (*low, *high))
    require(good, f"pad: {list(low)} and {list(high)} for a {a.ndim}-d tensor")
    shape = [b + n + e for b, n, e in zip(low, a.shape, high, strict=True)]
    if suggests_channels_last(a):
        return a.like(shape, channels_last_strides(shape))
    return a.like(shape)


def _pad(
    a: torch.Tensor, low: Sequence[Size], high: Sequence[Size], value: complex
) -> torch.Tensor:
    meta = _pad_rule(TensorMeta.of(a), low, high, value)
    result = torch.empty_strided(meta.shape, meta.stride, dtype=a.dtype, device=a.device)
    inner = result.fill_(value)
    for dim, (begin, size) in enumerate(zip(low, a.shape, strict=True)):
        inner = inner.narrow(dim, begin, size)
    inner.copy_(a)
    return result


pad = define(
    "pad(Tensor a, SymInt[] low, SymInt[] high, Scalar value) -> Tensor",
    rule=_pad_rule,
    eager=_pad,
    tags=("shape",),
    doc="`a` with `low[d]` elements of `value` before it and `high[d]` after it in dimension d.",
    shape="low + size + high in each dimension",
    edge_cases="no negative amounts: `slice` cuts",
    source="zero padding, any value",
)


def _flip_rule(a: TensorMeta, dims: Sequence[int]) -> TensorMeta:
    require(all(0 <= d < a.ndim for d in dims), f"flip: {list(dims)} of a {a.ndim}-d tensor")
    strides = preserved_strides(a)
    return a.like(a.shape, strides)


flip = define(
    "flip(Tensor a, int[] dims) -> Tensor",
    rule=_flip_rule,
    eager=lambda a, dims: torch.flip(a, dims),
    tags=("shape",),
    doc="The order of elements along `dims` reversed.",
    shape="that of the operand",
    edge_cases="no dims: a copy",
    source="reversal: Iverson, A Programming Language, 1962",
)


def _clone_rule(a: TensorMeta, *, order: Sequence[int] | None = None) -> TensorMeta:
    if order is None:
        return a.like(a.shape)
    require(sorted(order) == list(range(a.ndim)), f"clone: order {list(order)} for {a.ndim} dims")
    return a.like(a.shape, ordered_strides(a.shape, order))


def _clone(a: torch.Tensor, *, order: Sequence[int] | None = None) -> torch.Tensor:
    if order is None:
        return a.clone(memory_format=torch.contiguous_format)
    strides = ordered_strides(tuple(a.shape), order)
    return torch.empty_strided(a.shape, strides, dtype=a.dtype, device=a.device).copy_(a)


clone = define(
    "clone(Tensor a, *, int[]? order=None) -> Tensor",
    rule=_clone_rule,
    eager=_clone,
    tags=("shape",),
    doc="A dense copy; `order` lists dimensions outermost to innermost, None means row-major.",
    shape="that of the operand",
    edge_cases="overlapping views become dense",
    source="copy",
)


def _slice_scatter_rule(
    a: TensorMeta, src: TensorMeta, start: Sequence[Size], stop: Sequence[Size], step: Sequence[int]
) -> TensorMeta:
    shape = tuple(_slice_shape("slice_scatter", a, start, stop, step))
    require(src.shape == shape, f"slice_scatter: {src.shape} does not fill {shape}")
    require(src.dtype == a.dtype, f"slice_scatter: {src.dtype} into {a.dtype}; cast first")
    return a.like(a.shape, elementwise_strides((a,)))


def _slice_scatter(
    a: torch.Tensor,
    src: torch.Tensor,
    start: Sequence[Size],
    stop: Sequence[Size],
    step: Sequence[int],
) -> Any:
    meta = _slice_scatter_rule(TensorMeta.of(a), TensorMeta.of(src), start, stop, step)
    result = torch.empty_strided(meta.shape, meta.stride, dtype=a.dtype, device=a.device).copy_(a)
    _slice(result, start, stop, step).copy_(src)
    return result


slice_scatter = define(
    "slice_scatter(Tensor a, Tensor src, SymInt[] start, SymInt[] stop, int[] step) -> Tensor",
    rule=_slice_scatter_rule,
    eager=_slice_scatter,
    tags=("shape",),
    doc="A copy of `a` in which the elements that `slice` would take are those of `src`.",
    shape="that of `a`; `src` has the shape of the slice",
    edge_cases="an empty slice: a copy of `a`",
    source="inverse of `slice`",
)
