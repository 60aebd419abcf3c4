"""Tensor subclasses and `__torch_function__`.

In: classes and tensors. Out: what torch does with them. Invariant: no tensor is changed. Tried on
torch 2.11, 2.13 and 2.14.
"""

from __future__ import annotations

import functools
from typing import Any

import torch


def default_torch_function() -> Any:
    """`Tensor.__torch_function__`, as the function that its class method is made of."""
    found: Any = torch.Tensor.__dict__["__torch_function__"]
    return found.__func__


disable_torch_function_subclass: Any = torch._C.DisableTorchFunctionSubclass
disabled_torch_function: Any = torch._C._disabled_torch_function_impl


def ignores_torch_function(kind: type) -> bool:
    """Whether torch works on instances of a tensor class as on plain tensors."""
    return getattr(kind, "__torch_function__", None) is disabled_torch_function


def has_own_dispatch(kind: type) -> bool:
    """Whether a tensor class answers operators below autograd."""
    own = getattr(kind, "__torch_dispatch__", None)
    return getattr(own, "__func__", own) is not getattr(
        torch.Tensor.__torch_dispatch__, "__func__", torch.Tensor.__torch_dispatch__
    )


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """The same data as a tensor without a class of its own; gradients flow through."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.as_subclass(torch.Tensor)


@functools.cache
def results_left_plain() -> frozenset[Any]:
    """What `Tensor.__torch_function__` calls without making the result one of the subclass."""
    return frozenset(torch.overrides.get_default_nowrap_functions())


make_subclass: Any = torch.Tensor._make_subclass
