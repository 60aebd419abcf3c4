"""Analysis of a traced program: input mutations, aliasing of results.

In: the stand-ins of the inputs after the program ran on them, and its flat results. Out: the
updates of inputs, a plan for each result, and the values the graph returns.
Invariant: two results share memory under the plan exactly if they did in the program; what cannot
be planned so is refused. A view is made again outside the graph only if its gradient goes by the
views alone: one that goes through a derivative of the user's is made by the autograd function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from flambeau_aot._torch_compat import (
    FakeTensor,
    base_of,
    current_value,
    detour,
    flattens,
    is_functional,
    leaves_reached,
    made_in_function,
    made_without_grad,
    one_of_several,
    share_version_counter,
    storage_key,
)
from flambeau_aot.errors import AotError
from flambeau_aot.inputs.binding import SyntheticBaseView
from flambeau_aot.inputs.functional_inputs import FunctionalInput
from flambeau_aot.inputs.memory_overlap import expanded, steps_from
from flambeau_aot.intercept.input_attributes import Handle
from flambeau_aot.intercept.strides import in_whole_memory, is_lazy
from flambeau_aot.joint.dispatch_mode import JointTracer, detached_data
from flambeau_aot.joint.input_mutations import (
    Effects,
    Returned,
    in_graph,
    plan_inputs,
    refuse_new_leaves,
    refuse_reached,
)
from flambeau_aot.joint.nested import tensors_in
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime_plan import (
    FromFunction,
    FromGraph,
    IsInput,
    LiteralResult,
    OutputPlan,
    SameResult,
    Saved,
    View,
    ViewStep,
)


def analyze(
    tracer: JointTracer,
    primals: Sequence[torch.Tensor],
    stand_ins: Sequence[FunctionalInput],
    results: Sequence[Any],
    parts: Sequence[SyntheticBaseView] = (),
) -> Effects:
    """Plan the updates of inputs, then every result.

    parts: members of those primals that are bases of several arguments. Raises `WritesOverlap`
    where the program writes to memory that two primals share.
    """
    effects = Effects(tracer, primals, stand_ins, results, parts)
    try:
        plan_inputs(effects)
        _plan_results(effects)
    except AotError:
        raise
    except (RuntimeError, IndexError) as error:
        # Autograd answers no question about a view whose base was written to in another mode, or
        # was given another shape.
        raise refusal("AO0054", error=error) from error
    return effects


def _plan_results(effects: Effects) -> None:
    found = _Results(effects)
    effects.results.extend(found.plan(place, item) for place, item in enumerate(effects.flat))
    _refuse_lost_bases(effects)
    _refuse_shared_aliases(effects)
    _refuse_views_across(effects)
    refuse_new_leaves(effects)
    if found.leaves:
        refuse_reached(found.leaves, [x.wrapper for x in effects.returned if x.wrapper is not None])


def _refuse_lost_bases(effects: Effects) -> None:
    """A result that is a view of another result must be made as one."""
    places = {id(item): at for at, item in reversed([*enumerate(effects.flat)])}  # the first
    for item, plan in zip(effects.flat, effects.results, strict=True):
        if isinstance(plan, (View, FromGraph, FromFunction)):
            base = base_of(item)
            if base is item or id(base) not in places:
                continue
            origin = effects.results[places[id(base)]]
            output = getattr(plan, "output", -1)
            if isinstance(plan, FromFunction):
                output = effects.inside[plan.place].output
            known = isinstance(origin, IsInput) or (
                not isinstance(plan, FromGraph)
                and isinstance(origin, FromGraph)
                and origin.output == output
            )
            if not known:
                raise refusal("AO0115")


def _refuse_shared_aliases(effects: Effects) -> None:
    """Views of one alias by `Tensor.data` share its version counter; each is made again of an alias
    of its own."""
    views = [
        result
        for result, plan in zip(effects.flat, effects.results, strict=True)
        if isinstance(plan, View) and plan.steps and plan.steps[0].func is detached_data
    ]
    if any(_related(one, two) for at, one in enumerate(views) for two in views[:at]):
        raise refusal("AO0116")


def _refuse_views_across(effects: Effects) -> None:
    """A result that is a view of one input must not depend on what becomes of another's shape."""
    primals = effects.primals
    changed = {shape.primal for shape in effects.reshapes}
    changed |= {*effects.begin_grad, *effects.end_grad}
    keys = {storage_key(primals[primal]) for primal in changed if primal < len(primals)}
    for plan in effects.results:
        if isinstance(plan, View) and plan.primal not in changed:
            if 0 <= plan.primal < len(primals) and storage_key(primals[plan.primal]) in keys:
                raise refusal("AO0117")


