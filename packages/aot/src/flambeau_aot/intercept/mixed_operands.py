"""Calls of plain tensors together with those of a class that consists of other tensors.

In: such a call. Out: its results and gradients, of the class itself. Invariant: functionalization
wraps whatever an operator gives that was given one functional tensor; code of the class, which
reads its parts, never sees such a wrapper around the class.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_aot._torch_compat import current_value, flattens, is_functional
from flambeau_aot.joint.nested import map_tensors, tensors_in


def is_mixed(given: Any) -> bool:
    """Whether a call is given both."""
    tensors = tensors_in(given)
    return any(map(flattens, tensors)) and any(map(is_functional, tensors))


def gradients_of_the_class(given: Any) -> None:
    """Let the gradients that a mixed call gives its operands be of their class."""
    for operand in tensors_in(given):
        if flattens(operand) and operand.requires_grad:
            operand.register_hook(_unwrapped)


def of_the_class(result: Any) -> Any:
    """The result of a mixed call."""
    if all(_unwrapped(each) is each for each in tensors_in(result)):
        return result
    return map_tensors(result, _with_history)


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
