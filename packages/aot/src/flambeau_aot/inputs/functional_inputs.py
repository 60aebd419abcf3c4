"""Functional wrappers around a program's input tensors, with the facts of each.

In: the inputs and their fake values. Out: functional tensors to run the program on, and afterwards
the pure values they stand for; what each input is, as one record.
Invariant: a stand-in that requires grad is not a leaf: `leaf` is what to differentiate by, and no
operator is recorded between the two, so that writing to the stand-in is legal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, cast

import torch

from flambeau_aot._torch_compat import (
    base_of,
    current_value,
    functional_tensor,
    made_without_grad,
    storage_key,
)


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
class InputFacts:
    """What an input is, by the tensor that the program is traced for; every stage reads it here.

    static: a parameter or buffer, at one address. part: it shares memory that is written to with
    other inputs: a view of a synthetic base, or the base. is_view: of another tensor. has_views:
    another input is one of it. view_of_leaf: of one that requires grad. view_without_grad: made
    with grad disabled. offset: in its storage; None where the graph takes part of that. traced: a
    value of an enclosing trace.
    """

    static: bool = False
    part: bool = False
    requires_grad: bool = False
    is_leaf: bool = True
    is_view: bool = False
    has_views: bool = False
    view_of_leaf: bool = False
    view_without_grad: bool = False
    offset: int | torch.SymInt | None = None
    traced: bool = False

    @property
    def leaf(self) -> bool:
        """Whether gradients are accumulated in it."""
        return self.is_leaf and self.requires_grad

    @property
    def cast_once(self) -> bool:
        """Whether autocast remembers its cast."""
        return self.leaf and not self.is_view and not self.traced

    @property
    def viewing_leaf(self) -> bool:
        """Whether it is a leaf and a view, should it begin to require grad."""
        return self.is_leaf and self.is_view


CONSTANT = InputFacts(static=True)
"""A tensor that the trace has found in the program."""


def facts_of(
    values: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor], static: int, bases: int
) -> tuple[InputFacts, ...]:
    """The facts of primals: `static` parameters and buffers, arguments, `bases` of several."""
    roots = [base_of(tensor) for tensor in tensors]
    views = [root is not tensor for root, tensor in zip(roots, tensors, strict=True)]
    viewed = set(map(id, compress(roots, views)))
    return tuple(
        InputFacts(
            static=place < static,
            part=place >= len(tensors) - bases,
            requires_grad=tensor.requires_grad,
            is_leaf=tensor.is_leaf,
            is_view=views[place],
            has_views=id(tensor) in viewed,
            view_of_leaf=views[place] and roots[place].is_leaf and roots[place].requires_grad,
            view_without_grad=made_without_grad(tensor),
            offset=value.storage_offset(),
        )
        for place, (value, tensor) in enumerate(zip(values, tensors, strict=True))
    )


@dataclass(frozen=True)
class FunctionalInput:
    """One input of the program while it is traced.

    history: the wrapper's gradient function before the program ran. version: how often it was
    written to by then. memory: a second wrapper of the same memory that is never reshaped.
    """

    value: torch.Tensor
    wrapper: torch.Tensor
    leaf: torch.Tensor | None
    history: Any
    storage: int
    version: int = 0
    memory: torch.Tensor | None = None
    facts: InputFacts = InputFacts()


def stand_in(value: torch.Tensor, facts: InputFacts) -> FunctionalInput:
    """Make the stand-in of one input from its fake value."""
    wrapper, leaf = functional_tensor(value), None
    if facts.requires_grad:
        leaf = wrapper.requires_grad_(True)
        with torch.enable_grad():
            wrapper = cast(torch.Tensor, _NotALeaf.apply(leaf))  # type: ignore[no-untyped-call]
    key, memory = storage_key(wrapper), wrapper.data
    return FunctionalInput(value, wrapper, leaf, wrapper.grad_fn, key, 0, memory, facts)


def stand_in_over(leaf: torch.Tensor) -> FunctionalInput:
    """The stand-in of an input that is itself a functional tensor of an enclosing program.

    Writing to the stand-in does not write to the enclosing program's value.
    """
    value = current_value(leaf)
    if not leaf.requires_grad:
        wrapper = functional_tensor(value)
        return FunctionalInput(value, wrapper, None, None, storage_key(wrapper))
    wrapper = cast(torch.Tensor, _NotALeaf.apply(leaf))  # type: ignore[no-untyped-call]
    key, facts = storage_key(wrapper), InputFacts(requires_grad=True, traced=True)
    return FunctionalInput(value, wrapper, leaf, wrapper.grad_fn, key, facts=facts)