@dataclass
class _Results:
    """The results of one trace; slots: what the graph returns already, by value."""

    effects: Effects
    slots: dict[int, int] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    leaves: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tracer = self.effects.tracer
        self.stand_ins, self.parts = self.effects.stand_ins, self.effects.parts
        self.by_wrapper = {id(item.wrapper): index for index, item in enumerate(self.stand_ins)}
        self.by_wrapper |= {id(part.wrapper): part.primal for part in self.parts}
        self.by_storage = {item.storage: index for index, item in enumerate(self.stand_ins)}
        self.groups: dict[int, list[torch.Tensor]] = {}
        for result in self.effects.flat:
            if isinstance(result, torch.Tensor) and result.layout != torch.strided:
                raise refusal("AO0118", layout=result.layout)
            if is_functional(result) and storage_key(result) not in self.by_storage:
                group = self.groups.setdefault(storage_key(result), [])
                if all(result is not member for member in group):
                    group.append(result)

    def plan(self, place: int, result: Any) -> OutputPlan:
        """What the result at this place is."""
        if isinstance(result, torch.SymInt):
            raise refusal("AO0119")
        if not isinstance(result, torch.Tensor) or not is_functional(result):
            refuse_what_escapes(result)
            if isinstance(result, Handle):
                raise refusal("AO0120")
            return LiteralResult(result)
        if id(result) in self.by_wrapper:
            return IsInput(self.by_wrapper[id(result)])
        first = self.first.setdefault(id(result), place)
        if first != place:
            return SameResult(first)
        leaf = _is_new_leaf(result)
        if leaf:
            self.leaves.append(result)
        if (primal := self.by_storage.get(storage_key(result))) is not None:
            return self._view_of_input(result, primal, leaf)
        return self._from_graph(result, self.groups[storage_key(result)], leaf)

    def _view_of_input(self, result: torch.Tensor, primal: int, leaf: bool) -> OutputPlan:
        final = self.effects.finals[primal]
        root, steps = steps_from(current_value(result), self.tracer.view_of, final)
        if root is not final:
            raise refusal("AO0121", primal=primal)
        matching: list[SyntheticBaseView] = []
        for part in self.parts:
            if part.base != primal or part.member.whole or not _related(part.wrapper, result):
                continue
            if part.member.recorded:
                return self._view_again(result, primal, self.stand_ins[primal].wrapper, steps, leaf)
            _, own = steps_from(current_value(part.wrapper), self.tracer.view_of, final)
            if steps[:1] == own[:1]:
                matching.append(part)
        if len(matching) > 1:
            raise refusal("AO0122")
        if matching:
            part = matching[0]
            return self._view_again(result, part.primal, part.wrapper, steps[1:], leaf)
        for part in self.parts:
            if part.base == primal and not part.merged.own:
                # The memory that a graph takes begins with the first part; the arguments' does not.
                steps = in_whole_memory(part.merged, steps)
                return self._view_again(result, part.primal, part.wrapper, steps, leaf)
        return self._view_again(result, primal, self.stand_ins[primal].wrapper, steps, leaf)

    def _view_again(
        self,
        result: torch.Tensor,
        primal: int,
        origin: torch.Tensor,
        steps: tuple[ViewStep, ...],
        leaf: bool,
    ) -> View | FromFunction:
        """The view of an input, from the shape the input is given if it was taken from that."""
        written = any(update.primal == primal for update in self.effects.updates)
        again = not written and primal in self.effects.end_grad and base_of(result) is origin
        if not again and _goes_another_way(result, origin):  # again: before the input is detached
            as_view = written and base_of(result) is base_of(origin)
            if primal >= len(self.stand_ins) or self._changes(primal) or as_view:
                raise refusal("AO0123")
            return self._inside(result, Saved("input", primal), _as_related(result, origin, steps))
        self._refuse_hooks(result)
        late = primal in self.effects.end_grad and not result.requires_grad
        for reshape in self.effects.reshapes:
            count = len(reshape.steps)
            if reshape.primal == primal and result.requires_grad and not in_graph(result):
                raise refusal("AO0124")
            if reshape.primal == primal and len(steps) > count and steps[:count] == reshape.steps:
                late, steps = True, steps[count:]
        if result.requires_grad and not in_graph(result) and not leaf and not origin.requires_grad:
            raise refusal("AO0125")
        steps = _as_related(result, origin, steps)
        return View(Saved("input", primal), steps, _made_with_grad(result), leaf, late)

    def _changes(self, primal: int) -> bool:
        """Whether an input becomes, besides its values, another one in the program."""
        changed = (*self.effects.begin_grad, *self.effects.end_grad)
        return primal in changed or any(x.primal == primal for x in self.effects.reshapes)

    def _inside(
        self, result: torch.Tensor, source: Saved, steps: tuple[ViewStep, ...]
    ) -> FromFunction:
        """A view that the autograd function makes."""
        self.effects.inside.append(View(source, steps))
        self.effects.inside_values.append(Returned(current_value(result), result))
        return FromFunction(len(self.effects.inside) - 1)

    def _refuse_hooks(self, result: torch.Tensor) -> None:
        """A hook on a view would not be called by the gradient of a view made again."""
        key = storage_key(result)
        for hooked in self.tracer.hooked:
            if base_of(hooked) is not hooked and storage_key(hooked) == key:
                raise refusal("AO0126")

    def _returned(self, value: torch.Tensor, wrapper: torch.Tensor | None) -> int:
        if id(value) not in self.slots:
            self.slots[id(value)] = len(self.effects.returned)
            self.effects.returned.append(Returned(value, wrapper))
        slot = self.slots[id(value)]
        if wrapper is not None and self.effects.returned[slot].wrapper is None:
            self.effects.returned[slot] = Returned(value, wrapper)
        return slot

    def _from_graph(
        self, result: torch.Tensor, group: list[torch.Tensor], leaf: bool
    ) -> OutputPlan:
        """A result of memory of its own, or one that shares it with other results only."""
        tracer = self.tracer
        value = current_value(result)
        if flattens(value):  # of an operator of a subclass and a plain tensor
            raise refusal("AO0169", kind=type(value).__name__)
        own = base_of(result)
        if own.requires_grad and own.grad_fn is None and all(own is not other for other in group):
            raise refusal("AO0130")
        lazy = is_lazy(value, tracer.view_of)
        alone = len(group) == 1 and not expanded(value.shape, value.stride()) and not lazy
        if alone and not _written_as_view(tracer, result):
            tracer.views.refuse_stale((result,))
            view = in_graph(result) and (made_in_function(result) or one_of_several(result))
            return FromGraph(self._returned(value, result), leaf, view)
        base_value, base = _base_of(tracer, group)
        if base_value is value and base is result:
            return FromGraph(self._returned(value, result), leaf)
        root, steps = steps_from(value, tracer.view_of, base_value)
        assert root is base_value
        tracer.views.refuse_stale((result,))
        if base is None or _goes_another_way(result, base):
            origin = base if base is not None else base_of(result)
            steps = _as_related(result, origin, steps)
            if in_graph(result):
                output = self._returned(base_value, None)
                return self._inside(result, Saved("output", output), steps)
        else:
            steps = _as_related(result, base, steps)
        self._refuse_hooks(result)
        with_grad = _made_with_grad(result)
        source = Saved("output", self._returned(base_value, base))
        return View(source, steps, with_grad, leaf)


