"""Functional wrappers around a program's input tensors, with the facts of each.

In: the inputs and their fake values. Out: functional tensors to run the program on, and afterwards
the pure values they stand for; what each input is, as one record.
Invariant: a stand-in that requires grad is not a leaf: `leaf` is what to differentiate by, and no
operator is recorded between the two, so that writing to the stand-in is legal.

Synthetic bases: written arguments that share memory, as views of one tensor. In: tensors. Out: a
`Merged`, that is where each lies in the memory of a common base; at every call that base, from the
arguments of the call. Invariant: a base and its members overlap in the call as they did when the
program was traced; otherwise the call is not this plan's, and `AliasingChanged` says so. Where
members are views that autograd knows of, the base is the tensor they are views of, and a write to
it reaches them by autograd's own rules. Where none is part of a graph, the base is a flat tensor
over the memory they cover, with a version counter of its own.
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
    share_version_counter,
    storage_key,
)
from flambeau_aot.errors import AliasingChanged
from flambeau_aot.inputs.memory_overlap import reach
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import Member, Merged


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


def merge(positions: Sequence[int], tensors: Sequence[torch.Tensor]) -> Merged:
    """Where these arguments lie in the memory they share."""
    recorded = any(tensor.requires_grad for tensor in tensors)
    base = base_of(tensors[0])
    for tensor in tensors:
        if tensor.requires_grad:
            base = base_of(tensor)
    own = recorded and all(base_of(tensor) is base for tensor in tensors if tensor.requires_grad)
    if recorded and not own:
        raise refusal("AO0009", positions=list(positions))
    if own and not base.requires_grad and any(tensor.grad_fn is not None for tensor in tensors):
        raise refusal("AO0180", positions=list(positions))
    if any(tensor.is_complex() or tensor.dtype != base.dtype for tensor in tensors):
        raise refusal("AO0010", positions=list(positions))
    if own and (not base.is_contiguous() or base.storage_offset()):
        raise refusal("AO0011", positions=list(positions))
    unrecorded = [at for at, tensor in zip(positions, tensors, strict=True) if hides_grad(tensor)]
    if unrecorded and torch.is_grad_enabled():
        # What is computed of one reaches the view alone, or is an error of eager's.
        raise refusal("AO0012", unrecorded=unrecorded)
    counters = _counters(tensors)
    members = tuple(
        Member(
            position=position,
            size=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            recorded=own and tensor.grad_fn is not None and base_of(tensor) is base,
            whole=own and tensor is base,
            counter=counter,
        )
        for position, tensor, counter in zip(positions, tensors, counters, strict=True)
    )
    if own:
        size, stride = tuple(base.shape), tuple(base.stride())
        return Merged(size, stride, int(base.storage_offset()), True, members)
    start = min(member.offset for member in members)
    # one without elements may begin beyond the memory, of which it takes none
    stop = max((_stop(member) for member in members if 0 not in member.size), default=start)
    return Merged((stop - start,), (1,), start, False, members)


def base_for(merged: Merged, args: Sequence[object]) -> torch.Tensor:
    """The base of this call's arguments; raises AliasingChanged where they have none."""
    tensors = [args[member.position] for member in merged.members]
    first = tensors[0]
    assert isinstance(first, torch.Tensor)
    key = storage_key(first)
    base: torch.Tensor | None = None
    for member, tensor in zip(merged.members, tensors, strict=True):
        assert isinstance(tensor, torch.Tensor)
        if storage_key(tensor) != key or tensor.storage_offset() != member.offset:
            raise AliasingChanged(f"argument {member.position} lies elsewhere than when traced")
        if merged.own and member.is_view:
            if base is not None and base_of(tensor) is not base:
                raise AliasingChanged(f"argument {member.position} is a view of another tensor")
            base = base_of(tensor)
    if base is not None:
        if not base.requires_grad and any(member.recorded for member in merged.members):
            raise AliasingChanged("what arguments are views of has been detached")
        return base
    size = first.element_size()
    start, stop = merged.offset * size, (merged.offset + merged.size[0]) * size
    whole = first.untyped_storage()
    memory = whole[start:stop] if start < stop else torch.UntypedStorage(0, device=whole.device)
    # A tensor made in inference mode stays one of it, which the arguments are not.
    with torch.inference_mode(first.is_inference()):
        flat = torch.empty(0, dtype=first.dtype, device=first.device)
        return flat.set_(memory, 0, merged.size, merged.stride)


def hides_grad(tensor: torch.Tensor) -> bool:
    """Whether this is a view made with grad disabled that requires grad, as what it is of does."""
    return tensor.requires_grad and made_without_grad(tensor)


def _stop(member: Member) -> int:
    return int(member.offset + reach(member.size, member.stride))


def _counters(tensors: Sequence[torch.Tensor]) -> list[int]:
    """For each tensor, the first one with whom it shares its version counter."""
    counters: list[int] = []
    for index, tensor in enumerate(tensors):
        same = (other for other in range(index) if share_version_counter(tensors[other], tensor))
        counters.append(next(same, index))
    return counters
