"""Indexing and scatter primitives.

In: a tensor, int64 positions, values. Out: a new tensor; the operands are never written to.
Invariant: positions are within range, or negative by less than the size only where said; an index
out of range is an error in eager and undefined in compiled code, as in CUDA kernels, unless
`bounds_checked` has refused it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import (
    define,
    empty_as,
    flops_per_input,
    flops_per_output,
    primitive,
    require,
)
from flambeau_prims.ops.pointwise import ANY, BOOL, INTS, REAL, Kind
from flambeau_prims.shape_rules import Size, TensorMeta, contiguous_strides, preserved_strides

_indexing = partial(primitive, tags=("index",))

_RANGE = {"out of range": "an error in eager, undefined in compiled code"}
_SOURCE = "gather as in Blelloch, Vector Models for Data-Parallel Computing, 1990"


def check_index(a: TensorMeta, dim: int, index: TensorMeta) -> None:
    """Raise unless `index` holds int64 positions along dimension `dim` of `a`."""
    require(0 <= dim < max(a.ndim, 1), f"dim {dim} of a {a.ndim}-d tensor")
    require(index.dtype == torch.int64, f"the index is {index.dtype}, not int64")


ERRORS: dict[str, type[Exception]] = {"IndexError": IndexError, "RuntimeError": RuntimeError}


def _bounds_checked(index: torch.Tensor, size: int, error: str, message: str) -> torch.Tensor:
    outside = torch.logical_or(index < 0, index >= size)
    text = message.replace("{size}", str(size))
    if index.device.type != "cpu":
        text = text.replace("{index}", f"of a {index.device.type} tensor")
        torch.ops.aten._assert_async.msg(outside.logical_not().all(), text)
    elif bool(outside.any()):
        raise ERRORS[error](text.replace("{index}", str(index[outside][0].item())))
    return index.clone(memory_format=torch.contiguous_format)


@_indexing(
    "bounds_checked(Tensor index, SymInt size, str error, str message) -> Tensor",
    _bounds_checked,
    shape="that of `index`",
    edge_cases={
        "out of range": "stops the program before anything is read or written at the result:"
        " raises `error`, IndexError or RuntimeError, with `message`, in which {index} is the"
        " first such element and {size} the size; on a GPU an assertion that fails at some later"
        " time"
    },
    source="bounds checks as in the Java Language Specification, 15.10.4",
    differentiable=False,
)
def bounds_checked(index: TensorMeta, error: str) -> TensorMeta:
    """`index`, all of whose elements are at least 0 and less than `size`."""
    require(index.dtype == torch.int64, f"the index is {index.dtype}, not int64")
    require(error in ERRORS, f"{error} is none of {', '.join(ERRORS)}")
    return index.like(index.shape)


def _preserved(a: TensorMeta) -> TensorMeta:
    """Metadata of a copy that keeps the layout where it is dense."""
    return a.like(a.shape, preserved_strides(a))


@_indexing(
    "gather(Tensor a, int dim, Tensor index) -> Tensor",
    lambda a, dim, index: torch.gather(a, dim, index),
    shape="that of `index`",
    edge_cases=_RANGE,
    source=_SOURCE,
)
def gather(a: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    """out[i, j] = a[index[i, j], j] for dim 0, and likewise for others; no negative positions."""
    check_index(a, dim, index)
    require(a.ndim == index.ndim, f"{index.ndim}-d index into a {a.ndim}-d tensor")
    return a.like(index.shape)


@_indexing(
    "index_select(Tensor a, int dim, Tensor index) -> Tensor",
    lambda a, dim, index: torch.index_select(a, dim, index),
    shape="that of `a`, with the length of `index` along `dim`",
    edge_cases=_RANGE,
    source=_SOURCE,
)
def index_select(a: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    """The slices of `a` along `dim` at the positions of a 1-d `index`; none negative."""
    check_index(a, dim, index)
    require(index.ndim == 1, f"the index is {index.ndim}-d, not 1-d")
    require(a.ndim > 0, "a 0-d tensor has no dimension to select from")
    return a.like((*a.shape[:dim], index.shape[0], *a.shape[dim + 1 :]))


def broadcast_index_shape(
    a: TensorMeta, indices: Sequence[TensorMeta | None]
) -> tuple[tuple[Size, ...], int, int]:
    """Common shape of the index tensors, and the first and number of dimensions they replace."""
    given = [d for d, index in enumerate(indices) if index is not None]
    good = len(given) > 0 and len(indices) <= a.ndim
    require(good, f"{len(indices)} indices for a {a.ndim}-d tensor")
    tensors = [index for index in indices if index is not None]
    for index in tensors:
        good = index.dtype in INTS and index.dtype not in (torch.uint8, torch.int8, torch.int16)
        require(good, f"an index is {index.dtype}; int32 or int64 is needed")
    ndim = max(index.ndim for index in tensors)
    shape: list[Size] = [1] * ndim
    for index in tensors:
        for position, size in enumerate(index.shape, ndim - index.ndim):
            known = shape[position]
            # in this order, a size that depends on elements need not be known to be 1 or not
            if isinstance(known, int) and known == 1:
                shape[position] = size
            elif not bool(known == size) and not bool(size == 1):
                shapes = [i.shape for i in tensors]
                require(bool(known == 1), f"index shapes {shapes} do not broadcast")
                shape[position] = size
    adjacent = given == list(range(given[0], given[0] + len(given)))
    return tuple(shape), (given[0] if adjacent else 0), len(given)


def index_result_shape(a: TensorMeta, indices: Sequence[TensorMeta | None]) -> tuple[Size, ...]:
    """Shape of `a[indices]`: the indices' common shape in their place, in front if not adjacent."""
    common, first, _ = broadcast_index_shape(a, indices)
    rest = [size for d, size in enumerate(a.shape) if d >= len(indices) or indices[d] is None]
    return (*rest[:first], *common, *rest[first:])


