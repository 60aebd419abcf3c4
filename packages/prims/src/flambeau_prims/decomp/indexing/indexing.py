"""Decompositions of indexing by tensors and masks.

In: ATen's overloads, with None, masks and integers of any width among the indices. Out: the
indexing prims, with int64 positions.
Invariant: a mask becomes the positions of its true elements, unless what is read or written needs
none of them. What eager refuses is refused with an error of its class: here if dtypes or shapes
decide, when the program runs if elements do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import surely
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, canonical, p
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.ops.indexing import broadcast_index_shape
from flambeau_prims.promotion import broadcast_shapes, compute_dtype, same_shape
from flambeau_prims.shape_rules import Size, Sizes, TensorMeta, elementwise_strides, product

aten = torch.ops.aten
Indices = Sequence[Tensor | None]
_MASKS = (torch.bool, torch.uint8)


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
    places = positions("embedding", indices)
    if indices.ndim == 1:
        return p.index_select(weight, 0, places)
    rows = p.index_select(weight, 0, p.reshape(places, [indices.numel()]))
    return p.reshape(rows, [*indices.shape, weight.shape[1]])


@decomposition(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    grad: Tensor, indices: Tensor, num_weights: Size, padding_idx: Size, scale_grad_by_freq: bool
) -> Any:
    width = grad.shape[-1]
    count = indices.numel()
    positions = p.reshape(e.cast(indices, torch.int64), [count])
    rows = p.reshape(e.widen(grad), [count, width])
    if padding_idx >= 0:
        used = p.broadcast_in_dim(e.ne(positions, padding_idx), [count, width], [0])
        rows = e.where(used, rows, 0.0)
    if scale_grad_by_freq:
        ones = e.filled(rows, [count], 1)
        times = e.filled(rows, [num_weights])
        times = p.index_select(p.index_put(times, [positions], ones, True), 0, positions)
        rows = p.div(rows, p.broadcast_in_dim(times, [count, width], [0]))
    zeros = e.filled(rows, [num_weights, width])
    return e.cast(p.index_put(zeros, [positions], rows, True), grad.dtype)


def _at_home(x: Tensor, indices: Indices) -> list[Tensor | None]:
    """One int64 index, or None, for each dimension of `x` up to the last that has one.

    A mask becomes as many indices as it has dimensions; indices of another device (eager takes
    CPU indices anywhere) are moved.
    """
    result: list[Tensor | None] = []
    for index in indices:
        if index is None:
            result.append(None)
            continue
        if index.device != x.device:
            index = p.device_put(index, device=x.device)
        if index.dtype not in _MASKS:
            if index.dtype not in INTEGERS:
                raise IndexError(
                    "tensors used as indices must be long, int, byte or bool tensors, not"
                    f" {index.dtype}"
                )
            result.append(e.cast(index, torch.int64))
            continue
        covered = tuple(x.shape[len(result) : len(result) + index.ndim])
        if tuple(index.shape) != covered:
            raise IndexError(
                f"The shape of the mask {list(index.shape)} at index {len(result)} does not match"
                f" the shape of the indexed tensor {list(x.shape)} at index {len(result)}"
            )
        found = p.nonzero(index)
        result += [_column(found, d) for d in range(index.ndim)]
    while result and result[-1] is None:
        result.pop()
    if len(result) > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    return result


def _column(found: Tensor, d: int) -> Tensor:
    """Column `d` of a matrix of positions, without naming the number of its rows."""
    at = e.filled(found, [], d, torch.int64)
    return p.index(found, [None, at])


@decomposition(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(x: Tensor, indices: Indices) -> Any:
    places = _at_home(x, indices)
    if not places:
        return e.copy_in_format(x, torch.contiguous_format)
    found = p.index(x, places)
    given = [place for place in places if place is not None]
    if all(map(e.contiguous, (x, *given))):
        return found
    return e.with_strides(found, _strides_found(x, places, found))


def _strides_found(x: Tensor, places: Indices, found: Tensor) -> Sizes:
    """Strides of `x[places]`: those of a pointwise operation on `x`, which is repeated along the
    dimensions of the positions, and on the positions, which are along all others."""
    metas = [None if place is None else TensorMeta.of(place) for place in places]
    common, first, _ = broadcast_index_shape(TensorMeta.of(x), metas)
    kept = [d for d in range(x.ndim) if d >= len(places) or places[d] is None]
    own = [x.stride(d) for d in kept]
    before, behind = [0] * first, [0] * (len(kept) - first)
    operands = [[*own[:first], *(0 for _ in common), *own[first:]]]
    for place in places:
        if place is not None:
            new = len(common) - place.ndim
            pairs = zip(place.shape, place.stride(), strict=True)
            steps = [0] * new + [0 if size == 1 else step for size, step in pairs]
            operands.append([*before, *steps, *behind])
    like = TensorMeta.of(found)
    return elementwise_strides([like.like(stride=strides) for strides in operands])


@decomposition(aten.index_put.default, aten._unsafe_index_put.default, aten._index_put_impl.default)
def index_put(
    x: Tensor, indices: Indices, values: Tensor, accumulate: bool = False, unsafe: bool = False
) -> Any:
    if values.dtype != x.dtype:
        raise RuntimeError(
            "Index put requires the source and destination dtypes match, got"
            f" {x.dtype} for the destination and {values.dtype} for the source."
        )
    if values.device != x.device:
        values = p.device_put(values, device=x.device)
    mask = indices[0] if len(indices) == 1 else None
    if mask is not None and mask.dtype in _MASKS and _for_every_true(x, mask, values):
        return _filled_under(x, mask, values, accumulate)
    if any(index is not None and index.dtype in _MASKS for index in indices):
        return NotImplemented  # as many positions as there are true elements: the library counts
    places = _at_home(x, indices)
    if not places:
        placed = e.expand(values, x.shape)
        return e.laid_out_as(x, p.clone(p.add(x, placed) if accumulate else placed))
    return p.index_put(x, places, values, accumulate)


def _for_every_true(x: Tensor, mask: Tensor, values: Tensor) -> bool:
    """Whether all true elements of a mask get the same values, so that nobody need count them."""
    rest = list(x.shape[mask.ndim :])
    if tuple(mask.shape) != tuple(x.shape[: mask.ndim]):
        return False  # the library refuses it
    shape = list(values.shape)
    if len(shape) > len(rest):
        if len(shape) > len(rest) + 1 or not e.is_one(shape[0]):
            return e.is_one(values.numel())
        shape = shape[1:]
    pairs = zip(reversed(shape), reversed(rest), strict=False)
    return all(e.is_one(n) or (not e.is_symbolic(n) and n == m) for n, m in pairs)


def _filled_under(x: Tensor, mask: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """The same values under all of a mask need no positions."""
    if mask.device != x.device:
        mask = p.device_put(mask, device=x.device)
    if mask.dtype != torch.bool:
        mask = e.ne(mask, 0)
    covered = p.broadcast_in_dim(mask, list(x.shape), list(range(mask.ndim)))
    ndim = min(values.ndim, x.ndim - mask.ndim)
    inner = p.reshape(values, list(values.shape[values.ndim - ndim :]))
    placed = e.expand(inner, list(x.shape))
    if accumulate:
        placed = p.add(x, placed)
    return e.laid_out_as(x, p.where(covered, placed, x))


@decomposition(aten._unsafe_masked_index.default)
def unsafe_masked_index(x: Tensor, mask: Tensor, indices: Indices, fill: Number) -> Tensor:
    # where the mask is false the positions may be anything: the first element stands in
    places = _clamped(x, indices)
    found = p.index(x, places)
    chosen = e.where(e.expand(mask, found.shape), found, fill)
    return e.in_format(chosen, torch.contiguous_format)


@decomposition(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put_accumulate(
    x: Tensor, mask: Tensor, indices: Indices, values: Tensor
) -> Tensor:
    if any(isinstance(size, int) and size == 0 for size in x.shape):
        return p.clone(x)  # without a look at the values
    return p.index_put(x, _clamped(x, indices), e.where(mask, values, 0), True)


def _clamped(x: Tensor, indices: Indices) -> list[Tensor | None]:
    return [
        place if place is None else e.minimum(e.maximum(place, -size), size - 1)
        for place, size in zip(_at_home(x, indices), x.shape, strict=False)
    ]


@decomposition(aten.index_select.default)
def index_select(x: Tensor, dim: int, index: Tensor) -> Any:
    require_vector("index_select", index)
    (flat,) = lifted(positions("index_select", index))
    if x.ndim == 0:
        return p.reshape(p.index_select(p.reshape(x, [1]), 0, flat), [])
    return p.index_select(x, canonical(dim, x.ndim), flat)


@decomposition(aten.take.default)
def take(x: Tensor, index: Tensor) -> Tensor:
    flat = p.reshape(x, [x.numel()])
    return p.index(flat, [positions("take", index, LONG)])


@decomposition(aten.put.default)
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    require_same_dtype("put_", x, source)
    count = index.numel()
    places = p.reshape(positions("put_", index, LONG), [count])
    flat, values = p.reshape(x, [x.numel()]), p.reshape(source, [count])
    result = p.reshape(p.index_put(flat, [places], values, accumulate), list(x.shape))
    return e.laid_out_as(x, result)


def lifted(*xs: Tensor) -> list[Tensor]:
    """0-d tensors as tensors of one element, which is what these operations take them for."""
    return [p.reshape(x, [1]) if x.ndim == 0 else x for x in xs]


def _along(dim: int, places: Tensor) -> list[Tensor | None]:
    """The index list that reaches a tensor at `places` along `dim`."""
    return [*[None] * dim, *lifted(places)]


@decomposition(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Any:
    where = canonical(dim, x.ndim)
    places = positions("index_add_", index)
    require_slices("index_add_", x, where, index, source)
    if x.ndim > 1 and _surely_empty(x):
        return p.clone(x)
    size = x.shape[where] if x.ndim else 1
    places = within(places, size, *_refusal(x, where, index, alpha))
    base, added = lifted(*_wide(x, source))
    if alpha != 1:
        added = e.mul(added, alpha)
    base = e.in_format(base, torch.contiguous_format)
    total = p.index_put(base, _along(where, places), added, True)
    return p.reshape(e.cast(total, x.dtype), list(x.shape))


def _refusal(x: Tensor, dim: int, index: Tensor, alpha: Number) -> tuple[str, str]:
    """How eager refuses a position of `index_add`: as `scatter_add` does where it is that."""
    outermost_or_innermost = x.ndim > 1 and dim in (0, x.ndim - 1)
    if outermost_or_innermost and e.is_one(alpha) and index.dtype == torch.int64:
        return (
            "RuntimeError",
            f"index {{index}} is out of bounds for dimension {dim} with size {{size}}",
        )
    return "IndexError", IN_SELF


def _surely_empty(x: Tensor) -> bool:
    """Whether a size is known to be 0."""
    return any(isinstance(size, int) and size == 0 for size in x.shape)


def _wide(*xs: Tensor) -> list[Tensor]:
    return [e.cast(x, compute_dtype(x.dtype)) for x in xs]


@decomposition(aten.index_copy.default)
def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    where = canonical(dim, x.ndim)
    require_copied_slices(x, where, index, source)
    places = positions("index_copy_", index, LONG)
    message = (
        f"index_copy_(): index {{index}} is out of bounds for dimension {where} with size {{size}}"
    )
    if not _surely_empty(x):
        places = within(places, x.shape[where] if x.ndim else 1, "IndexError", message)
    base, values = lifted(x, source)
    base = e.in_format(base, torch.contiguous_format)
    result = p.index_put(base, _along(where, places), values, False)
    return p.reshape(result, list(x.shape)) if x.ndim == 0 else result


@decomposition(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Tensor, dim: int, index: Tensor, value: Operand) -> Any:
    if index.ndim > 1:
        raise RuntimeError("index_fill_(): Index has to be a vector/scalar")
    places = positions("index_fill_", index, LONG, IndexError)
    if e.is_number(value):
        number = e.filled(x, [], value)
    else:
        number = e.cast(value, x.dtype)  # type: ignore[arg-type]
    (base,) = lifted(x)
    result = p.index_put(base, _along(canonical(dim, x.ndim), places), number, False)
    return p.reshape(result, list(x.shape)) if x.ndim == 0 else result


def ranked(mask: Tensor) -> Tensor:
    """For each element of a flat bool tensor, how many true ones stand before it (int64)."""
    ones = e.cast(mask, torch.int64)
    return p.sub(p.cumsum(ones, 0), ones)


_TOO_FEW = "masked_scatter: Number of elements of source < number of ones in mask"


@decomposition(aten.masked_scatter.default)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    if mask.dtype != torch.bool:
        return NotImplemented  # eager has the message
    if source.dtype != x.dtype:
        raise RuntimeError("masked_scatter: expected self and source to have same dtypes but got"
                           f" {x.dtype} and {source.dtype}")  # fmt: skip
    shape = broadcast_shapes(x.shape, mask.shape)
    base, under = e.expand(x, shape), e.expand(e.cast(mask, torch.bool), shape)
    count, given = product(shape), source.numel()
    if count == 0:
        return p.clone(base)
    flat = p.reshape(under, [count])
    if given == 0:
        p.assert_true(p.logical_not(p.any(flat, [0])), _TOO_FEW)
        return p.clone(base)
    taken, rank = p.reshape(source, [given]), ranked(flat)
    if not surely(given != 0):  # elsewhere an element is looked up that may not be there
        taken = p.cat([e.filled(taken, [1]), taken], 0)
        given, rank = given + 1, e.add(rank, 1)
    # which of the source's elements comes to a place, if any does
    places = within(e.where(flat, rank, 0), given, "RuntimeError", _TOO_FEW)
    values = p.reshape(p.index_select(taken, 0, places), list(shape))
    return e.in_format(p.where(under, values, base), torch.contiguous_format)


@decomposition(aten.masked_scatter_backward.default)
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sizes) -> Tensor:
    count, total = grad.numel(), product(sizes)
    result = e.filled(grad, [total])
    if count == 0 or total == 0:
        return p.reshape(result, list(sizes))
    flat = p.reshape(e.expand(mask, grad.shape), [count])
    # elements that are not under the mask add nothing, to any place
    added = e.where(flat, p.reshape(grad, [count]), 0)
    if surely(total != 0):
        places = e.minimum(ranked(flat), total - 1)
        return p.reshape(p.index_put(result, [places], added, True), list(sizes))
    # of none there is one place more, for what adds nothing
    places = e.minimum(ranked(flat), total)
    found = p.index_put(e.filled(grad, [total + 1]), [places], added, True)
    return p.reshape(p.slice(found, [0], [total], [1]), list(sizes))


INTEGERS = (torch.int32, torch.int64)
LONG = (torch.int64,)
IN_SELF = "index out of range in self: {index} of {size}"
"""Of a position that addresses no slice: eager does not always name it."""


def positions(
    name: str,
    index: Tensor,
    dtypes: tuple[torch.dtype, ...] = INTEGERS,
    error: type[Exception] = RuntimeError,
) -> Tensor:
    """`index` in int64; raises `error` if its dtype is not one of those that `name` takes."""
    if index.dtype not in dtypes:
        raise error(f"{name}(): Expected dtype {_listed(dtypes)} for index, but got {index.dtype}")
    return e.cast(index, torch.int64)


def within(found: Tensor, size: Size, error: str, message: str) -> Tensor:
    """`found`, which a program looks at before it is used: no position wraps around."""
    return p.bounds_checked(found, size, error, message)


def require_vector(name: str, index: Tensor) -> None:
    """Raise IndexError for an index of more than one dimension."""
    if index.ndim > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim}")


def require_same_dtype(name: str, x: Tensor, source: Tensor) -> None:
    """Raise RuntimeError unless what is written has the dtype of what it is written to."""
    if source.dtype != x.dtype:
        raise RuntimeError(f"{name}(): self ({x.dtype}) and source ({source.dtype}) must have the"
                           " same scalar type")  # fmt: skip


def require_slices(name: str, x: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    """Raise unless `source` has a slice for each position along `dim`, like those of `x`."""
    require_vector(name, index)
    require_same_dtype(name, x, source)
    if dim and dim >= source.ndim:
        raise RuntimeError(f"{name}(): Indexing dim {dim} is out of bounds of the source tensor"
                           f" with dim {source.ndim}")  # fmt: skip
    count = source.shape[dim] if source.ndim else 1
    if index.numel() != count:
        # eager, whose message has the source's size, fails on one that has none
        error = RuntimeError if source.ndim else IndexError
        raise error(f"{name}(): Number of indices ({index.numel()}) should be equal to"
                    f" source.size(dim): ({count}), for dim: {dim}")  # fmt: skip
    both = bool(x.ndim and source.ndim)
    if not same_shape(_slice(x, dim, both), _slice(source, dim, both)):
        raise RuntimeError(f"{name}(): source tensor shape must match self tensor shape, excluding"
                           f" the specified dimension. Got self.shape = {list(x.shape)}"
                           f" source.shape = {list(source.shape)}")  # fmt: skip


def require_copied_slices(x: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    """The checks of `require_slices` with the errors of `index_copy`, which takes numbers too."""
    name = "index_copy_"
    require_vector(name, index)
    require_same_dtype(name, x, source)
    if source.ndim == 0 and index.numel() != 1:
        raise IndexError(f"{name}(): When source is scalar, index should have one element"
                         f" (got {index.numel()})")  # fmt: skip
    if source.ndim != x.ndim and source.ndim and x.ndim:
        raise IndexError(f"{name}(): When source and destination are not scalars, their"
                         f" dimensionality must match ({source.ndim} and {x.ndim})")  # fmt: skip
    if not same_shape(_slice(x, dim, x.ndim > 0), _slice(source, dim, source.ndim > 0)):
        raise RuntimeError(f"{name}(): Source/destination tensor must have same slice shapes:"
                           f" {list(source.shape)} and {list(x.shape)}, dim {dim}")  # fmt: skip
    if source.ndim and index.numel() != source.shape[dim]:
        raise IndexError(f"{name}(): Number of indices ({index.numel()}) should be equal to"
                         f" source.size(dim) ({source.shape[dim]})")  # fmt: skip


def _slice(x: Tensor, dim: int, of_one: bool) -> tuple[Size, ...]:
    """The shape of a slice, or of the whole."""
    shape = tuple(x.shape)
    return (*shape[:dim], *shape[dim + 1 :]) if of_one else shape


def _listed(dtypes: tuple[torch.dtype, ...]) -> str:
    return "/".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
