"""Calls that write to their arguments, as functionalization would not do them.

What comes in: calls of torch functions on functional tensors. What goes out: the same calls, with
the strides and version counters that eager leaves; a refusal where functionalization would give
another value than eager.
Invariant: a tensor that is written to in place keeps its strides, and its memory those of its
base.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_aot._torch_compat import (
    base_of,
    current_value,
    is_functional,
    raise_version,
    replace_value,
    storage_key,
    version,
)
from flambeau_aot.errors import Unsupported

WRITE_TO_LISTS = frozenset(
    name for name in dir(torch) if name.startswith("_foreach_") and name.endswith("_")
)
_SIGNS = ("add", "sub", "mul", "truediv", "div", "and", "or", "xor", "pow", "mod", "floordiv")
_IN_PLACE_SIGNS = frozenset(f"__i{name}__" for name in _SIGNS)
RESHAPE_IN_PLACE = frozenset(
    f"{name}_"
    for name in ("t", "transpose", "swapdims", "swapaxes", "squeeze", "unsqueeze", "as_strided")
)
_NO_WRITE = frozenset(("requires_grad_", "detach_", "share_memory_"))


def writes_in_place(name: str) -> bool:
    """Whether a torch function of this name writes to its first argument."""
    if name.startswith("__"):
        return name == "__setitem__" or name in _IN_PLACE_SIGNS
    return name.endswith("_") and name not in _NO_WRITE


def write_to_list(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Operators that write to a list of tensors, one after the other: in eager every write
    raises a version counter and is seen by those after it, above functionalization none is."""
    targets = args[0] if args else kwargs["self"]
    keys = [storage_key(tensor) for tensor in targets]
    others = [
        storage_key(tensor)
        for values in args[1:]
        if isinstance(values, (list, tuple))
        for index, tensor in enumerate(values)
        if isinstance(tensor, torch.Tensor) and storage_key(tensor) != keys[index]
    ]
    if len(set(keys)) != len(keys) or set(keys) & set(others):
        raise Unsupported(
            f"{func.__name__} writes to tensors that share memory; write to them one by one"
        )
    before = [version(tensor) for tensor in targets]
    result = func(*args, **kwargs)
    for tensor, count in zip(targets, before, strict=True):
        if version(tensor) == count:
            raise_version(tensor)
    return result


def write_keeping_strides(
    target: torch.Tensor, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A call on a tensor that is not contiguous, and that it may write to."""
    if not is_functional(target) or getattr(func, "__name__", "") in RESHAPE_IN_PLACE:
        return func(*args, **kwargs)
    before = version(target)
    base = base_of(target)
    shape, strides = tuple(base.shape), tuple(base.stride())
    overlaps = _overlaps(target)
    result = func(*args, **kwargs)
    if version(target) == before:
        return result
    if overlaps:
        raise Unsupported(
            "a write to an expanded tensor, whose elements share memory; write to a clone, or to "
            "the tensor that was expanded"
        )
    current_value(base)
    if tuple(base.shape) == shape and tuple(base.stride()) != strides:
        _restride(base, strides)
        current_value(target)
    return result


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(s == 0 and n > 1 for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def _restride(base: torch.Tensor, strides: tuple[int, ...]) -> None:
    """Lay the new value of a functional tensor out in this order of dimensions."""
    value = current_value(base)
    order = sorted(range(value.dim()), key=lambda d: (-strides[d], d))
    inverse = sorted(range(value.dim()), key=order.__getitem__)
    permute, clone = torch.ops.aten.permute.default, torch.ops.aten.clone.default
    with torch.no_grad():
        laid = clone(permute(value, order), memory_format=torch.contiguous_format)
        replace_value(base, permute(laid, inverse))
