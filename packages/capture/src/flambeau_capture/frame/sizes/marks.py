"""Marks of sizes: what the program says of the dimensions of a tensor.

In: a tensor and dimensions. Out: attributes of it, and what they say together with those for
torch's own compiler. Invariant: marks are of types that `torch.load` takes by default.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat

Bounds = tuple[int | None, int | None]
ANY: Bounds = (None, None)
FROM_ONE: Bounds = (1, None)

#: attributes of a tensor, of types that `torch.load` takes by default
_DYNAMIC, _STATIC = "_flambeau_dynamic_dims", "_flambeau_static_dims"
_REQUIRED = "_flambeau_required_dims"


def mark_dynamic(
    tensor: Any, dim: int | tuple[int, ...], min: int | None = None, max: int | None = None
) -> None:
    """Leave a dimension (or several) of a tensor open when code is made for it.

    min, max: bounds, both included, outside of which other code is made. Size 0 is never left open,
    and 1 only with a min of 1, where nothing that is decided says otherwise. Whatever `dynamic` is,
    the mark holds. Raises ValueError for bounds that the size itself is outside of, and
    ConstraintViolation in a call in which the program makes a constant of the size:
    `maybe_mark_dynamic` does not.
    """
    maybe_mark_dynamic(tensor, dim, min, max)
    setattr(tensor, _REQUIRED, {*getattr(tensor, _REQUIRED, ()), *_dims(tensor, dim)})


def maybe_mark_dynamic(
    tensor: Any, dim: int | tuple[int, ...], min: int | None = None, max: int | None = None
) -> None:
    """Leave a dimension (or several) of a tensor open as `mark_dynamic` does, where the program
    lets it be."""
    if min is not None and max is not None and min > max:
        raise ValueError(f"min {min} is greater than max {max}")
    dims = _dims(tensor, dim)
    for one in dims:
        if beyond(tensor.shape[one], (min, max)):
            raise ValueError(f"dimension {one} is {tensor.shape[one]}, outside of {min} to {max}")
    marks = dynamic_dims(tensor) | dict.fromkeys(dims, (min, max))
    setattr(tensor, _DYNAMIC, marks)
    setattr(tensor, _STATIC, set(static_dims(tensor) - marks.keys()))


def mark_static(tensor: Any, dim: int | tuple[int, ...] | None = None) -> None:
    """Keep a dimension of a tensor (None: all of them) a constant of its graphs."""
    every = tuple(range(tensor.dim()))
    marked = set(every if dim is None else _dims(tensor, dim))
    setattr(tensor, _STATIC, marked | static_dims(tensor))
    kept = {one: bounds for one, bounds in dynamic_dims(tensor).items() if one not in marked}
    setattr(tensor, _DYNAMIC, kept)
    setattr(tensor, _REQUIRED, set(getattr(tensor, _REQUIRED, ())) - marked)


@contextlib.contextmanager
def marks_kept(tensor: Any) -> Iterator[None]:
    """After it, a tensor has the marks of ours that it had before."""
    marks = _DYNAMIC, _STATIC, _REQUIRED
    before = {name: vars(tensor)[name] for name in marks if name in vars(tensor)}
    try:
        yield
    finally:
        for name in marks:
            vars(tensor).pop(name, None)
        vars(tensor).update(before)


def _dims(tensor: Any, dim: int | tuple[int, ...]) -> tuple[int, ...]:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a tensor is marked, not {type(tensor).__name__}")
    rank = tensor.dim()
    found = (dim,) if isinstance(dim, int) else tuple(dim)
    for one in found:
        if not isinstance(one, int):
            raise TypeError(f"a dimension is a number, not {one!r}")
        if not -rank <= one < rank:
            raise IndexError(f"dimension {one} of a tensor with {rank} dimensions")
    return tuple(one % rank for one in found)


def beyond(size: int, bounds: Bounds) -> bool:
    """Whether a size is outside of bounds."""
    least, most = bounds
    return (least is not None and size < least) or (most is not None and size > most)


def dynamic_dims(tensor: Any) -> dict[int, Bounds]:
    """The dimensions that our marks leave open, and their bounds."""
    return dict(getattr(tensor, _DYNAMIC, ()))


def static_dims(tensor: Any) -> frozenset[int]:
    return frozenset(getattr(tensor, _STATIC, ()))


def marked_dims(tensor: Any) -> tuple[dict[int, Bounds], frozenset[int]]:
    """The dimensions that any mark leaves open, and those that one keeps fixed: ours count for
    more than those for torch's own compiler."""
    theirs, kept = compat.foreign_dims(tensor)
    ours, fixed = dynamic_dims(tensor), static_dims(tensor)
    left = {dim: bounds for dim, bounds in theirs.items() if dim not in fixed}
    return left | ours, fixed | (kept - ours.keys())


def required_dims(tensor: Any) -> frozenset[int]:
    """The dimensions that the program is not to make constants of, by our marks or torch's."""
    theirs = compat.required_dims(tensor) - static_dims(tensor)
    return frozenset(getattr(tensor, _REQUIRED, ())) | theirs
