"""What the traced program did to its inputs, and what its results are.

What comes in: the stand-ins of the inputs after the program ran on them, and its flat results.
What goes out: the updates of inputs, a plan for each result, and the values the graph returns.
Invariant: two results share memory under the plan exactly if they did in the program; what
cannot be planned so is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    FakeTensor,
    current_value,
    has_metadata_mutation,
    is_functional,
    storage_key,
    storage_was_replaced,
)
from flambeau_aot.errors import NotYetSymbolic, TraceError, Unsupported
from flambeau_aot.functionalize import StandIn
from flambeau_aot.joint.tracer import Tracer, ViewStep
from flambeau_aot.plan import (
    FromGraph,
    InputUpdate,
    IsInput,
    Literal,
    OutputPlan,
    ViewOfInput,
    ViewOfOutput,
)


@dataclass(frozen=True)
class Returned:
    """A value the graph returns: its pure value, and the wrapper autograd knows, if any."""

    value: torch.Tensor
    wrapper: torch.Tensor | None

    @property
    def differentiable(self) -> bool:
        """Whether a cotangent flows back into it."""
        return self.wrapper is not None and _in_graph(self.wrapper)


@dataclass
class Effects:
    """The finding: values the graph returns (updates first), and plans that refer to them."""

    returned: list[Returned] = field(default_factory=list)
    updates: list[InputUpdate] = field(default_factory=list)
    results: list[OutputPlan] = field(default_factory=list)


def analyze(
    tracer: Tracer,
    primals: Sequence[torch.Tensor],
    stand_ins: Sequence[StandIn],
    results: Sequence[Any],
) -> Effects:
    """Plan the updates of inputs, then every result."""
    effects = Effects()
    finals = [current_value(item.wrapper) for item in stand_ins]
    _plan_updates(effects, primals, stand_ins, finals)
    _plan_results(tracer, effects, stand_ins, finals, results)
    return effects


def _plan_updates(
    effects: Effects,
    primals: Sequence[torch.Tensor],
    stand_ins: Sequence[StandIn],
    finals: Sequence[torch.Tensor],
) -> None:
    for index, (item, final) in enumerate(zip(stand_ins, finals, strict=True)):
        if storage_was_replaced(item.wrapper) or has_metadata_mutation(item.wrapper):
            raise Unsupported(
                f"input {index} gets another shape or storage in place (set_, resize_, t_)"
            )
        if final is item.value:
            continue
        differentiable = bool(item.wrapper.requires_grad) and (
            item.leaf is None or item.wrapper.grad_fn is not item.history
        )
        if differentiable and primals[index].requires_grad and primals[index].is_leaf:
            raise TraceError(
                "a leaf Variable that requires grad is being used in an in-place operation"
            )
        returned = Returned(final, item.wrapper if differentiable else None)
        effects.updates.append(InputUpdate(index, len(effects.returned), differentiable))
        effects.returned.append(returned)
    _refuse_overlapping_writes(effects, primals)


def _refuse_overlapping_writes(effects: Effects, primals: Sequence[torch.Tensor]) -> None:
    if not effects.updates:
        return
    written = {update.primal for update in effects.updates}
    by_storage: dict[int, list[int]] = {}
    for index, tensor in enumerate(primals):
        by_storage.setdefault(storage_key(tensor), []).append(index)
    for group in by_storage.values():
        if len(group) > 1 and written & set(group):
            raise Unsupported(f"inputs {group} share memory and the program writes to one of them")


def _plan_results(
    tracer: Tracer,
    effects: Effects,
    stand_ins: Sequence[StandIn],
    finals: Sequence[torch.Tensor],
    results: Sequence[Any],
) -> None:
    by_wrapper = {id(item.wrapper): index for index, item in enumerate(stand_ins)}
    by_storage = {item.storage: index for index, item in enumerate(stand_ins)}
    groups = _memory_groups(results, by_storage)
    slots: dict[int, int] = {}
    for result in results:
        if isinstance(result, torch.SymInt):
            raise NotYetSymbolic("a symbolic size is among the results")
        if not isinstance(result, torch.Tensor):
            effects.results.append(Literal(result))
        elif not is_functional(result):
            if isinstance(result, FakeTensor):
                raise Unsupported("a fake value escaped the trace as a result")
            effects.results.append(Literal(result))
        elif id(result) in by_wrapper:
            effects.results.append(IsInput(by_wrapper[id(result)]))
        else:
            primal = by_storage.get(storage_key(result))
            if primal is not None:
                effects.results.append(_view_of_input(tracer, result, primal, finals[primal]))
            else:
                group = groups[storage_key(result)]
                effects.results.append(_from_graph(tracer, effects, slots, result, group))


def _memory_groups(results: Sequence[Any], inputs: dict[int, int]) -> dict[int, list[torch.Tensor]]:
    groups: dict[int, list[torch.Tensor]] = {}
    for result in results:
        if is_functional(result) and storage_key(result) not in inputs:
            group = groups.setdefault(storage_key(result), [])
            if all(result is not member for member in group):
                group.append(result)
    return groups


def _steps(
    tracer: Tracer, value: torch.Tensor, base: torch.Tensor | None
) -> tuple[torch.Tensor, tuple[ViewStep, ...]]:
    """The value a view was made of, at most as far back as `base`, and the steps from there."""
    steps: list[ViewStep] = []
    while value is not base and id(value) in tracer.view_of:
        value, step = tracer.view_of[id(value)]
        steps.append(step)
    return value, tuple(reversed(steps))


def _view_of_input(
    tracer: Tracer, result: torch.Tensor, primal: int, final: torch.Tensor
) -> OutputPlan:
    root, steps = _steps(tracer, current_value(result), final)
    if root is not final:
        raise Unsupported(f"a result shares memory with input {primal} in an unknown way")
    return ViewOfInput(primal, steps, _in_graph(result))


def _from_graph(
    tracer: Tracer,
    effects: Effects,
    slots: dict[int, int],
    result: torch.Tensor,
    group: list[torch.Tensor],
) -> OutputPlan:
    """A result of memory of its own, or one that shares it with other results only."""

    def returned(value: torch.Tensor, wrapper: torch.Tensor | None) -> int:
        if id(value) not in slots:
            slots[id(value)] = len(effects.returned)
            effects.returned.append(Returned(value, wrapper))
        return slots[id(value)]

    value = current_value(result)
    if len(group) == 1 and not _overlaps_itself(value) and not _written_as_view(tracer, result):
        return FromGraph(returned(value, result))
    base_value, base = _base_of(tracer, group)
    if base_value is value and base is result:
        return FromGraph(returned(value, result))
    root, steps = _steps(tracer, value, base_value)
    assert root is base_value
    return ViewOfOutput(returned(base_value, base), steps, _in_graph(result))


def _written_as_view(tracer: Tracer, result: torch.Tensor) -> bool:
    """Whether a caller who writes to this result must find a view that autograd knows.

    A view made inside an autograd function may not be written to; made after it, from the base
    the function returns, it is the view that eager gives.
    """
    base = result._base
    if not _in_graph(result) or base is None or not _in_graph(base):
        return False
    whole = current_value(base)
    return _steps(tracer, current_value(result), whole)[0] is whole


def _base_of(tracer: Tracer, group: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A value all of a group are views of, and the wrapper through which autograd knows it."""
    needs_grad = any(_in_graph(member) for member in group)
    candidates = [
        *(member for member in group if member._base is None),
        *(member._base for member in group if member._base is not None),
    ]
    values = [current_value(member) for member in group]
    for candidate in candidates:
        if needs_grad and not _in_graph(candidate):
            continue
        base = current_value(candidate)
        if all(_steps(tracer, value, base)[0] is base for value in values):
            return base, candidate
    roots = {id(_steps(tracer, value, None)[0]) for value in values}
    if needs_grad or len(roots) > 1:
        raise Unsupported("results share memory with a value that autograd cannot reach")
    return _steps(tracer, values[0], None)[0], None


def _in_graph(wrapper: torch.Tensor) -> bool:
    """Whether a cotangent of this value flows on; a view of a leaf made with grad disabled says
    that it requires grad, and yet none does."""
    return bool(wrapper.requires_grad) and wrapper.grad_fn is not None


def _overlaps_itself(value: torch.Tensor) -> bool:
    return any(
        step == 0 and size > 1 for size, step in zip(value.shape, value.stride(), strict=True)
    )
