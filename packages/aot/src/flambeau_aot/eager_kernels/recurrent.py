"""Recurrent layers as one operator, whatever their number of steps.

In: a layer's input, states and parameters; the sizes of the batch by step, of a packed sequence.
Out: its results, or the gradients by the tensors. Invariant: eager's own kernel computes both; the
derivative runs it again.

Written out, a layer is a few operations a step: steps that are open, or that data decides, cannot
be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_aot.eager_kernels.kernel_operators import KernelOperator, define_pair

LAYERS: dict[str, Callable[..., Any]] = {
    layer.__name__: layer for layer in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
}
_CALL = (
    "str layer, Tensor data, Tensor? sizes, Tensor[] states, Tensor[] parameters, bool biases, "
    "int layers, float dropout, bool train, bool both, bool batch_first"
)


def _run(
    layer: str, data: Tensor, sizes: Tensor | None, states: Sequence[Tensor], *rest: Any
) -> Any:
    start = states if layer == "lstm" else states[0]
    if sizes is None:
        return list(LAYERS[layer](data, start, *rest))
    return list(LAYERS[layer](data, sizes, start, *rest[:-1]))


def _like(
    layer: str, data: Tensor, sizes: Tensor | None, states: Sequence[Tensor], *rest: Any
) -> Any:
    both, batch_first = rest[-2:]
    width = states[0].shape[2] * (2 if both else 1)
    ends = [torch.empty_like(each, memory_format=torch.contiguous_format) for each in states]
    if sizes is not None:
        return [data.new_empty((data.shape[0], width)), *ends]
    steps, batch = data.shape[:2][:: -1 if batch_first else 1]
    values = data.new_empty((steps, batch, width))
    return [values.transpose(0, 1) if batch_first else values, *ends]


def _differentiated(
    layer: str, data: Tensor, sizes: Tensor | None, states: Any, parameters: Any, *rest: Any
) -> list[Tensor]:
    *settings, cotangents = rest
    count = len(states)
    with torch.enable_grad():
        own = [each.detach().requires_grad_() for each in (data, *states, *parameters)]
        results = _run(layer, own[0], sizes, own[1 : 1 + count], own[1 + count :], *settings)
        grads = torch.autograd.grad(results, own, cotangents, allow_unused=True)
    return [
        torch.zeros_like(one) if grad is None else grad.contiguous()
        for one, grad in zip(own, grads, strict=True)
    ]


def _gradients_like(
    layer: str, data: Tensor, sizes: Tensor | None, states: Any, parameters: Any, *rest: Any
) -> list[Tensor]:
    given = (data, *states, *parameters)
    return [torch.empty_like(one, memory_format=torch.contiguous_format) for one in given]


_recurrent, _recurrent_backward = define_pair(
    "recurrent",
    _CALL,
    "Tensor[]",
    KernelOperator(_run, _like),
    KernelOperator(_differentiated, _gradients_like),
)


class Recurrent(torch.autograd.Function):
    """The operator, and its derivative by the other one."""

    @staticmethod
    def forward(ctx: Any, layer: str, count: int, rest: Sequence[Any], *given: Any) -> Any:
        """Of `given`: the input, sizes or None, states to the number of `count`, parameters."""
        ctx.call = layer, count, rest
        ctx.save_for_backward(*given)
        states, parameters = given[2 : 2 + count], given[2 + count :]
        found = _recurrent(layer, *given[:2], states, parameters, *rest)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Gradients by the input, the states and the parameters."""
        layer, count, rest = ctx.call
        data, sizes, *given = ctx.saved_tensors
        call = layer, data, sizes, given[:count], given[count:], *rest
        first, *others = _recurrent_backward(*call, cotangents)
        return (None, None, None, first, None, *others)


def recurrent(
    layer: str, data: Tensor, sizes: Tensor | None, states: Any, parameters: Any, *rest: Any
) -> tuple[Tensor, ...]:
    """What `torch.lstm` and its like return."""
    starts = tuple(states) if isinstance(states, list | tuple) else (states,)
    given = (data, sizes, *starts, *parameters)
    found: tuple[Tensor, ...] = Recurrent.apply(layer, len(starts), rest, *given)  # type: ignore[no-untyped-call]
    return found