def refuse_what_escapes(result: Any) -> None:
    """A result that no graph computes must hold no value of the trace, which has no data: not be
    one, nor keep one as a subclass of tensors or as an object does."""
    if isinstance(result, FakeTensor):
        raise refusal("AO0127")
    if isinstance(result, torch.Tensor):
        if flattens(result):
            raise refusal("AO0169", kind=type(result).__name__)  # it is put together outside
        if type(result).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            raise refusal("AO0128", kind=type(result).__name__)
        return
    held = getattr(result, "__dict__", None)
    for value in held.values() if isinstance(held, dict) and not isinstance(result, type) else ():
        if any(is_functional(x) or isinstance(x, FakeTensor) for x in tensors_in(value)):
            raise refusal("AO0129", kind=type(result).__name__)


def _made_with_grad(result: torch.Tensor) -> bool:
    """Whether a view is made again with grad enabled: what a caller may write to it depends on that
    even where it requires none."""
    if result.requires_grad and not in_graph(result) and base_of(result).requires_grad:
        return base_of(result) is result  # a view, that a user's function says has no derivative
    return in_graph(result) or not made_without_grad(result)


def _as_related(
    result: torch.Tensor, origin: torch.Tensor, steps: tuple[ViewStep, ...]
) -> tuple[ViewStep, ...]:
    """The steps to a result, `Tensor.data` first where autograd was led around the view, and
    `detach` where only writes to the two are counted together."""
    if base_of(result) is base_of(origin):
        return steps
    if _related(result, origin):
        if any(step.func is torch.ops.aten.detach.default for step in steps):
            return steps
        detach = ViewStep(torch.ops.aten.detach.default, (), {}, None)
        return (*steps, detach) if base_of(result) is result else (detach, *steps)
    return (ViewStep(detached_data, (), {}, None), *steps)


