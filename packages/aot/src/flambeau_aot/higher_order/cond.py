"""`cond` as a higher-order operator of the traced program.

What comes in: a call of torch's higher-order operator on functional tensors. What goes out: the
results of an operator made for it, which decides at each call; its derivative is another one.
Invariant: both sides are traced when the program is; a branch is never taken at trace time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flambeau_aot._torch_compat import current_value
from flambeau_aot.higher_order.bodies import (
    Differentiated,
    Layout,
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
from flambeau_aot.runtime.random import replayed


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
        run = _operator(sides, layouts[0], draws)
        return rebuilt(sides[0], run([pred, *tensors])[:count] if draws else run([pred, *tensors]))
    refuse_unrepeatable(sides, "cond")
    run = _operator(sides, layouts[0], draws)
    derive = _derivative(sides, tensors, wanting, draws)
    known = zip(*(differentiable_results(side) for side in sides), strict=True)
    constant = [place for place, either in enumerate(known) if True not in either]
    given = (run, derive, wanting, constant, count, pred, *tensors)
    results = Differentiated.apply(*given)  # type: ignore[no-untyped-call]
    return rebuilt(sides[0], results[:count])


def _operator(
    sides: Sequence[Joint], layouts: Sequence[Layout], draws: Sequence[torch.device]
) -> Any:
    """From the predicate and the operands to the results, and to the generators' states."""
    true, false = (forward(side) for side in sides)

    def run(given: list[torch.Tensor]) -> list[Any]:
        pred, *operands = given
        states = noted(draws)
        return [*(true(operands) if bool(pred) else false(operands)), *states]

    return registered("Tensor[] given", run, [*layouts, *state_layouts(draws)], draws)


def _derivative(
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
