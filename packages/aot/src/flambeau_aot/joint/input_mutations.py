"""Input mutations of the traced program.

In: stand-ins of the inputs after the program ran. Out: for each input the value to copy into it,
the shape it is given in place, whether it begins or ceases to require grad, and whether its version
counter is to be raised.
Invariant: what an input becomes is read off its base, the memory in the input's own shape; every
view of the input follows from the base by the steps recorded for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    base_of,
    current_value,
    has_metadata_mutation,
    leaves_reached,
    storage_key,
    storage_was_replaced,
    version,
)
from flambeau_aot.inputs.binding import SyntheticBaseView, WritesOverlap
from flambeau_aot.inputs.functional_inputs import FunctionalInput
from flambeau_aot.inputs.memory_overlap import in_anothers_memory, repeats, steps_from
from flambeau_aot.intercept.input_attributes import Hook
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import InputUpdate, OutputPlan, Reshape, View, ViewStep

aten = torch.ops.aten


@dataclass(frozen=True)
class Returned:
    """A value the graph returns: its pure value, and the wrapper autograd knows, if any."""

    value: torch.Tensor
    wrapper: torch.Tensor | None

    @property
    def differentiable(self) -> bool:
        """Whether a cotangent flows back into it."""
        return self.wrapper is not None and in_graph(self.wrapper)


@dataclass
class Effects:
    """What a program did to its inputs, and what it returned: values the graph returns (updates
    first), and plans that refer to them; views that the autograd function makes of these and of
    inputs.

    flat: the program's results. parts: members of those primals that are bases of several
    arguments. finals: for each input, its base after the program ran.
    """

    tracer: JointTracer
    primals: Sequence[torch.Tensor]
    stand_ins: Sequence[FunctionalInput]
    flat: Sequence[Any]
    parts: Sequence[SyntheticBaseView] = ()
    returned: list[Returned] = field(default_factory=list)
    inside: list[View] = field(default_factory=list)
    inside_values: list[Returned] = field(default_factory=list)
    updates: list[InputUpdate] = field(default_factory=list)
    results: list[OutputPlan] = field(default_factory=list)
    reshapes: list[Reshape] = field(default_factory=list)
    begin_grad: list[int] = field(default_factory=list)
    end_grad: list[int] = field(default_factory=list)
    hooks: tuple[tuple[int, Hook], ...] = ()
    touched: list[int] = field(default_factory=list)
    finals: list[torch.Tensor] = field(default_factory=list)

    @property
    def from_function(self) -> list[Returned]:
        """All that the autograd function returns."""
        return [*self.returned, *self.inside_values]

    @property
    def differentiable(self) -> tuple[int, ...]:
        """The places of those of which autograd knows."""
        return tuple(at for at, item in enumerate(self.from_function) if item.differentiable)

    @property
    def ends(self) -> list[torch.Tensor]:
        """What autograd knows these by."""
        every = self.from_function
        wrappers = [every[at].wrapper for at in self.differentiable]
        return [wrapper for wrapper in wrappers if wrapper is not None]


def in_graph(wrapper: torch.Tensor) -> bool:
    """Whether a cotangent of this value flows on; a view of a leaf made with grad disabled says
    that it requires grad, and yet none does."""
    return bool(wrapper.requires_grad) and wrapper.grad_fn is not None


def plan_inputs(effects: Effects) -> None:
    """Fill in all of `effects` but the results."""
    tracer, stand_ins = effects.tracer, effects.stand_ins
    places = {id(item.wrapper): index for index, item in enumerate(stand_ins)}
    effects.hooks = tuple((places[key], hook) for key, hook in tracer.input_hooks.found)
    for index, (tensor, item) in enumerate(zip(effects.primals, stand_ins, strict=True)):
        _plan_input(effects, index, tensor, item)
    if effects.updates and tracer.reaches_between:
        raise refusal("AO0098")
    _plan_parts(effects)
    _refuse_overlapping_writes(effects)
    written = {update.primal for update in effects.updates if update.differentiable}
    if any(place in written and stand_ins[place].facts.is_view for place, _ in effects.hooks):
        raise refusal("AO0099")


def _plan_input(effects: Effects, index: int, tensor: torch.Tensor, item: FunctionalInput) -> None:
    tracer = effects.tracer
    wrapper = item.wrapper
    memory = wrapper if item.memory is None else item.memory
    if storage_was_replaced(wrapper) or current_value(memory).shape != item.value.shape:
        raise refusal("AO0100", index=index)
    final = current_value(wrapper)
    steps: tuple[ViewStep, ...] = ()
    if has_metadata_mutation(wrapper):
        value, final = final, current_value(memory)
        root, steps = steps_from(value, tracer.view_of, final)
        if root is not final:
            raise refusal("AO0101", index=index)
    effects.finals.append(final)
    recorded = bool(wrapper.requires_grad) and (
        wrapper.grad_fn is not None and (item.leaf is None or wrapper.grad_fn is not item.history)
    )
    counted = version(wrapper) != item.version
    if (counted or recorded) and item.facts.view_without_grad and wrapper.requires_grad:
        raise refusal("AO0102", index=index)
    if recorded and tensor.requires_grad and tensor.is_leaf:
        raise refusal("AO0103")
    if steps:
        effects.reshapes.append(Reshape(index, steps, recorded))
    if final is not item.value:
        if repeats(tensor):
            # The new value is copied back into the whole, and its elements need not be equal.
            raise refusal("AO0104", index=index)
        if item.storage in tracer.placed and item.value.storage_offset() != 0:
            # The new value begins where its memory does, and the input does not.
            raise refusal("AO0105", index=index)
        known = _unshaped(tracer, wrapper, final) if recorded else None
        if known is not None:
            final = current_value(known)
        writes = max(version(wrapper) - item.version, 1)
        effects.updates.append(
            InputUpdate(index, len(effects.returned), recorded, counted or recorded, writes)
        )
        effects.returned.append(Returned(final, known))
    elif counted and not steps:
        effects.touched.append(index)
    if wrapper.requires_grad and not tensor.requires_grad and wrapper.grad_fn is None:
        effects.begin_grad.append(index)
    if id(wrapper) in tracer.detached and wrapper.requires_grad:
        raise refusal("AO0106", index=index)
    if tensor.requires_grad and not wrapper.requires_grad:
        effects.end_grad.append(index)
        if steps:
            raise refusal("AO0107", index=index)


# For the view operators that exist in place: what undoes each, the sizes before being known.
_UNDONE_BY_ITSELF = {aten.t.default, aten.transpose.int}
_UNDONE_BY_SHAPE = {
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.detach.default,
    aten.alias.default,
}


def _unshaped(tracer: JointTracer, wrapper: torch.Tensor, final: torch.Tensor) -> torch.Tensor:
    """A view of a reshaped input in its shape of before, for autograd to start from."""
    value = current_value(wrapper)
    with torch.enable_grad():
        while value is not final:
            value, step = tracer.view_of[id(value)]
            if step.func in _UNDONE_BY_ITSELF:
                wrapper = step.func(wrapper, *step.args)
            elif step.func in _UNDONE_BY_SHAPE:
                wrapper = wrapper.reshape(value.shape)
            else:
                raise refusal("AO0108", func=step.func)
    return wrapper


def _plan_parts(effects: Effects) -> None:
    """Raise the version counter of every group of members that the program wrote to; copying into a
    base that autograd knows raises that of its views."""
    raised: set[tuple[int, int]] = set()
    updated = {update.primal for update in effects.updates if update.counted}
    for part in effects.parts:
        wrapper, member = part.wrapper, part.member
        if wrapper.requires_grad and not part.requires_grad:
            raise refusal("AO0109", position=member.position)
        if has_metadata_mutation(wrapper):
            raise refusal("AO0110", position=member.position)
        group = (part.base, member.counter)
        if member.is_view and part.base in updated:
            raised.add(group)
    for part in effects.parts:
        group = (part.base, part.member.counter)
        if version(part.wrapper) != part.version and group not in raised:
            raised.add(group)
            effects.touched.append(part.primal)


def _refuse_overlapping_writes(effects: Effects) -> None:
    if not effects.updates and not effects.reshapes:
        return
    written = {update.primal for update in effects.updates}
    by_storage: dict[int, list[int]] = {}
    for index, tensor in enumerate(effects.primals):
        # What has no elements shares no memory, and may share a version counter all the same.
        by_storage.setdefault(storage_key(tensor), []).append(index)
    for storage, group in by_storage.items():
        if len(group) > 1 and written & set(group):
            raise WritesOverlap(storage)
    shared = in_anothers_memory(written, range(len(effects.primals)), effects.primals)
    if shared is not None:
        raise refusal("AO0009", positions=sorted(shared))


def refuse_new_leaves(effects: Effects) -> None:
    """A leaf made inside whose gradient the caller could ask for must not be part of the graph."""
    if not effects.begin_grad:
        return
    own = [effects.primals[at] for at in effects.begin_grad if at < len(effects.primals)]
    bases = [base_of(other) for other in effects.primals if base_of(other) is not other]
    if any(base is tensor for base in bases for tensor in own):
        # An input that is a view of one that begins to require grad does so with it.
        raise refusal("AO0111")
    wrappers = {index: item.wrapper for index, item in enumerate(effects.stand_ins)}
    wrappers |= {part.primal: part.wrapper for part in effects.parts}
    marked = [wrappers[primal] for primal in effects.begin_grad]
    if any(isinstance(x, View) and x.primal in effects.begin_grad for x in effects.results):
        raise refusal("AO0112")
    ends = [item.wrapper for item in effects.returned if item.wrapper is not None]
    refuse_reached(marked, ends)
    if any(base_of(tensor) is not tensor for tensor in own) and any(
        in_graph(end) and not leaves_reached([end]) for end in ends
    ):
        # A view taken before requires grad exactly if the input is no view itself.
        raise refusal("AO0113")


def refuse_reached(marked: Sequence[torch.Tensor], ends: Sequence[torch.Tensor]) -> None:
    """Raise where one of these leaves takes part in the gradients of these values."""
    reached = {id(known) for leaf in leaves_reached(ends) for known in (leaf, base_of(leaf))}
    if any(id(leaf) in reached for leaf in marked):
        raise refusal("AO0114")
