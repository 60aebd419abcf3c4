"""`cond` and `while_loop` as higher-order operators of the traced program.

In: a call of torch's operator on functional tensors. Out: the results of an operator made for it,
which decides, or loops, at each call; its derivative is another one.
Invariant: functions are traced when the program is; a branch is never taken at trace time, and no
value of a round is kept from forward to backward: the derivative loops again, keeps what is carried
into each round while it runs, and then goes back through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import current_value
from flambeau_aot.higher_order.bodies import (
    Differentiated,
    Layout,
    Run,
    differentiable_results,
    draws_on,
    forward,
    gradients,
    layout_of,
    layouts_of,
    noted,
    rebuilt,
    refuse_unrepeatable,
    registered,
    state_layouts,
    tensors_of,
    traced,
)
from flambeau_aot.joint.corrections import contiguous
from flambeau_aot.joint.trace import Joint
from flambeau_aot.joint.tracer import JointTracer
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import replayed, streams


def cond(
    tracer: JointTracer, pred: Any, true: Any, false: Any, operands: Sequence[Any] = ()
) -> Any:
    """`torch.ops.higher_order.cond`."""
    if not isinstance(pred, torch.Tensor):
        return true(*operands) if pred else false(*operands)
    tensors = tensors_of("cond", operands)
    sides = [traced(tracer, side, tensors, "cond") for side in (true, false)]
    layouts = [layouts_of(side) for side in sides]
    if layouts[0] != layouts[1] or sides[0].plan.structure != sides[1].plan.structure:
        raise refusal("AO0142", layouts=layouts[0], others=layouts[1])
    count, draws = len(layouts[0]), draws_on(sides)
    wanting = [1 + index for index, tensor in enumerate(tensors) if tensor.requires_grad]
    if not (torch.is_grad_enabled() and wanting and any(side.training for side in sides)):
        run = _choice(sides, layouts[0], draws)
        return rebuilt(sides[0], run([pred, *tensors])[:count] if draws else run([pred, *tensors]))
    refuse_unrepeatable(sides, "cond")
    run = _choice(sides, layouts[0], draws)
    derive = _choice_derivative(sides, tensors, wanting, draws)
    known = zip(*(differentiable_results(side) for side in sides), strict=True)
    constant = [place for place, either in enumerate(known) if True not in either]
    given = (run, derive, wanting, constant, count, pred, *tensors)
    results = Differentiated.apply(*given)  # type: ignore[no-untyped-call]
    return rebuilt(sides[0], results[:count])


def _choice(
    sides: Sequence[Joint], layouts: Sequence[Layout], draws: Sequence[torch.device]
) -> Any:
    """From the predicate and the operands to the results, and to the generators' states."""
    true, false = (forward(side) for side in sides)

    def run(given: list[torch.Tensor]) -> list[Any]:
        pred, *operands = given
        states = noted(draws)
        return [*(true(operands) if bool(pred) else false(operands)), *states]

    return registered("Tensor[] given", run, [*layouts, *state_layouts(draws)], draws)


