"""Lazy conjugation and negation: bits of a tensor, kept as eager keeps them.

What comes in: calls on tensors of a trace in which a decomposition computes the conjugate, so that
the value has no such bit. What goes out: what eager answers where the bit decides.
Invariant: a tensor has the bit if an odd number of the views that it was made by turn it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from flambeau_aot._torch_compat import current_value, is_conj_or_neg, is_functional
from flambeau_aot.plan import ViewStep

ViewOf = Mapping[int, tuple[torch.Tensor, ViewStep]]

_CONJ, _NEG = torch.ops.aten._conj.default, torch.ops.aten._neg_view.default
_imag, _real = (getattr(torch.Tensor, name).__get__ for name in ("imag", "real"))


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
    torch.real: (_CONJ, lambda x: torch.real(torch.conj(x))),
    torch.imag: (_CONJ, lambda x: torch._neg_view(torch.imag(torch.conj(x)))),
    torch.is_neg: (_NEG, lambda x: True),
    torch.Tensor.is_neg: (_NEG, lambda x: True),
    torch.resolve_neg: (_NEG, torch.clone),
    torch.Tensor.resolve_neg: (_NEG, torch.clone),
}
"""By function, the view that turns the bit it asks for, and its answer where the bit is set."""


def differs_in_lazy_bit(value: torch.Tensor, view_of: ViewOf, by: Any) -> bool:
    """Whether a value without the bit stands for a tensor that has it in eager."""
    odd = False
    if not is_conj_or_neg(value):
        while id(value) in view_of:
            value, step = view_of[id(value)]
            odd ^= step.func is by
    return odd


def is_lazy(value: torch.Tensor, view_of: ViewOf) -> bool:
    """Whether a value was computed where eager has turned a bit of a view."""
    if is_conj_or_neg(value):
        return False
    while id(value) in view_of:
        value, step = view_of[id(value)]
        if step.func in (_CONJ, _NEG):
            return True
    return False


def answer(func: Any, target: torch.Tensor, view_of: ViewOf) -> Any:
    """What a call on a tensor with the bit gives; None where the call itself is right."""
    func = torch.imag if func == _imag else torch.real if func == _real else func
    found = _ANSWERS.get(func)
    if found is None or not is_functional(target):
        return None
    by, give = found
    return give(target) if differs_in_lazy_bit(current_value(target), view_of, by) else None
