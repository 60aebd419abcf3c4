"""Hooks that the caller puts on results through which the gradients of other results go.

What comes in: the node of a compiled call, when its backward pass begins. What goes out: what was
put on such results since: hooks, `retain_grad`.
Invariant: a hook on such a result sees the gradient that eager gives it. The compiled backward part
has that nowhere; a backward pass that somebody observes is run as eager runs it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_aot._torch_compat import current_backward_pass
from flambeau_aot.errors import AotError, DoubleBackwardError
from flambeau_aot.plan import FromFunction, FromGraph, RuntimePlan


@dataclass(frozen=True)
class Observed:
    """What is on the result of the program at this place: hooks, in order; what is told of the
    gradient then, if the result keeps it."""

    place: int
    hooks: tuple[Callable[[Any], Any], ...]
    keep: Callable[[torch.Tensor], None] | None


@dataclass(frozen=True)
class Outside:
    """A tensor that is no result of the autograd function: a result of the program at this place,
    or (None) an input written to, with as many hooks as it had after the call."""

    place: int | None
    tensor: weakref.ref[torch.Tensor]
    hooks: int


class Visits:
    """One call of a compiled program whose derivative runs eagerly, on nodes of its own: what the
    backward part does besides gradients (writes, the caller's hooks), or does not linearly with
    them, eager does once in a backward pass, and these two would do it once each, of a part of the
    gradient."""

    def __init__(self) -> None:
        self.by: dict[str, int] = {}

    def note(self, who: str) -> None:
        """The backward part ("compiled") or the derivative's nodes ("derived") are run; raises
        DoubleBackwardError where both are in one backward pass."""
        self.by[who] = current_backward_pass()
        if len(self.by) == 2 and self.by["compiled"] == self.by["derived"]:
            raise DoubleBackwardError(
                "a backward pass goes through a compiled program and through its gradients of an "
                "earlier pass with create_graph=True, and its backward part writes to an input, "
                "calls hooks of the caller's or has a derivative of a user's that is not linear in "
                "the gradient, which eager would do once, of the whole gradient; run this part of "
                "the program uncompiled"
            )


def outside(
    plan: RuntimePlan, primals: Sequence[Any], results: Sequence[Any]
) -> tuple[Outside, ...]:
    """What is to be asked in the backward pass besides the function's own results."""
    return tuple(
        Outside(place, weakref.ref(tensor), _count(tensor))
        for place, tensor in (
            *((at, results[at]) for at in made_outside(plan)),
            *((None, primals[primal]) for primal in plan.depended_inputs),
        )
    )


def made_outside(plan: RuntimePlan) -> tuple[int, ...]:
    """Results that others depend on and that are made around the autograd function."""
    own = (FromGraph, FromFunction)
    return tuple(at for at in plan.depended if not isinstance(plan.results[at], own))


def observable(plan: RuntimePlan) -> bool:
    """Whether there is any of those."""
    return bool(made_outside(plan) or plan.depended_inputs)


def observed(
    ctx: Any, given: Sequence[Any], slots: Sequence[tuple[int, int, int]]
) -> list[Observed]:
    """What the caller has put on results. slots: of each result of the function, its place among
    those, among the cotangents and among the program's results."""
    return [*_of_own(ctx, given, slots), *_of_others(getattr(ctx, "outside", ()))]


def _of_own(
    ctx: Any, given: Sequence[Any], slots: Sequence[tuple[int, int, int]]
) -> Iterator[Observed]:
    deferred = getattr(ctx, "deferred", {})
    for (slot, order, place), reference in zip(slots, getattr(ctx, "observable", ()), strict=True):
        hooks = tuple(deferred.get(slot, {}).values())
        tensor = reference()
        keep = (
            _keeping(tensor, given[order]) if tensor is not None and tensor.retains_grad else None
        )
        if hooks or keep:
            yield Observed(place, hooks, keep)


def _of_others(known: Sequence[Outside]) -> Iterator[Observed]:
    for item in known:
        tensor = item.tensor()
        if tensor is None or tensor.is_leaf:
            continue
        if _count(tensor) > item.hooks or (item.place is None and tensor.retains_grad):
            raise AotError(
                "a hook, or retain_grad(), on a view that a compiled program has returned, or on "
                "an input that it has written to, where another result depends on it; put it on a "
                "clone that the program makes and goes on with"
            )
        if item.place is not None and tensor.retains_grad:
            yield Observed(item.place, (), _keeping(tensor, None))


def _count(tensor: torch.Tensor) -> int:
    return len(tensor._backward_hooks or ())


def _keeping(tensor: torch.Tensor, known: torch.Tensor | None) -> Callable[[torch.Tensor], None]:
    """Gives a result the whole of its gradient; of the first one that it is told of, the engine has
    given it `known`, or what came to it from outside of the program."""
    parts = [known]

    def keep(whole: torch.Tensor) -> None:
        part = parts.pop() if parts else None
        kept = tensor.grad
        if kept is None or (part is not None and torch.equal(kept, part)):
            tensor.grad = whole.clone(memory_format=torch.contiguous_format)
        else:
            tensor.grad = kept + (whole if part is None else whole - part)

    return keep
