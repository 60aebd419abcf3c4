"""Indexing primitives.

In: a tensor, int64 positions. Out: a new tensor; the operands are never written to.
Invariant: positions are within range or negative by less than the size only where said;
an index out of range is an error in eager and undefined in compiled code, as in CUDA kernels,
unless `bounds_checked` has looked at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flambeau_prims._op import define, flops_per_output, require
from flambeau_prims.layout import Size, TensorMeta, preserved_strides
from flambeau_prims.ops.pointwise import INTS

_RANGE = {"out of range": "an error in eager, undefined in compiled code"}
_SOURCE = "gather as in Blelloch, Vector Models for Data-Parallel Computing, 1990"


def check_index(name: str, a: TensorMeta, dim: int, index: TensorMeta) -> None:
    """Raise unless `index` holds int64 positions along dimension `dim` of `a`."""
    require(0 <= dim < max(a.ndim, 1), f"{name}: dim {dim} of a {a.ndim}-d tensor")
    require(index.dtype == torch.int64, f"{name}: the index is {index.dtype}, not int64")


ERRORS: dict[str, type[Exception]] = {"IndexError": IndexError, "RuntimeError": RuntimeError}


def _bounds_rule(index: TensorMeta, size: Size, error: str, message: str) -> TensorMeta:
    del size, message
    require(index.dtype == torch.int64, f"bounds_checked: the index is {index.dtype}, not int64")
    require(error in ERRORS, f"bounds_checked: {error} is none of {', '.join(ERRORS)}")
    return index.like(index.shape)


def _bounds_checked(index: torch.Tensor, size: int, error: str, message: str) -> torch.Tensor:
    outside = torch.logical_or(index < 0, index >= size)
    text = message.replace("{size}", str(size))
    if index.device.type != "cpu":
        text = text.replace("{index}", f"of a {index.device.type} tensor")
        torch.ops.aten._assert_async.msg(outside.logical_not().all(), text)
    elif bool(outside.any()):
        raise ERRORS[error](text.replace("{index}", str(index[outside][0].item())))
    return index.clone(memory_format=torch.contiguous_format)


bounds_checked = define(
    "bounds_checked(Tensor index, SymInt size, str error, str message) -> Tensor",
    rule=_bounds_rule,
    eager=_bounds_checked,
    tags=("index",),
    doc="`index`, all of whose elements are at least 0 and less than `size`.",
    shape="that of `index`",
    edge_cases={
        "out of range": "stops the program before anything is read or written at the result:"
        " raises `error`, IndexError or RuntimeError, with `message`, in which {index} is the"
        " first such element and {size} the size; on a GPU an assertion that fails at some later"
        " time",
    },
    source="bounds checks as in the Java Language Specification, 15.10.4",
    differentiable=False,
)


def _preserved(a: TensorMeta) -> TensorMeta:
    """Metadata of a copy that keeps the layout where it is dense."""
    strides = preserved_strides(a)
    return a.like(a.shape, strides)


def _gather_rule(a: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    check_index("gather", a, dim, index)
    require(a.ndim == index.ndim, f"gather: {index.ndim}-d index into a {a.ndim}-d tensor")
    return a.like(index.shape)


gather = define(
    "gather(Tensor a, int dim, Tensor index) -> Tensor",
    rule=_gather_rule,
    eager=lambda a, dim, index: torch.gather(a, dim, index),
    tags=("index",),
    doc="out[i, j] = a[index[i, j], j] for dim 0, and likewise for others; no negative positions.",
    shape="that of `index`",
    edge_cases=_RANGE,
    source=_SOURCE,
)


def _index_select_rule(a: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    check_index("index_select", a, dim, index)
    require(index.ndim == 1, f"index_select: the index is {index.ndim}-d, not 1-d")
    require(a.ndim > 0, "index_select: a 0-d tensor has no dimension to select from")
    return a.like((*a.shape[:dim], index.shape[0], *a.shape[dim + 1 :]))


index_select = define(
    "index_select(Tensor a, int dim, Tensor index) -> Tensor",
    rule=_index_select_rule,
    eager=lambda a, dim, index: torch.index_select(a, dim, index),
    tags=("index",),
    doc="The slices of `a` along `dim` at the positions of a 1-d `index`; none negative.",
    shape="that of `a`, with the length of `index` along `dim`",
    edge_cases=_RANGE,
    source=_SOURCE,
)


def broadcast_index_shape(
    name: str, a: TensorMeta, indices: Sequence[TensorMeta | None]
) -> tuple[tuple[Size, ...], int, int]:
    """Common shape of the index tensors, and the first and number of dimensions they replace."""
    given = [d for d, index in enumerate(indices) if index is not None]
    require(
        len(given) > 0 and len(indices) <= a.ndim,
        f"{name}: {len(indices)} indices for a {a.ndim}-d tensor",
    )
    tensors = [index for index in indices if index is not None]
    for index in tensors:
        good = index.dtype in INTS and index.dtype not in (torch.uint8, torch.int8, torch.int16)
        require(good, f"{name}: an index is {index.dtype}; int32 or int64 is needed")
    ndim = max(index.ndim for index in tensors)
    shape: list[Size] = [1] * ndim
    for index in tensors:
        for position, size in enumerate(index.shape, ndim - index.ndim):
            known = shape[position]
            # asked in this order, a size that depends on elements need not be known to be 1 or not
            if isinstance(known, int) and known == 1:
                shape[position] = size
            elif not bool(known == size) and not bool(size == 1):
                shapes = [i.shape for i in tensors]
                require(bool(known == 1), f"{name}: index shapes {shapes} do not broadcast")
                shape[position] = size
    adjacent = given == list(range(given[0], given[0] + len(given)))
    return tuple(shape), (given[0] if adjacent else 0), len(given)


def index_result_shape(
    name: str, a: TensorMeta, indices: Sequence[TensorMeta | None]
) -> tuple[Size, ...]:
    """Shape of `a[indices]`: the indices' common shape where they stood, in front if apart."""
    common, first, count = broadcast_index_shape(name, a, indices)
    del count
    rest = [size for d, size in enumerate(a.shape) if d >= len(indices) or indices[d] is None]
    return (*rest[:first], *common, *rest[first:])


