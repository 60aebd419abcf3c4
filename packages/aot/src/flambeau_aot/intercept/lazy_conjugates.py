"""Lazy conjugation and negation: bits of a tensor, kept as eager keeps them.

In: calls on tensors of a trace in which a decomposition computes the conjugate, so that the value
has no such bit. Out: what eager answers where the bit decides.
Invariant: a tensor has the bit if an odd number of the views that it was made by flip it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_aot._torch_compat import current_value, is_conj_or_neg, is_functional
from flambeau_aot.inputs.memory_overlap import ViewOf, steps_from
from flambeau_aot.intercept.registry import Call, Interception, getter, intercept

_CONJ, _NEG = torch.ops.aten._conj.default, torch.ops.aten._neg_view.default


def _no_pairs(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(
        "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
        "tensor so you can view it as real, use self.resolve_conj()"
    )


_ANSWERS: dict[Any, tuple[Any, Callable[[torch.Tensor], Any]]] = {
    torch.is_conj: (_CONJ, lambda x: True),
    torch.Tensor.is_conj: (_CONJ, lambda x: True),
    torch.resolve_conj: (_CONJ, torch.clone),
    torch.Tensor.resolve_conj: (_CONJ, torch.clone),
    torch.view_as_real: (_CONJ, _no_pairs),
    **dict.fromkeys((torch.real, getter("real")), (_CONJ, lambda x: torch.real(torch.conj(x)))),
    **dict.fromkeys(
        (torch.imag, getter("imag")), (_CONJ, lambda x: torch._neg_view(torch.imag(torch.conj(x))))
    ),
    torch.is_neg: (_NEG, lambda x: True),
    torch.Tensor.is_neg: (_NEG, lambda x: True),
    torch.resolve_neg: (_NEG, torch.clone),
    torch.Tensor.resolve_neg: (_NEG, torch.clone),
}
"""By function, the view that flips the bit it reads, and its answer where the bit is set."""


def is_lazy(value: torch.Tensor, view_of: ViewOf) -> bool:
    """Whether a value was computed where eager has flipped a bit of a view."""
    _, steps = steps_from(value, view_of)
    return not is_conj_or_neg(value) and any(step.func in (_CONJ, _NEG) for step in steps)


def differs_in_lazy_bit(value: torch.Tensor, view_of: ViewOf, by: Any) -> bool:
    """Whether a value without the bit stands for a tensor that has it in eager."""
    _, steps = steps_from(value, view_of)
    return not is_conj_or_neg(value) and sum(step.func is by for step in steps) % 2 == 1


@intercept(*_ANSWERS)
def lazy_bit(trace: Interception, call: Call) -> Any:
    """What a call gives on a tensor that has the bit in eager, and whose value has it not."""
    by, give = _ANSWERS[call.func]
    target, view_of = call.target, trace.tracer.layouts.view_of
    if is_functional(target) and differs_in_lazy_bit(current_value(target), view_of, by):
        return give(target)
    return NotImplemented
