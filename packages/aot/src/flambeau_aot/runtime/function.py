"""The autograd function around a compiled forward and backward graph.

What comes in: two boxed callables and what crosses between them.
What goes out: a callable on primals whose outputs autograd can differentiate once.
Invariant: everything saved goes through `save_for_backward`, so that writing to a saved tensor
before the backward pass raises as it does in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from flambeau_aot._torch_compat import backward_keeps_graph, saved_tensors_released
from flambeau_aot.errors import DoubleBackwardError
from flambeau_aot.info import Boxed
from flambeau_aot.partition.split import Saved

Forward = Callable[[Sequence[torch.Tensor]], Sequence[Any]]


@dataclass(frozen=True)
class TangentLayout:
    """What the backward graph was traced with for one cotangent."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True)
class Crossing:
    """What the autograd function needs to know besides the two callables.

    visible: number of forward outputs handed on; the saved ones follow.
    grads: for each primal, the position of its gradient among the backward outputs, or None.
    reusable: positions of backward inputs that the backward graph may overwrite.
    tangents_of: for each primal, which tangents its gradient depends on. A gradient whose
    tangents are all undefined is undefined, as in eager, and not zero.
    """

    visible: int
    differentiable: tuple[int, ...]
    saved: tuple[Saved, ...]
    grads: tuple[int | None, ...]
    tangents: tuple[TangentLayout, ...]
    reusable: tuple[int, ...]
    tangents_of: tuple[frozenset[int], ...]


def autograd_function(forward: Boxed, backward: Boxed, crossing: Crossing) -> Forward:
    """Build the autograd function of one compile."""
    visible = crossing.visible
    known = frozenset(crossing.differentiable)
    constant = tuple(index for index in range(visible) if index not in known)
    count = len(crossing.saved)

    class CompiledGraph(torch.autograd.Function):
        """One compiled graph as autograd sees it."""

        @staticmethod
        def forward(ctx: Any, *primals: torch.Tensor) -> tuple[torch.Tensor, ...]:
            outputs = forward(list(primals))
            ctx.save_for_backward(
                *[
                    primals[item.index] if item.kind == "input" else outputs[item.index]
                    for item in crossing.saved
                ]
            )
            ctx.set_materialize_grads(False)
            if constant:
                ctx.mark_non_differentiable(*[outputs[index] for index in constant])
            return tuple(outputs[:visible])

        @staticmethod
        def backward(ctx: Any, *cotangents: Any) -> Any:
            given = [cotangents[index] for index in crossing.differentiable]
            if all(item is None for item in given):
                return (None,) * len(crossing.grads)
            if torch.is_grad_enabled():
                raise DoubleBackwardError(
                    "backward through a compiled graph was called with create_graph=True; "
                    "derivatives of second order are not supported yet: run this part of the "
                    "program uncompiled"
                )
            args: list[Any] = list(ctx.saved_tensors)
            if backward_keeps_graph():
                for index in crossing.reusable:
                    args[index] = args[index].clone()
            else:
                saved_tensors_released(ctx)
            assert len(args) == count
            for item, layout in zip(given, crossing.tangents, strict=True):
                args.append(as_traced(item, layout))
            grads = backward(args)
            results = [None if place is None else grads[place] for place in crossing.grads]
            missing = {index for index, item in enumerate(given) if item is None}
            if missing:
                for index, needed in enumerate(crossing.tangents_of):
                    if needed and needed <= missing:
                        results[index] = None
            return tuple(results)

    apply: Any = CompiledGraph.apply

    def call(primals: Sequence[torch.Tensor]) -> Sequence[Any]:
        outputs: Sequence[Any] = apply(*primals)
        return outputs

    return call


def as_traced(value: torch.Tensor | None, layout: TangentLayout) -> torch.Tensor:
    """A cotangent in the layout the backward graph expects; zeros where there is none."""
    if value is None:
        zeros = torch.empty_strided(
            layout.shape, layout.stride, dtype=layout.dtype, device=layout.device
        )
        return zeros.zero_()
    value = value.resolve_conj().resolve_neg()
    same = value.dtype == layout.dtype and value.layout == torch.strided
    if same and tuple(value.stride()) == layout.stride:
        return value
    result = torch.empty_strided(
        layout.shape, layout.stride, dtype=layout.dtype, device=layout.device
    )
    return result.copy_(value.to_dense() if value.layout != torch.strided else value)
