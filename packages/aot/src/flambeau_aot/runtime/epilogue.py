"""Runtime epilogue: graph outputs to the caller's results.

In: the primals of this call and what the graph returned. Out: the results.
Invariant: inputs are updated, once each, before any view of them is made again, and reshaped after
it; a result that is an input, or shares memory with one, does so here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import torch

from flambeau_aot._torch_compat import copy_all_, in_order, raise_version, raise_versions
from flambeau_aot.runtime.result_nodes import ResultNodes
from flambeau_aot.runtime_plan import (
    FromFunction,
    FromGraph,
    InputUpdate,
    IsInput,
    LiteralResult,
    OutputPlan,
    RuntimePlan,
    SameResult,
    Saved,
    View,
    ViewStep,
)

Pairs = list[tuple[int, int]]
"""(input, output) by position."""


def copies(
    updates: Sequence[InputUpdate], unseen: bool = False
) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    """The function that copies outputs into inputs without autograd.

    unseen: no version counter is to notice, as eager's batch norm updates its statistics.
    """
    groups: list[Pairs] = []

    def copy(primals: Sequence[Any], outputs: Sequence[Any]) -> None:
        if not groups:
            groups.extend(grouped(updates, primals, outputs))
        with torch.no_grad():
            for pairs in groups:
                apart = [(to, of) for to, of in pairs if outputs[of] is not primals[to]]
                targets = [primals[to] for to, _ in apart]
                if unseen:
                    targets = [target.data for target in targets]
                sources = [outputs[of] for _, of in apart]
                if apart and targets[0].dtype == sources[0].dtype == torch.bool:
                    # a copy of bools has bytes of 0 and 1, a write by another dtype any others
                    targets, sources = _bytes_of(targets), _bytes_of(sources)
                if apart:
                    copy_all_(targets, sources)
                if not unseen and len(apart) < len(pairs):
                    raise_versions([primals[to] for to, of in pairs if outputs[of] is primals[to]])

    return copy


def grouped(
    updates: Sequence[InputUpdate], primals: Sequence[Any], outputs: Sequence[Any]
) -> list[Pairs]:
    """The updates by device and dtype of both sides, in order of first appearance."""
    by_kind: dict[Any, Pairs] = {}
    for item in updates:
        to, of = primals[item.primal], outputs[item.output]
        kind = (to.device, to.dtype, of.device, of.dtype)
        by_kind.setdefault(kind, []).append((item.primal, item.output))
    return list(by_kind.values())


def _bytes_of(tensors: Sequence[Any]) -> list[Any]:
    return [tensor.view(torch.uint8) for tensor in tensors]


Epilogue = Callable[[Sequence[Any], Sequence[Any]], list[Any]]
Views = dict[int, Any]
"""What calls of view operators have given in one call of the program, by their number."""
Result = Callable[[Sequence[Any], Sequence[Any], Views], Any]

aten = torch.ops.aten

# The operators that make a view of a tensor by changing the tensor itself.
IN_PLACE: dict[Any, Any] = {
    aten.t.default: aten.t_.default,
    aten.transpose.int: aten.transpose_.default,
    aten.unsqueeze.default: aten.unsqueeze_.default,
    aten.squeeze.default: aten.squeeze_.default,
    aten.squeeze.dim: aten.squeeze_.dim,
    aten.squeeze.dims: aten.squeeze_.dims,
    aten.as_strided.default: aten.as_strided_.default,
}


def epilogue(plan: RuntimePlan, nodes: ResultNodes | None = None) -> Epilogue | None:
    """Build the function that finishes a call; None where the outputs are the results. nodes: what
    puts results on autograd nodes of their own."""
    silent = [item for item in plan.updates if item.counted and not item.differentiable]
    unseen = [item for item in plan.updates if not item.counted]
    recorded = [item for item in plan.updates if item.differentiable]
    symbols = slice(plan.inputs.bound - len(plan.inputs.symbols), plan.inputs.bound)
    often = [
        primal
        for item in plan.updates
        if item.counted
        for primal in [item.primal] * (item.writes - 1)
    ]
    update, update_unseen = copies(silent), copies(unseen, unseen=True)
    results = [_result(item, symbols, plan.visible) for item in plan.results]
    late = [at for at, x in enumerate(plan.results) if isinstance(x, View) and x.late]
    early = [_nothing if at in late else make for at, make in enumerate(results)]
    repeats = [(at, x.result) for at, x in enumerate(plan.results) if isinstance(x, SameResult)]
    as_they_are = nodes is None and plan.results == tuple(map(FromGraph, range(plan.visible)))
    if as_they_are and not (plan.updates or plan.extras) and plan.grad_mode_after is None:
        return None

    by_primal = {item.primal: item for item in recorded}
    made_in_order: list[bool] = []  # of the nodes, as at every call

    def on_own_nodes(
        primals: Sequence[Any], outputs: Sequence[Any], views: Views
    ) -> tuple[Sequence[Any], dict[int, Any]]:
        """The outputs, and what was made of them on the way: results, inputs that are updated."""
        if nodes is None:
            return outputs, {}
        updated: dict[int, Any] = {}

        def result(place: int, known: Sequence[Any]) -> Any:
            primal = ~place if place < 0 else getattr(plan.results[place], "primal", -1)
            if primal in by_primal and ~primal not in updated:
                record(by_primal[primal], primals, known)
                updated[~primal] = primals[primal]
            return primals[primal] if place < 0 else results[place](primals, known, views)

        known = list(outputs)
        made = nodes.attach(known, result)
        return known, {**made, **updated}

    def finish(primals: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        for primal, hook in plan.hooks:
            primals[primal].register_hook(_where_defined(hook))
        if silent:
            update(primals, outputs)
        if unseen:
            update_unseen(primals, outputs)
        views: Views = {}
        outputs, made = on_own_nodes(primals, outputs, views)
        for item in recorded:
            if ~item.primal not in made:
                record(item, primals, outputs)
        for primal in plan.touched:
            raise_version(primals[primal])
        if often:  # the copy was counted once
            raise_versions([primals[primal] for primal in often])
        values = [
            made[at] if at in made else make(primals, outputs, views)
            for at, make in enumerate(early)
        ]
        for shape in plan.reshapes:
            with torch.set_grad_enabled(shape.recorded):
                _reshape(primals[shape.primal], shape.steps)
        for primal in plan.end_grad:
            primals[primal].detach_()
        for place in late:
            values[place] = results[place](primals, outputs, views)
        for place, first in repeats:
            values[place] = values[first]
        for primal in plan.begin_grad:
            primals[primal].requires_grad_()
        if plan.grad_mode_after is not None:
            torch.set_grad_enabled(plan.grad_mode_after)
        if plan.node_order and not made_in_order:
            found = {"output": outputs, "result": values, "input": primals}
            known = (found[place.kind][place.index].grad_fn for place in plan.node_order)
            if in_order([node for node in dict.fromkeys(known) if node is not None]):
                made_in_order.append(True)
        return values

    return finish


def record(item: InputUpdate, primals: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Write to an input as an in-place operator does that autograd knows."""
    with torch.enable_grad():
        primals[item.primal].copy_(outputs[item.output])


