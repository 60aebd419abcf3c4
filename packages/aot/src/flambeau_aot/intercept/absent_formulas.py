"""Custom operators without a derivative: results that require grad, a backward pass that raises.

In: an operator of `torch.library.custom_op` that has no `register_autograd`, what runs it, and the
tensors it is given. Out: its results, on a node of autograd that raises what torch's raises.
Invariant: a node whose message was taken gives no gradient: whoever took it raises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class WithoutFormula(torch.autograd.Function):
    """Results of an operator that has no derivative."""

    message: str

    @staticmethod
    def forward(ctx: Any, run: Callable[[], Sequence[Any]], *tensors: torch.Tensor) -> Any:
        return tuple(run())

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        if not getattr(ctx, "taken", False):
            raise RuntimeError(type(ctx)._forward_cls.message)
        return (None,) * len(ctx.needs_input_grad)


def without_formula(
    func: Any, run: Callable[[], Sequence[Any]], tensors: Sequence[torch.Tensor]
) -> list[Any]:
    """What `run` gives of these tensors, some of which require grad; it is run without autograd."""
    name = f"GeneratedBackwardFor_{func.namespace}_{func._opname}_{func._overloadname}"
    message = (
        f"Trying to backward through {func} but no autograd formula was registered. "
        f"Please use register_autograd to add one."
    )
    kind: Any = type(name, (WithoutFormula,), {"message": message})
    return list(kind.apply(run, *tensors))


def taken_message(node: Any) -> str | None:
    """What a node of autograd raises for want of a derivative; None for any other."""
    kind = getattr(type(node), "_forward_cls", None)
    if kind is None or not issubclass(kind, WithoutFormula):
        return None
    node.taken = True
    return str(kind.message)