def _choice_derivative(
    sides: Sequence[Joint],
    operands: Sequence[torch.Tensor],
    wanting: Sequence[int],
    draws: Sequence[torch.device],
) -> Any:
    """The gradients of the operands that require grad; zeros where there is none."""
    found = [gradients(side, [place - 1 for place in wanting]) for side in sides]

    def run(
        given: list[torch.Tensor], cotangents: list[torch.Tensor], states: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        pred, *own = given
        with replayed(tuple(zip(draws, states, strict=True))):
            grads = found[0 if bool(pred) else 1](own, cotangents)
        return [
            torch.zeros_like(given[place]) if grad is None else grad
            for place, grad in zip(wanting, grads, strict=True)
        ]

    layouts: list[Layout] = []
    for place in wanting:
        shape, _, dtype, device = layout_of(current_value(operands[place - 1]))
        layouts.append((shape, contiguous(shape), dtype, device))
    return registered("Tensor[] given, Tensor[] cotangents, Tensor[] states", run, layouts)


def while_loop(
    tracer: JointTracer,
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carried: Sequence[Any],
    additional: Sequence[Any] = (),
) -> Any:
    """`torch.ops.higher_order.while_loop`."""
    tensors = tensors_of("while_loop", (*carried, *additional))
    count = len(carried)
    needed = [torch.is_grad_enabled() and tensor.requires_grad for tensor in tensors]
    step, inside = _step(tracer, body, tensors, needed, count)
    ask = traced(tracer, condition, tensors, "while_loop", [False] * len(tensors))
    starts = [layout_of(current_value(tensor)) for tensor in tensors[:count]]
    layouts = layouts_of(step)
    if [x[0] for x in layouts] != [x[0] for x in starts] or [x[2] for x in layouts] != [
        x[2] for x in starts
    ]:
        raise refusal("AO0143")
    draws = draws_on((ask, step))
    once = _round(forward(step), starts, len(tensors))
    run = _loop(forward(ask), once, starts, draws)
    if not any(needed) or not step.training:
        results = run(tensors)
        return rebuilt(step, results[:count] if draws else results)
    refuse_unrepeatable((ask, step), "while_loop")
    wanting = [index for index, needs in enumerate(needed) if needs]
    derive = _loop_derivative(forward(ask), once, step, inside, wanting, tensors, draws)
    constant = [place for place in range(count) if not inside[place]]
    given = (run, derive, wanting, constant, count, *tensors)
    results = Differentiated.apply(*given)  # type: ignore[no-untyped-call]
    return rebuilt(step, results[:count])


def _step(
    tracer: JointTracer,
    body: Callable[..., Any],
    tensors: Sequence[torch.Tensor],
    needed: Sequence[bool],
    count: int,
) -> tuple[Joint, list[bool]]:
    """The body, and which of its operands require grad in some round: what is carried into a round
    requires grad from when what a round before it carried out did."""
    inside = list(needed)
    while True:
        step = traced(tracer, body, tensors, "while_loop", inside)
        carried_out = differentiable_results(step)
        if len(carried_out) != count:
            raise refusal("AO0144", returned=len(carried_out), count=count)
        after = [
            before or (place < count and carried_out[place]) for place, before in enumerate(inside)
        ]
        if after == inside:
            return step, inside
        inside = after


def _round(once: Run, starts: Sequence[Layout], operands: int) -> Run:
    """One round, from all operands to all; what is carried keeps the strides it began with."""
    count = len(starts)

    def run(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        carried: list[torch.Tensor] = []
        for value, (shape, stride, dtype, device) in zip(once(values), starts, strict=True):
            if tuple(value.stride()) != stride:
                made = torch.empty_strided(shape, stride, dtype=dtype, device=device)
                value = made.copy_(value)
            carried.append(value)
        return [*carried, *values[count:operands]]

    return run


def _loop(ask: Run, once: Run, starts: Sequence[Layout], draws: Sequence[torch.device]) -> Any:
    """From the operands to what is carried out, and to the generators' states before it."""

    def run(operands: list[torch.Tensor]) -> list[torch.Tensor]:
        values: Sequence[torch.Tensor] = list(operands)
        states = noted(draws)
        while bool(ask(values)[0]):
            values = once(values)
        return [*values[: len(starts)], *states]

    return registered("Tensor[] operands", run, [*starts, *state_layouts(draws)], draws)


def _loop_derivative(
    ask: Run,
    once: Run,
    step: Joint,
    inside: Sequence[bool],
    wanting: Sequence[int],
    operands: Sequence[torch.Tensor],
    draws: Sequence[torch.device],
) -> Any:
    """From operands, cotangents of what is carried out, and states to gradients."""
    differentiated = [place for place, needs in enumerate(inside) if needs]
    back = gradients(step, differentiated)
    count = len(differentiable_results(step))

    def run(
        given: list[torch.Tensor], cotangents: list[torch.Tensor], states: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        rounds: list[tuple[Sequence[torch.Tensor], Any]] = []
        values: Sequence[torch.Tensor] = list(given)
        with replayed(tuple(zip(draws, states, strict=True))):
            while bool(ask(values)[0]):
                rounds.append((values, streams(draws)))
                values = once(values)
        grads: list[torch.Tensor | None] = [None] * len(given)
        grads[:count] = cotangents
        while rounds:
            values, before = rounds.pop()
            flowing = [
                torch.zeros_like(value) if grad is None else grad
                for grad, value in zip(grads[:count], values[:count], strict=True)
            ]
            with replayed(before):
                found = dict(zip(differentiated, back(values, flowing), strict=True))
            for place in range(len(given)):
                own, known = found.get(place), grads[place]
                if place < count or known is None or own is None:
                    grads[place] = own if place < count or known is None else known
                else:
                    grads[place] = known + own
        return [
            torch.zeros_like(given[place]) if grads[place] is None else grads[place]  # type: ignore[misc]
            for place in wanting
        ]

    layouts: list[Layout] = []
    for place in wanting:
        shape, _, dtype, device = layout_of(current_value(operands[place]))
        layouts.append((shape, contiguous(shape), dtype, device))
    return registered("Tensor[] given, Tensor[] cotangents, Tensor[] states", run, layouts)


HIGHER_ORDER: dict[str, Callable[..., Any]] = {"cond": cond, "while_loop": while_loop}
"""By the operator's name, what is called in its place."""