def _where_defined(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The hook, not called for a gradient that is undefined, as in eager."""
    return lambda grad: None if grad is None else hook(grad)


def _nothing(primals: Sequence[torch.Tensor], outputs: Sequence[Any], views: Views) -> None:
    """In place of a result that is made later."""


def _reshape(tensor: torch.Tensor, steps: tuple[ViewStep, ...]) -> None:
    for step in steps:
        if (change := IN_PLACE.get(step.func)) is not None:
            change(tensor, *step.args, **step.kwargs)


def _result(item: OutputPlan, symbols: slice, visible: int) -> Result:
    made = _made(item, symbols, visible)
    if not getattr(item, "leaf", False):
        return made
    return lambda primals, outputs, views: made(primals, outputs, views).requires_grad_()


def _made(item: OutputPlan, symbols: slice, visible: int) -> Result:
    match item:
        case FromGraph(output=place):
            return lambda primals, outputs, views: outputs[place]
        case FromFunction(place=place):
            return lambda primals, outputs, views: outputs[visible + place]
        case IsInput(primal=place):
            return lambda primals, outputs, views: primals[place]
        case LiteralResult(value=value):
            return lambda primals, outputs, views: value
        case View(Saved(kind, place), steps, grad, numbers=numbers, calls=calls):

            def again(primals: Any, outputs: Any, views: Views) -> Any:
                base = primals if kind == "input" else outputs
                known = [outputs[number].item() for number in numbers]
                return replay(base[place], steps, grad, primals[symbols], known, calls, views)

            return again
        case SameResult():
            return _nothing


def replay(
    value: Any,
    steps: tuple[ViewStep, ...],
    requires_grad: bool,
    symbols: Sequence[Any] = (),
    numbers: Sequence[int] = (),
    calls: Sequence[int] = (),
    views: Views | None = None,
) -> Any:
    """Make a view again, with grad enabled exactly if it was so when the program made it; `symbols`
    are the values of the open sizes, `numbers` those that the graph returns for it. `calls` are
    done once for all `views`."""
    known = (*symbols, *numbers, *value.shape)
    with torch.set_grad_enabled(requires_grad):
        known_calls = {} if views is None else views
        start = max((at for at, call in enumerate(calls) if call in known_calls), default=0)
        for step, call in zip(steps[start:], calls[start:] or repeat(-1), strict=False):
            found = known_calls.get(call)
            if found is None:
                args, kwargs = step.args, step.kwargs
                if step.sized is not None:
                    args, kwargs = step.sized(known)
                found = step.func(value, *args, **kwargs)
                if call >= 0:
                    known_calls[call] = found
            value = found if step.index is None else found[step.index]
    return value
