"""Functional wrappers around a program's input tensors.

What comes in: fake values of the inputs. What goes out: functional tensors to run the program
on, and afterwards the pure values they stand for.
Invariant: a stand-in that requires grad is not a leaf: `leaf` is what to differentiate by, and
no operator is recorded between the two, so that writing to the stand-in is legal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch

from flambeau_aot._torch_compat import current_value, functional_tensor, storage_key


class _NotALeaf(torch.autograd.Function):
    """A second functional tensor over the same value, as the result of an operation."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        """Wrap the leaf's value again."""
        ctx.set_materialize_grads(False)
        return functional_tensor(current_value(leaf))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> torch.Tensor | None:
        """Pass the cotangent on, an undefined one as such."""
        return grads[0]


STAND_IN = f"{_NotALeaf.__name__}Backward"
"""The autograd node between a leaf and its stand-in, by name of its type."""


@dataclass(frozen=True)
class FunctionalInput:
    """One input of the program while it is traced.

    history: the wrapper's gradient function before the program ran. version: how often it was
    written to by then. memory: a second wrapper of the same memory that is never reshaped.
    is_leaf: whether the input is one. ambiguous: whether it is a view made with grad disabled.
    of_leaf: whether it is a view of a leaf. cast_once: whether autocast remembers its cast.
    is_view: whether it is a view of another tensor. has_views: whether another input is one of it.
    """

    value: torch.Tensor
    wrapper: torch.Tensor
    leaf: torch.Tensor | None
    history: Any
    storage: int
    version: int = 0
    memory: torch.Tensor | None = None
    is_leaf: bool = True
    ambiguous: bool = False
    of_leaf: bool = False
    cast_once: bool = False
    is_view: bool = False
    has_views: bool = False


def stand_in(
    value: torch.Tensor,
    requires_grad: bool,
    is_leaf: bool = True,
    ambiguous: bool = False,
    of_leaf: bool = False,
    cast_once: bool = False,
    is_view: bool = False,
    has_views: bool = False,
) -> FunctionalInput:
    """Make the stand-in of one input from its fake value."""
    said = (is_leaf, ambiguous, of_leaf, cast_once, is_view, has_views)
    if not requires_grad:
        wrapper = functional_tensor(value)
        key, memory = storage_key(wrapper), wrapper.data
        return FunctionalInput(value, wrapper, None, None, key, 0, memory, *said)
    leaf = functional_tensor(value)
    leaf.requires_grad_(True)
    with torch.enable_grad():
        wrapper = cast(torch.Tensor, _NotALeaf.apply(leaf))  # type: ignore[no-untyped-call]
    history, memory = wrapper.grad_fn, wrapper.data
    key = storage_key(wrapper)
    return FunctionalInput(value, wrapper, leaf, history, key, 0, memory, *said)


def stand_in_over(leaf: torch.Tensor) -> FunctionalInput:
    """The stand-in of an input that is itself a functional tensor of an enclosing program.

    Writing to the stand-in does not write to the enclosing program's value.
    """
    value = current_value(leaf)
    if not leaf.requires_grad:
        wrapper = functional_tensor(value)
        return FunctionalInput(value, wrapper, None, None, storage_key(wrapper))
    wrapper = cast(torch.Tensor, _NotALeaf.apply(leaf))  # type: ignore[no-untyped-call]
    return FunctionalInput(value, wrapper, leaf, wrapper.grad_fn, storage_key(wrapper))
