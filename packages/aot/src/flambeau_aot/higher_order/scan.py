"""`scan` and `map` at a length that is open, or long: one operator, which loops at each call.

In: a call of torch's operator on functional tensors. Out: what it carries out, and the results of
all steps, stacked. Invariant: as for `while_loop`: the step is traced once, at the metadata of a
slice; nothing of a step is kept from forward to backward, which goes forward again, keeps what was
carried into each step, and goes back through them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from flambeau_aot._torch_compat import current_value, outside_tracing
from flambeau_aot.higher_order.control_flow import (
    Control,
    Run,
    alike,
    differentiable_results,
    draws_on,
    forward,
    gradients,
    layouts_of,
    open_numbers,
    outputs_of,
    refuse_unrepeatable,
    tensors_of,
    traced_round,
)
from flambeau_aot.joint.dispatch_mode import JointTracer
from flambeau_aot.refusals import refusal
from flambeau_aot.runtime.ambient_state import replayed, streams
from flambeau_aot.sizes import TensorLayout, symbols_of


def map_slices(
    tracer: JointTracer, step: Callable[..., Any], xs: Sequence[Any], more: Sequence[Any] = ()
) -> Any:
    """`torch.ops.higher_order.map_impl`: a scan that carries nothing."""
    return scan(tracer, step, (), xs, more)


def scan(
    tracer: JointTracer,
    step: Callable[..., Any],
    init: Sequence[Any],
    xs: Sequence[Any],
    more: Sequence[Any] = (),
) -> Any:
    """`torch.ops.higher_order.scan`: along the first dimension of each of `xs`."""
    tensors = tensors_of("scan", (*init, *xs, *more))
    carried, sliced = len(init), range(len(init), len(init) + len(xs))
    needed = [torch.is_grad_enabled() and tensor.requires_grad for tensor in tensors]
    numbers = open_numbers(tensors)
    symbols = symbols_of(numbers)
    with outside_tracing():
        values = [current_value(x) for x in tensors]
        length = values[carried].shape[0]
        given = [x.select(0, 0) if n in sliced else x for n, x in enumerate(values)]
    joint, inside = traced_round(
        tracer, step, given, "scan", numbers, needed, carried, gives_more=True
    )
    starts = [TensorLayout.of(values[place], symbols) for place in range(carried)]
    if not alike(layouts_of(joint, symbols)[:carried], starts, strides=False):
        raise refusal("AO0143", name="scan")
    with outside_tracing():
        made = [joint.outputs[place].meta["val"] for place in outputs_of(joint)[carried:]]
        rows = [x.new_empty((length, *x.shape)) for x in made]
    layouts = [*starts, *(TensorLayout.of(x, symbols) for x in rows)]
    wanting = [place for place, needs in enumerate(needed) if needs and joint.training]
    if wanting:
        refuse_unrepeatable((joint,), "scan")
    flags = differentiable_results(joint)
    differentiated = [place for place, needs in enumerate(inside) if needs]
    back = gradients(joint, differentiated if wanting else [])
    loop = _Steps(forward(joint), layouts, carried, sliced, draws_on((joint,)))
    return Control(
        functions=(joint,),
        layouts=layouts,
        run=loop.run,
        gradients=partial(loop.gradients, back, differentiated, wanting),
        wanting=wanting,
        constant=[place for place, own in enumerate((*inside[:carried], *flags[carried:]))
                  if not own],
        structure=joint.plan.structure,
    ).results(tensors, numbers)  # fmt: skip


@dataclass(frozen=True)
class _Steps:
    """A step and the layouts of all results, of which the first are carried; sliced: the operands
    that are given slice by slice; draws: the devices whose random streams it draws on."""

    step: Run
    layouts: Sequence[TensorLayout]
    carried: int
    sliced: range
    draws: Sequence[torch.device]

    def _given(
        self, operands: Sequence[torch.Tensor], carry: Sequence[torch.Tensor], place: int
    ) -> list[torch.Tensor]:
        slices = (operands[n].select(0, place) for n in self.sliced)
        return [*carry, *slices, *operands[self.sliced.stop :]]

    def _carry(
        self, found: Sequence[torch.Tensor], layouts: Sequence[TensorLayout]
    ) -> list[torch.Tensor]:
        """What is carried on, with the strides that it began with."""
        return [
            value if tuple(value.stride()) == layout.stride else layout.empty().copy_(value)
            for value, layout in zip(found, layouts)
        ]

    def run(self, operands: Sequence[torch.Tensor], sizes: Sequence[int]) -> Sequence[torch.Tensor]:
        """What is carried out, and the results of the steps."""
        layouts = [layout.at(sizes) for layout in self.layouts]
        rows = [layout.empty() for layout in layouts[self.carried :]]
        carry = list(operands[: self.carried])
        for place in range(operands[self.sliced.start].shape[0]):
            found = self.step(self._given(operands, carry, place), sizes)
            carry = self._carry(found[: self.carried], layouts)
            for row, value in zip(rows, found[self.carried :], strict=True):
                row[place].copy_(value)
        return [*carry, *rows]

    def gradients(
        self,
        back: Run,
        differentiated: Sequence[int],
        wanting: Sequence[int],
        operands: Sequence[torch.Tensor],
        sizes: Sequence[int],
        cotangents: Sequence[torch.Tensor],
    ) -> list[torch.Tensor | None]:
        """Gradients by the operands `wanting`; back: those of the step by `differentiated`."""
        layouts = [layout.at(sizes) for layout in self.layouts]
        length = operands[self.sliced.start].shape[0]
        before: list[tuple[list[torch.Tensor], Any]] = []
        carry = list(operands[: self.carried])
        for place in range(length):
            before.append((carry, streams(self.draws)))
            found = self.step(self._given(operands, carry, place), sizes)
            carry = self._carry(found[: self.carried], layouts)
        grads: list[torch.Tensor | None] = [None] * len(operands)
        grads[: self.carried] = cotangents[: self.carried]
        for place in reversed(self.sliced):
            if place in differentiated:
                grads[place] = torch.zeros_like(operands[place])
        for place in reversed(range(length)):
            carry, states = before.pop()
            own = (
                torch.zeros_like(value) if grad is None else grad
                for grad, value in zip(grads[: self.carried], carry, strict=True)
            )
            flowing = [*own, *(rows.select(0, place) for rows in cotangents[self.carried :])]
            with replayed(states):
                made = back(self._given(operands, carry, place), sizes, flowing)
            found_by = dict(zip(differentiated, made, strict=True))
            for operand, known in enumerate(grads):
                new = found_by.get(operand)
                if operand < self.carried:
                    grads[operand] = new
                elif new is not None and operand in self.sliced:
                    assert known is not None
                    known.select(0, place).copy_(new)
                elif new is not None:
                    grads[operand] = new if known is None else known + new
        return [grads[place] for place in wanting]
