"""Shape primitives: move, repeat, join, pad, copy.

In: tensors and sizes. Out: for those tagged `view` a view of the operand; dense copies otherwise.
Invariant: sizes are explicit (no -1, no negative dimensions), every dimension is spoken for.

`reshape` is tagged `view` although it copies where no view exists: graphs are functional, so the
two differ in their cost alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import empty_as, primitive, require
from flambeau_prims._torch_compat import surely
from flambeau_prims.shape_rules import (
    Size,
    Sizes,
    TensorMeta,
    channels_last_strides,
    elementwise_strides,
    ordered_strides,
    preserved_strides,
    product,
    suggests_channels_last,
    view_strides,
)

_moving = partial(primitive, tags=("shape",))

_view = partial(primitive, tags=("shape", "view"))


def _broadcast_in_dim(a: torch.Tensor, shape: Sizes, dims: Sequence[int]) -> torch.Tensor:
    meta = broadcast_in_dim(TensorMeta.of(a), shape, dims)
    return a.as_strided(meta.shape, meta.stride)


@_view(
    "broadcast_in_dim(Tensor(a) a, SymInt[] shape, int[] dims) -> Tensor(a)",
    _broadcast_in_dim,
    shape="`shape`",
    edge_cases="a dimension of size 1 that grows has stride 0",
    source="broadcasting as in the NumPy reference",
)
def broadcast_in_dim(a: TensorMeta, shape: Sizes, dims: Sequence[int]) -> TensorMeta:
    """Dimension i of `a` becomes dimension `dims[i]` of `shape`; sizes equal or 1, rest new."""
    good = len(dims) == a.ndim and all(0 <= d < len(shape) for d in dims)
    good = good and all(p < q for p, q in itertools.pairwise(dims))
    require(good, f"dims {list(dims)} of {list(shape)} for shape {a.shape}")
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
            require(a.shape[position] == 1, f"size {a.shape[position]} does not go to {shape[dim]}")
        step = shape[dim] * strides[dim]
    return a.like(tuple(shape), strides)


def _restated(shape: Sizes, steps: Sizes, stride: Sizes) -> list[Size]:
    """The steps between elements, and where nothing is stepped along these strides."""
    require(len(shape) == len(stride), f"strides {list(stride)} of {list(shape)}")
    free = any(surely(n == 0) for n in shape)
    pairs = zip(shape, steps, stride, strict=True)
    return [given if free or surely(n == 1) else step for n, step, given in pairs]


def _reshape(a: torch.Tensor, shape: Sizes, *, stride: Sizes | None = None) -> torch.Tensor:
    made = a.reshape(shape)
    return (
        made if stride is None else made.as_strided(shape, _restated(shape, made.stride(), stride))
    )


@_view(
    "reshape(Tensor(a) a, SymInt[] shape, *, SymInt[]? stride=None) -> Tensor(a)",
    _reshape,
    shape="`shape`",
    edge_cases="sizes must have the product of the operand's; 0-d takes one element",
    source="row-major order: Knuth, The Art of Computer Programming, vol. 1, 2.2.6",
)
def reshape(a: TensorMeta, shape: Sizes, *, stride: Sizes | None = None) -> TensorMeta:
    """The elements in row-major order under another shape; a view where one exists. stride: what
    it has for strides, where nothing is stepped along: in dimensions of size 1, and of no
    elements."""
    sizes = tuple(shape)
    require(
        product(sizes) == a.numel() and all(size >= 0 for size in sizes),
        f"{a.shape} does not have the elements of {sizes}",
    )
    made = a.like(sizes, view_strides(a.shape, a.stride, sizes))
    return made if stride is None else a.like(sizes, _restated(sizes, made.stride, stride))


@_view(
    "permute(Tensor(a) a, int[] dims) -> Tensor(a)",
    lambda a, dims: a.permute(dims),
    shape="the operand's sizes in the order of `dims`",
    edge_cases="`dims` lists each dimension once",
    source="transposition of tensors",
)
def permute(a: TensorMeta, dims: Sequence[int]) -> TensorMeta:
    """Dimension i of the result is dimension `dims[i]` of `a`."""
    require(sorted(dims) == list(range(a.ndim)), f"{list(dims)} of a {a.ndim}-d tensor")
    return a.like([a.shape[d] for d in dims], [a.stride[d] for d in dims])


def _slice(a: torch.Tensor, start: Sizes, stop: Sizes, step: Sequence[int]) -> torch.Tensor:
    meta = slice_(TensorMeta.of(a), start, stop, step)
    offset = sum(b * s for b, s in zip(start, a.stride(), strict=True)) if a.numel() else 0
    return a.as_strided(meta.shape, meta.stride, a.storage_offset() + offset)


@_view(
    "slice(Tensor(a) a, SymInt[] start, SymInt[] stop, int[] step) -> Tensor(a)",
    _slice,
    shape="(stop - start) / step, rounded up, in each dimension",
    edge_cases="start == stop gives no elements",
    source="slices as in the Python reference",
)
def slice_(a: TensorMeta, start: Sizes, stop: Sizes, step: Sequence[int]) -> TensorMeta:
    """Elements start, start+step, ... below stop, in every dimension; 0 <= start <= stop."""
    require(
        len(start) == len(stop) == len(step) == a.ndim and all(s > 0 for s in step),
        f"start, stop and step > 0 are needed for each of {a.ndim} dimensions",
    )
    bounds = zip(start, stop, a.shape, strict=True)
    # whoever takes a bound from data has checked it
    wrong = any(surely(b < 0) or surely(b > e) or surely(e > n) for b, e, n in bounds)
    require(not wrong, f"{list(start)} to {list(stop)} is not inside {a.shape}")
    shape = [(e - b + s - 1) // s for b, e, s in zip(start, stop, step, strict=True)]
    return a.like(shape, [s * k for s, k in zip(a.stride, step, strict=True)])


@_moving(
    "cat(Tensor[] xs, int dim) -> Tensor",
    lambda xs, dim: torch.cat(xs, dim),
    shape="the sum of the sizes along `dim`; all others equal",
    edge_cases="tensors of size 0 along `dim` add nothing",
    source="concatenation",
)
def cat(xs: Sequence[TensorMeta], dim: int) -> TensorMeta:
    """The tensors (of one dtype) one after another along `dim`."""
    require(len(xs) > 0, "no tensors")
    first = xs[0]
    require(0 <= dim < first.ndim, f"dim {dim} of a {first.ndim}-d tensor")
    total: Size = 0
    for x in xs:
        require(x.dtype == first.dtype, f"dtypes {first.dtype} and {x.dtype}; cast first")
        alike = x.ndim == first.ndim and all(
            p == q for d, (p, q) in enumerate(zip(x.shape, first.shape, strict=True)) if d != dim
        )
        require(alike, f"shapes {first.shape} and {x.shape} along {dim}")
        total = total + x.shape[dim]
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    if all(map(suggests_channels_last, xs)):
        return first.like(shape, channels_last_strides(shape))
    return first.like(shape)


def _pad(a: torch.Tensor, low: Sizes, high: Sizes, value: complex) -> torch.Tensor:
    result = empty_as(pad(TensorMeta.of(a), low, high, value), a.device)
    inner = result.fill_(value)
    for dim, (begin, size) in enumerate(zip(low, a.shape, strict=True)):
        inner = inner.narrow(dim, begin, size)
    inner.copy_(a)
    return result


@_moving(
    "pad(Tensor a, SymInt[] low, SymInt[] high, Scalar value) -> Tensor",
    _pad,
    shape="low + size + high in each dimension",
    edge_cases="no negative amounts: `slice` cuts",
    source="zero padding, any value",
)
def pad(a: TensorMeta, low: Sizes, high: Sizes) -> TensorMeta:
    """`a` with `low[d]` elements of `value` before it and `high[d]` after it in dimension d."""
    good = len(low) == len(high) == a.ndim and all(n >= 0 for n in (*low, *high))
    require(good, f"{list(low)} and {list(high)} for a {a.ndim}-d tensor")
    shape = [b + n + e for b, n, e in zip(low, a.shape, high, strict=True)]
    if suggests_channels_last(a):
        return a.like(shape, channels_last_strides(shape))
    return a.like(shape)


@_moving(
    "flip(Tensor a, int[] dims) -> Tensor",
    lambda a, dims: torch.flip(a, dims),
    shape="that of the operand",
    edge_cases="no dims: a copy",
    source="reversal: Iverson, A Programming Language, 1962",
)
def flip(a: TensorMeta, dims: Sequence[int]) -> TensorMeta:
    """The order of elements along `dims` reversed."""
    require(all(0 <= d < a.ndim for d in dims), f"{list(dims)} of a {a.ndim}-d tensor")
    return a.like(a.shape, preserved_strides(a))


def _clone(a: torch.Tensor, *, order: Sequence[int] | None = None) -> torch.Tensor:
    if order is None:
        return a.clone(memory_format=torch.contiguous_format)
    return empty_as(clone(TensorMeta.of(a), order=order), a.device).copy_(a)


@_moving(
    "clone(Tensor a, *, int[]? order=None) -> Tensor",
    _clone,
    shape="that of the operand",
    edge_cases="overlapping views become dense",
    source="copy",
)
def clone(a: TensorMeta, *, order: Sequence[int] | None = None) -> TensorMeta:
    """A dense copy; `order` lists dimensions outermost to innermost, None means row-major."""
    if order is None:
        return a.like(a.shape)
    require(sorted(order) == list(range(a.ndim)), f"order {list(order)} for {a.ndim} dims")
    return a.like(a.shape, ordered_strides(a.shape, order))


def written_through(
    view: Callable[..., TensorMeta], a: TensorMeta, src: TensorMeta, *where: Any
) -> TensorMeta:
    """Metadata of a copy of `a` in which what a view of it shows is `src`."""
    shape = view(a, *where).shape
    require(src.shape == shape, f"src {src.shape} does not fill {shape}")
    require(src.dtype == a.dtype, f"{src.dtype} into {a.dtype}; cast first")
    return a.like(a.shape, elementwise_strides((a,)))


def writing_through(view: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A copy of a tensor, in what the view shows of it another."""

    def eager(a: torch.Tensor, src: torch.Tensor, *where: Any) -> torch.Tensor:
        meta = TensorMeta.of(a)
        copy = empty_as(meta.like(meta.shape, elementwise_strides((meta,))), a.device).copy_(a)
        view(copy, *where).copy_(src)
        return copy

    return eager


@_moving(
    "slice_scatter(Tensor a, Tensor src, SymInt[] start, SymInt[] stop, int[] step) -> Tensor",
    writing_through(_slice),
    shape="that of `a`; `src` has the shape of the slice",
    edge_cases="an empty slice: a copy of `a`",
    source="inverse of `slice`",
)
def slice_scatter(a: TensorMeta, src: TensorMeta, *where: Any) -> TensorMeta:
    """A copy of `a` in which the elements that `slice` would take are those of `src`."""
    return written_through(slice_, a, src, *where)
