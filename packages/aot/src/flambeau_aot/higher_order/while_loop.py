"""`while_loop` as a higher-order operator of the traced program.

What comes in: a call of torch's higher-order operator on functional tensors. What goes out: the
results of an operator made for it, which goes round as often as the values say; its derivative is
another one.
Invariant: nothing is kept of a round between forward and backward. The derivative goes round
again, keeps what is carried into each round while it runs, and then goes back through them.
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
from flambeau_aot.runtime.random import replayed, streams


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
    run = _operator(forward(ask), once, starts, draws)
    if not any(needed) or not step.training:
        results = run(tensors)
        return rebuilt(step, results[:count] if draws else results)
    refuse_unrepeatable((ask, step), "while_loop")
    wanting = [index for index, needs in enumerate(needed) if needs]
    derive = _derivative(forward(ask), once, step, inside, wanting, tensors, draws)
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
    """The body, and which of its operands require grad in some round: what is carried into a
    round requires grad from when what a round before it carried out did."""
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


def _operator(ask: Run, once: Run, starts: Sequence[Layout], draws: Sequence[torch.device]) -> Any:
    """From the operands to what is carried out, and to the generators' states before it."""

    def run(operands: list[torch.Tensor]) -> list[torch.Tensor]:
        values: Sequence[torch.Tensor] = list(operands)
        states = noted(draws)
        while bool(ask(values)[0]):
            values = once(values)
        return [*values[: len(starts)], *states]

    return registered("Tensor[] operands", run, [*starts, *state_layouts(draws)], draws)


def _derivative(
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