def _index(a: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    found: torch.Tensor = torch.ops.aten.index.Tensor(a, list(indices)).contiguous()
    return found.as_strided(found.shape, contiguous_strides(found.shape))


@_indexing(
    "index(Tensor a, Tensor?[] indices) -> Tensor",
    _index,
    shape="the indices' common shape where they stand; in front if they are apart",
    edge_cases=_RANGE,
    source="advanced indexing as in the NumPy reference",
)
def index_(a: TensorMeta, indices: Sequence[TensorMeta | None]) -> TensorMeta:
    """`a[indices]`, None keeping a dimension; integer indices only, negative from the end."""
    return a.like(index_result_shape(a, indices))


def _index_put(
    a: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool
) -> Any:
    copy = empty_as(_preserved(TensorMeta.of(a)), a.device).copy_(a)
    return torch.ops.aten.index_put_.default(copy, list(indices), values, accumulate)


@_indexing(
    "index_put(Tensor a, Tensor?[] indices, Tensor values, bool accumulate) -> Tensor",
    _index_put,
    exact=False,  # of floats that are added up
    shape="that of `a`; `values` broadcast to what `index` would give",
    edge_cases={**_RANGE, "duplicates": "all are added if `accumulate`, else any one is stored"},
    source="advanced indexing as in the NumPy reference",
    flops=flops_per_output(1),
)
def index_put(
    a: TensorMeta, indices: Sequence[TensorMeta | None], values: TensorMeta
) -> TensorMeta:
    """A copy of `a` with `values` (broadcast) stored, or added, where `index` would read."""
    require(a.dtype == values.dtype, f"{values.dtype} into {a.dtype}; cast first")
    target = index_result_shape(a, indices)
    pairs = zip(reversed(values.shape), reversed(target), strict=False)
    good = values.ndim <= len(target) and all(v == 1 or v == t for v, t in pairs)
    require(good, f"values {values.shape} do not broadcast to {target}")
    return _preserved(a)


def _scattered(a: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta) -> TensorMeta:
    check_index(a, dim, index)
    require(a.dtype == src.dtype, f"{src.dtype} into {a.dtype}; cast first")
    same = a.ndim == index.ndim == src.ndim
    require(same, f"a has {a.ndim} dimensions, index {index.ndim}, src {src.ndim}")
    for d, (taken, given, size) in enumerate(zip(index.shape, src.shape, a.shape, strict=True)):
        within = bool(taken <= given and (d == dim or taken <= size))
        require(
            within or bool(index.numel() == 0),
            f"index {index.shape} is larger than src {src.shape} or a {a.shape} in dimension {d}",
        )
    return a.like(a.shape)


def _eager(reduce: str | None) -> Any:
    def eager(a: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> Any:
        copy = a.clone(memory_format=torch.contiguous_format)
        if reduce is None:
            return copy.scatter_(dim, index, src)
        if reduce == "sum":
            return copy.scatter_add_(dim, index, src)
        return copy.scatter_reduce_(dim, index, src, reduce, include_self=True)

    return eager


_SHAPE = "that of `a`; `index` is at most as large as `src`, and as `a` but along `dim`"
_SCATTERED = {"out of range": "an error in eager, undefined in compiled code", "empty": "a copy"}

# name: (reduction, dtypes, what happens to out[index[i, j], j] for dim 0, edge cases)
_SCATTERS: dict[str, tuple[str | None, Kind, str, dict[str, str]]] = {
    "scatter": (None, ANY, "becomes src[i, j]", {"duplicates": "which one wins is undefined"}),
    "scatter_add": ("sum", ANY, "gets src[i, j] added",
        {"duplicates": "all are added, in no particular order"}),
    "scatter_prod": ("prod", ANY, "is multiplied by src[i, j]",
        {"duplicates": "all are multiplied, in no particular order"}),
    "scatter_amax": ("amax", REAL | BOOL, "becomes the larger of itself and src[i, j]",
        {"nan": "wins over every number"}),
    "scatter_amin": ("amin", REAL | BOOL, "becomes the smaller of itself and src[i, j]",
        {"nan": "wins over every number"}),
}  # fmt: skip

for _name, (_reduce, _kind, _what, _edges) in _SCATTERS.items():
    define(
        f"{_name}(Tensor a, int dim, Tensor index, Tensor src) -> Tensor",
        rule=_scattered,
        eager=_eager(_reduce),
        family="scatter",
        tags=("index",),
        exact=_name not in ("scatter_add", "scatter_prod"),
        doc=f"A copy of `a` in which out[index[i, j], j] {_what} for dim 0, and so on.",
        shape=_SHAPE,
        edge_cases={**_edges, **_SCATTERED},
        source="scatter as in Blelloch, Vector Models for Data-Parallel Computing, 1990",
        flops=flops_per_input(1) if _reduce else None,
        dtypes=_kind,
    )
