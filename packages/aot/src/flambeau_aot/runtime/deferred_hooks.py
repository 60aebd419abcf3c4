"""Hooks on the results of one call, called when eager calls them among those on leaves.

In: the node of a compiled call, the cotangents of a backward pass, and a run of the program. Out:
gradients of leaves, each computed when the engine comes to the leaf.
Invariant: hooks on a result are called before those on leaves that eager comes to later, and after
those on leaves whose gradients are complete before; a pass in which no result that has hooks is
overtaken by a leaf that has some goes through the compiled backward part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    current_backward_pass,
    leaf_has_hooks,
    leaf_numbers,
    leaves_in_order,
    result_hooks,
    with_first_hook,
)
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.gated_inputs import ends, gates
from flambeau_aot.runtime.pullbacks import Gradient, Seeds, pulled_back
from flambeau_aot.runtime.result_nodes import ended, would_run
from flambeau_aot.runtime_plan import RuntimePlan

Attach = Callable[[Sequence[Gradient]], Sequence[Gradient]]
"""Gradients inside of the run, as they are outside of it."""
Enter = Callable[[torch.Tensor], torch.Tensor]
"""The reverse."""


def overtaken(main: Any, plan: RuntimePlan) -> bool:
    """Whether eager may call hooks on a leaf, in the pass being run, before those on a result that
    does not lead there."""
    known = main.__dict__.get("overtaken")
    if known is None or known[0] != current_backward_pass():
        known = main.overtaken = (current_backward_pass(), _overtaken(main, plan))
    return bool(known[1])


def _overtaken(main: Any, plan: RuntimePlan) -> bool:
    hooked = {plan.cotangents[at] for at, own in result_hooks(main).items() if own}
    return bool(hooked) and any(
        not hooked <= frozenset().union(*(own for _, own in leading))
        and (place in gates(main) or leaf_has_hooks(ends(main)[place]))
        for place, leading in plan.leaf_order
    )


def refuse_overtaken(main: Any, plan: RuntimePlan, given: Sequence[Gradient]) -> None:
    """Raise Unsupported where eager, with these cotangents, comes to a leaf with hooks before it
    calls hooks on a result, which have been called or have to be called now."""
    runs, numbers = would_run(plan), leaf_numbers(plan.leaf_order, given)
    last = min(
        (
            plan.result_order[plan.cotangents[at]][0]
            for at, own in result_hooks(main).items()
            if own and runs(main, at)
        ),
        default=max(numbers.values(), default=0) + 1,
    )
    for place, number in numbers.items():
        if last <= number and leaf_has_hooks(ends(main)[place]):
            raise refusal("AO0182")


@dataclass(eq=False)
class Deferred:
    """The gradients of one call in one backward pass, computed leaf by leaf.

    seeds: what the cotangents are of in the run, with these. ends: the same of all cotangents.
    starts: by primal, what is differentiated by. whole: by cotangent, gradients after hooks.
    """

    main: Any
    plan: RuntimePlan
    seeds: Seeds = ()
    ends: Mapping[int, torch.Tensor] = field(default_factory=dict)
    starts: Mapping[int, torch.Tensor] = field(default_factory=dict)
    attach: Attach = list
    enter: Enter = torch.Tensor.detach
    whole: dict[int, torch.Tensor] = field(default_factory=dict)
    waiting: list[tuple[int, int]] = field(default_factory=list)

    def begin(self, given: Sequence[Gradient], count: int) -> list[Gradient]:
        """What the call's node gives: zeros, and on each leaf a hook that adds the gradient."""
        orders = self.plan.cotangents
        self.waiting = sorted(
            (
                (self.plan.result_order[orders[at]][1], at)
                for at, own in result_hooks(self.main).items()
                if own
            )
        )
        found: list[Gradient] = [None] * count
        if any(
            end is not None and not (hasattr(end, "variable") or place in gates(self.main))
            for place, end in enumerate(ends(self.main))
        ):
            refuse_overtaken(self.main, self.plan, given)
            self._call_hooks(-1)
            places = [*self.starts]
            own = self._gradients([self.starts[place] for place in places])
            for place, gradient in zip(places, self.attach(own), strict=True):
                found[place] = gradient
            return found
        for place, number in leaf_numbers(self.plan.leaf_order, given).items():
            end = ends(self.main)[place]
            if end is not None:
                if place in self.starts:
                    found[place] = torch.zeros_like(self.starts[place], requires_grad=False)
                add = self._of_leaf(place, number, found[place])
                if place in gates(self.main):
                    self.main.__dict__.setdefault("added", {})[place] = add
                else:
                    with_first_hook(end.variable, add)
        leaves_in_order(self.main, self.plan.leaf_order, given)
        return found

    def _of_leaf(self, place: int, number: int, zeros: Gradient) -> Callable[[Gradient], Gradient]:
        def add(received: Gradient) -> Gradient:
            self._call_hooks(number)
            if zeros is None or received is None:
                return received
            (part,) = self.attach(self._gradients([self.starts[place]]))
            if part is None:
                return received
            return part if received is zeros else received + part

        return add

    def _call_hooks(self, number: int) -> None:
        """Call the hooks on results that eager comes to before the node of this number."""
        orders = self.plan.cotangents
        while self.waiting:
            order = orders[self.waiting[-1][1]]
            if self.plan.result_order[order][0] <= number:
                return
            _, at = self.waiting.pop()
            end = self.ends.get(order)
            if end is None or not would_run(self.plan)(self.main, at):
                continue
            (gradient,) = self.attach(self._gradients([end]))
            if gradient is not None:
                self.whole[order] = self.enter(result_hooks(self.main)[at].called(gradient))

    def _gradients(self, of: Sequence[torch.Tensor]) -> Sequence[Gradient]:
        known = {order: self.ends[order] for order in self.whole}
        with ended(self.whole, known, [end for end, _ in self.seeds]):
            return pulled_back(self.seeds, of, torch.is_grad_enabled())
