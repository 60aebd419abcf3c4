"""Synthetic bases: written arguments that share memory, as views of one tensor.

In: tensors. Out: a `Merged`, that is where each lies in the memory of a common base; at every call
that base, from the arguments of the call.
Invariant: a base and its members overlap in the call as they did when the program was traced;
otherwise the call is not this plan's, and `AliasingChanged` says so.

Where members are views that autograd knows of, the base is the tensor they are views of, and a
write to it reaches them by autograd's own rules. Where none is part of a graph, the base is a flat
tensor over the memory they cover, with a version counter of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_aot._torch_compat import (
    base_of,
    made_without_grad,
    share_version_counter,
    storage_key,
)
from flambeau_aot.errors import AliasingChanged
from flambeau_aot.inputs.memory_overlap import reach
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import Member, Merged


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