def _index_rule(a: TensorMeta, indices: Sequence[TensorMeta | None]) -> TensorMeta:
    return a.like(index_result_shape("index", a, indices))


def _index(a: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    return torch.ops.aten.index.Tensor(a, list(indices)).contiguous()  # type: ignore[no-any-return]


index = define(
    "index(Tensor a, Tensor?[] indices) -> Tensor",
    rule=_index_rule,
    eager=_index,
    tags=("index",),
    doc="`a[indices]`, None keeping a dimension; integer indices only, negative from the end.",
    shape="the indices' common shape where they stand; in front if they are apart",
    edge_cases=_RANGE,
    source="advanced indexing as in the NumPy reference",
)


def _index_put_rule(
    a: TensorMeta,
    indices: Sequence[TensorMeta | None],
    values: TensorMeta,
    accumulate: bool,
) -> TensorMeta:
    del accumulate
    require(a.dtype == values.dtype, f"index_put: {values.dtype} into {a.dtype}; cast first")
    target = index_result_shape("index_put", a, indices)
    pairs = zip(reversed(values.shape), reversed(target), strict=False)
    good = values.ndim <= len(target) and all(v == 1 or v == t for v, t in pairs)
    require(good, f"index_put: values {values.shape} do not broadcast to {target}")
    return _preserved(a)


def _index_put(
    a: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool,
) -> Any:
    meta = _preserved(TensorMeta.of(a))
    copy = torch.empty_strided(meta.shape, meta.stride, dtype=a.dtype, device=a.device)
    return torch.ops.aten.index_put_.default(copy.copy_(a), list(indices), values, accumulate)


index_put = define(
    "index_put(Tensor a, Tensor?[] indices, Tensor values, bool accumulate) -> Tensor",
    rule=_index_put_rule,
    eager=_index_put,
    tags=("index",),
    exact=False,  # of floats that are added up
    doc="A copy of `a` with `values` (broadcast) stored, or added, where `index` would read.",
    shape="that of `a`; `values` broadcast to what `index` would give",
    edge_cases={**_RANGE, "duplicates": "all are added if `accumulate`, else any one is stored"},
    source="advanced indexing as in the NumPy reference",
    flops=flops_per_output(1),
)
