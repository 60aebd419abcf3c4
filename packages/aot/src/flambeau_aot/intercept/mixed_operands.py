"""Calls of tensors of a class that consists of other tensors, alone or with plain ones.

In: such a call. Out: its results and gradients, of the class itself. Invariant: functionalization
wraps whatever an operator gives that was given one functional tensor, and every copy in another
dtype, as autocast makes them; code of the class, which reads its parts, never sees such a wrapper
around the class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import current_value, flattens, is_functional
from flambeau_aot.joint.nested import map_tensors, tensors_in


def in_the_class(call: Callable[[], Any], given: Any) -> Any:
    """The result of a call; of one that is given tensors of such a class, of the class itself."""
    tensors = tensors_in(given)
    operands = [each for each in tensors if flattens(each)]
    if not operands:
        return call()
    if mixed := any(map(is_functional, tensors)):
        _gradients_of_the_class(operands)
    result = call()
    results = tensors_in(result)
    if not mixed and len({each.dtype for each in (*operands, *results)}) > 1:
        _gradients_of_the_class(operands)  # the engine brings each to the dtype of its operand
    if all(_unwrapped(each) is each for each in results):
        return result
    return map_tensors(result, _with_history)


def _gradients_of_the_class(operands: Sequence[torch.Tensor]) -> None:
    for operand in operands:
        if operand.requires_grad:
            operand.register_hook(_unwrapped)


def _unwrapped(value: torch.Tensor) -> torch.Tensor:
    if not is_functional(value):
        return value
    inside = current_value(value)
    return inside if flattens(inside) else value


def _with_history(value: torch.Tensor) -> Any:
    if _unwrapped(value) is value:
        return value
    return _WithoutWrapper.apply(value)  # type: ignore[no-untyped-call]


class _WithoutWrapper(torch.autograd.Function):
    """What a functional tensor stands for, as part of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, wrapper: torch.Tensor) -> torch.Tensor:
        """The value of the class."""
        return _unwrapped(wrapper).detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient as it is."""
        return _unwrapped(*grads)
