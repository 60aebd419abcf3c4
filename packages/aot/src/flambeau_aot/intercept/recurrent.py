"""Recurrent layers with dropout, unrolled layer by layer.

What comes in: a call of `torch.lstm`, `gru`, `rnn_tanh` or `rnn_relu`. What goes out: the same
call, or for a batch one call a layer with `torch.dropout` between two.
Invariant: the masks are drawn as torch's own kernels draw them: between two layers, in training,
over the time-major result of the one before. (The form that torch takes these operators apart by
where a size is left open draws none. Packed sequences are left alone: what is computed with them
depends on the values of their lengths.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch


def recurrent(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `function` gives of `(data, states, parameters, has_biases, num_layers, dropout, train,
    bidirectional, batch_first)`."""
    if kwargs or len(args) != 9 or not isinstance(args[2], list | tuple):
        return function(*args, **kwargs)
    data, states, parameters, biases, layers, dropout, train, both, batch_first = args
    if not (train and dropout > 0 and layers > 1):
        return function(*args)
    values = data.transpose(0, 1) if batch_first else data
    several = isinstance(states, list | tuple)
    starts = list(states) if several else [states]
    own, directions = len(parameters) // layers, 2 if both else 1
    ends: list[list[torch.Tensor]] = [[] for _ in starts]
    for layer in range(layers):
        if layer:
            values = torch.dropout(values, dropout, True)
        begun = [each.narrow(0, layer * directions, directions) for each in starts]
        values, *ended = function(
            values, tuple(begun) if several else begun[0],
            parameters[own * layer : own * (layer + 1)], biases, 1, 0.0, train, both, False,
        )  # fmt: skip
        for found, end in zip(ends, ended, strict=True):
            found.append(end)
    return (values.transpose(0, 1) if batch_first else values, *map(torch.cat, ends))


RECURRENT: Mapping[Any, Callable[..., Any]] = {
    called: partial(recurrent, function)
    for function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
    for packet in (getattr(torch.ops.aten, function.__name__),)
    for called in (function, packet, packet.input)
}
"""The operators, by what a program calls."""
