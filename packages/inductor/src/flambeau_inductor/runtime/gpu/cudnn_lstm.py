"""cuDNN LSTMs as functional operators.

In: an input, first states, the weights in the order of `nn.LSTM`. Out: what eager's call of the
same kernel gives, and the memory that its backward reads. Invariant: the weights are handed to
cuDNN where they are if they lie in one piece as it wants them, and packed into one piece otherwise;
no argument is written to, not even the memory that cuDNN's backward works in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

NAMESPACE = "flambeau_inductor"
PARAMETERS = 4
"""Tensors a layer and direction: weights of input and hidden state, and their biases."""
LSTM_MODE = 2
"""Number of the LSTM among the recurrent networks of cuDNN's schema."""


def lstm(
    x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], *settings: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output, the last states, and `reserve` bytes for the backward."""
    layers, train, both, batch_first, reserve = settings
    made = torch.ops.aten._cudnn_rnn.default(
        x, weights, PARAMETERS, packed(weights, x, h, layers, both), h.contiguous(),
        c.contiguous(), LSTM_MODE, h.shape[2], 0, layers, batch_first, 0.0, train, both, [], None,
    )  # fmt: skip
    if made[3].numel() != reserve:
        raise RuntimeError(
            f"cuDNN keeps {made[3].numel()} bytes for the backward of an LSTM; it kept {reserve} "
            f"when the graph was compiled"
        )
    return made[0], made[1], made[2], made[3]


def lstm_backward(
    x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], *others: Any
) -> list[Tensor]:
    """Gradients of the input, of both first states and of the weights. `others`: the output, the
    gradients of the results (None: there is none), what was reserved, the settings."""
    *results, reserve, layers, both, batch_first = others
    weight = packed(weights, x, h, layers, both)
    dx, dh, dc, slopes = torch.ops.aten._cudnn_rnn_backward.default(
        x, weights, PARAMETERS, weight, h.contiguous(), c.contiguous(), *results, LSTM_MODE,
        h.shape[2], 0, layers, batch_first, 0.0, True, both, [], None, reserve.clone(), [True] * 4,
    )  # fmt: skip
    return [dx, dh, dc, *slopes]


def packed(weights: Sequence[Tensor], x: Tensor, h: Tensor, layers: int, both: bool) -> Tensor:
    """All weights in one piece: their own memory where they lie so already."""
    first = weights[0]
    total, offsets = layout(x.shape[2], h.shape[2], layers, both, first.dtype, first.device)
    storage = first.untyped_storage()
    start = storage.data_ptr()
    if storage.nbytes() >= total * first.element_size() and all(
        weight.data_ptr() == start + offset * first.element_size() and weight.is_contiguous()
        for weight, offset in zip(weights, offsets, strict=True)
    ):
        return torch.empty(0, dtype=first.dtype, device=first.device).set_(
            storage, 0, (total,), (1,)
        )  # type: ignore[call-overload]
    return _one_piece([weight.data for weight in weights], x.shape[2], h.shape[2], layers, both)


def _one_piece(weights: list[Tensor], width: int, hidden: int, layers: int, both: bool) -> Tensor:
    """A copy of the weights as cuDNN wants them, which the given tensors then are views of."""
    made: Tensor = torch.ops.aten._cudnn_rnn_flatten_weight.default(
        weights, PARAMETERS, width, LSTM_MODE, hidden, 0, layers, False, both
    )
    return made


@lru_cache(maxsize=64)
def layout(
    width: int, hidden: int, layers: int, both: bool, dtype: torch.dtype, device: torch.device
) -> tuple[int, tuple[int, ...]]:
    """How many elements cuDNN wants, and where each weight begins: tried out, it says nowhere."""
    directions = 2 if both else 1
    weights: list[Tensor] = []
    for layer in range(layers):
        entering = width if layer == 0 else hidden * directions
        for _ in range(directions):
            sizes: list[tuple[int, ...]] = [(4 * hidden, entering), (4 * hidden, hidden)]
            sizes += [(4 * hidden,)] * 2
            weights += [torch.zeros(size, dtype=dtype, device=device) for size in sizes]
    made = _one_piece(weights, width, hidden, layers, both)
    return made.numel(), tuple(int(weight.storage_offset()) for weight in weights)


def _lstm_like(
    x: Tensor, h: Tensor, c: Tensor, _weights: Sequence[Tensor], *settings: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _layers, _train, both, batch_first, reserve = settings
    batch, steps = (0, 1) if batch_first else (1, 0)
    width = h.shape[2] * (2 if both else 1)
    output = x.new_empty((x.shape[steps], x.shape[batch], width))
    kept = x.new_empty((reserve,), dtype=torch.uint8)
    result = output.transpose(0, 1) if batch_first else output
    return result, h.new_empty(h.shape), c.new_empty(c.shape), kept


def _backward_like(
    x: Tensor, h: Tensor, c: Tensor, weights: Sequence[Tensor], *others: Any
) -> list[Tensor]:
    order = (1, 0, 2) if others[-1] else (0, 1, 2)  # whether the batch is first
    dx = x.new_empty([x.shape[axis] for axis in order]).permute(order)
    return [dx, *(each.new_empty(each.shape) for each in (h, c, *weights))]


_OPERATORS: tuple[tuple[str, Any, Any], ...] = (
    (
        "lstm(Tensor x, Tensor h, Tensor c, Tensor[] weights, int layers, bool train, bool both, "
        "bool batch_first, int reserve) -> (Tensor, Tensor, Tensor, Tensor)",
        lstm,
        _lstm_like,
    ),
    (
        "lstm_backward(Tensor x, Tensor h, Tensor c, Tensor[] weights, Tensor output, "
        "Tensor? grad_output, Tensor? grad_h, Tensor? grad_c, Tensor reserve, int layers, "
        "bool both, bool batch_first) -> Tensor[]",
        lstm_backward,
        _backward_like,
    ),
)

_LIBRARY = torch.library.Library(NAMESPACE, "DEF")

for _schema, _real, _shape in _OPERATORS:
    _name = _schema.partition("(")[0]
    _LIBRARY.define(_schema)
    _LIBRARY.impl(_name, _real, "CUDA")
    torch.library.register_fake(f"{NAMESPACE}::{_name}", _shape, lib=_LIBRARY)
