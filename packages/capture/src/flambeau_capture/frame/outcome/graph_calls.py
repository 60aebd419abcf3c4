"""Calls of compiled graphs, with what a backend need not see to.

In: what a backend returned. Out: a callable with the same results. Invariant: a result is an
inference tensor exactly if the program made it in that mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from flambeau_capture._native import disabled
from flambeau_capture.breaks import BreakReport, SkipFrame, Unsupported


class Raising:
    """Makes of a function one that runs uncaptured, and is to raise: if it returns, capture was
    wrong about it, and the break that it stands for is the error."""

    def __init__(self, report: BreakReport) -> None:
        self.report = report

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        run = disabled(function)

        def raising(*args: Any) -> NoReturn:
            run(*args)
            raise Unsupported(self.report)

        return disabled(raising)


def with_inference_state(
    compiled: Callable[..., Any], fakes: Sequence[Any]
) -> Callable[..., tuple[Any, ...]]:
    """A backend need not keep a graph's switches of inference mode. Rule: each result is an
    inference tensor exactly if the mode was on where the program made it, and requires grad only
    if the program's does: in that mode, an operator's does not. Raises SkipFrame for one with a
    history that is made in the mode, which has been left for it."""
    tensors = [isinstance(fake, torch.Tensor) for fake in fakes]
    pairs = list(zip(tensors, fakes, strict=True))
    wanted = [tensor and fake.is_inference() for tensor, fake in pairs]
    grads = [tensor and fake.requires_grad for tensor, fake in pairs]
    recorded = [grad and not inference for grad, inference in zip(grads, wanted, strict=True)]
    if torch.is_inference_mode_enabled() and any(recorded):
        raise SkipFrame("it leaves the inference mode around it for a result that requires grad")

    def call(*inputs: Any) -> tuple[Any, ...]:
        return tuple(map(_in_inference_state, compiled(*inputs), wanted, grads))

    return call


def _in_inference_state(result: Any, wanted: bool, grad: bool) -> Any:
    """The tensor, or another one over its memory."""
    if not isinstance(result, torch.Tensor):
        return result
    if result.requires_grad and not grad:
        result = result.detach()
    if result.is_inference() == wanted or result.requires_grad:
        return result
    with torch.inference_mode(wanted):
        if result.is_conj():
            return _in_inference_state(result.conj(), wanted, grad).conj()
        if result.layout is not torch.strided or result.is_neg():
            return result.clone()
        made = torch.empty(0, dtype=result.dtype, device=result.device)
        place = result.storage_offset(), result.size(), result.stride()
        return made.set_(result.untyped_storage(), *place)
