"""Index tensors: dtypes and bounds that eager accepts.

In: index tensors of ATen's overloads, and what they address. Out: int64 positions.
Invariant: what eager refuses is refused, by an error of the same class that states the same facts:
here if dtypes or shapes tell, when the program runs if elements do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flambeau_prims.broadcast import same_shape
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.layout import Size

INTEGERS = (torch.int32, torch.int64)
LONG = (torch.int64,)
IN_SELF = "index out of range in self: {index} of {size}"
"""Of a position that addresses no slice: eager does not always tell which."""


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
        # eager, which wants to tell the source's size, trips over one that has none
        error = RuntimeError if source.ndim else IndexError
        raise error(f"{name}(): Number of indices ({index.numel()}) should be equal to"
                    f" source.size(dim): ({count}), for dim: {dim}")  # fmt: skip
    both = bool(x.ndim and source.ndim)
    if not same_shape(_slice(x, dim, both), _slice(source, dim, both)):
        raise RuntimeError(f"{name}(): source tensor shape must match self tensor shape, excluding"
                           f" the specified dimension. Got self.shape = {list(x.shape)}"
                           f" source.shape = {list(source.shape)}")  # fmt: skip


def require_copied_slices(x: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    """What `require_slices` asks, by the errors of `index_copy`, to which numbers are slices."""
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