def _goes_another_way(result: torch.Tensor, origin: torch.Tensor) -> bool:
    """Whether the gradient of a view does not go by views alone to what it is a view of: through a
    user's derivative, from a value that was written to an alias, or somewhere between the two grad
    was disabled."""
    if not in_graph(result):
        return False
    if not in_graph(origin) or base_of(result) is not base_of(origin) or detour(result, origin):
        return True
    reached = {id(leaf) for leaf in leaves_reached([result])}
    return any(id(leaf) not in reached for leaf in leaves_reached([origin]))


def _related(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether autograd counts writes to these two together."""
    return base_of(one) is base_of(other) or share_version_counter(one, other)


def _is_new_leaf(result: torch.Tensor) -> bool:
    """Whether the program made this a leaf that requires grad; a view of one that does is none."""
    if not result.requires_grad or result.grad_fn is not None:
        return False
    base = base_of(result)
    return base is result or not base.requires_grad


def _written_as_view(tracer: JointTracer, result: torch.Tensor) -> bool:
    """Whether a caller who writes to this result must find a view that autograd knows.

    A view made inside an autograd function may not be written to; made after it, from the base the
    function returns, it is the view that eager gives. A view made with grad disabled requires grad
    because its base does.
    """
    base = base_of(result)
    if base is result:
        return False
    if not result.requires_grad:
        # Eager refuses to write to it what requires grad.
        return tracer.attempt.grad_mode and (made_without_grad(result) or one_of_several(result))
    if not base.requires_grad or made_in_function(result):
        # a function of autograd's own has made both, and gives the view; or nobody may write to it
        return False
    if not in_graph(base):
        raise refusal("AO0130")
    whole = current_value(base)
    return steps_from(current_value(result), tracer.view_of, whole)[0] is whole


def _base_of(
    tracer: JointTracer, group: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A value all of a group are views of, and the wrapper through which autograd knows it."""
    candidates = [
        *(member for member in group if base_of(member) is member),
        *(base_of(member) for member in group if base_of(member) is not member),
    ]
    values = [current_value(member) for member in group]
    for candidate in candidates:
        base = current_value(candidate)
        if all(steps_from(value, tracer.view_of, base)[0] is base for value in values):
            return base, candidate
    roots = {id(steps_from(value, tracer.view_of)[0]) for value in values}
    if len(roots) > 1:
        raise refusal("AO0131")
    return steps_from(values[0], tracer.view_of)[0], None
