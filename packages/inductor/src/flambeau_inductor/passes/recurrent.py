"""LSTMs as one library call a layer and direction, before autograd is traced.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which `torch.lstm`
is a function of ours where the library's fused layer applies. Invariant: the conditions are those
under which eager calls the same kernel; anywhere else the graph is left alone.

Traced as it stands, an LSTM is a matrix product and a dozen pointwise operations a time step and a
layer: a graph as long as the sequence, whose kernels are all too small to pay. Fake tensors take
that road because they are not on a CPU as far as torch's own choice can see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

KEPT_WHOLE = frozenset(
    {
        torch.ops.aten.mkldnn_rnn_layer.default,
        torch.ops.aten.mkldnn_rnn_layer_backward.default,
    }
)
"""Operators that the inductor runs whole: whoever decomposes a graph for it leaves these."""

LSTM_MODE = 2
"""Number of the LSTM among the recurrent networks of the operator's schema."""

PARAMETERS = 4
"""Tensors a layer and direction: weights of input and hidden state, and their biases."""


def keep_recurrent(gm: fx.GraphModule) -> int:
    """Let LSTMs that the library fuses be one call a layer; how many were."""
    kept = 0
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.lstm and _fits(node):
            node.target = lstm_by_layers
            kept += 1
    if kept:
        gm.recompile()
    return kept


def _fits(node: fx.Node) -> bool:
    """Whether eager would call the fused layer for this call."""
    if node.kwargs or len(node.args) != 9 or not torch.backends.mkldnn.is_available():
        return False
    if not torch.backends.mkldnn.enabled:
        return False
    settings: tuple[Any, ...] = node.args
    data, states, parameters, biases, layers, dropout, train, both, _ = settings
    if not isinstance(states, list | tuple) or not isinstance(parameters, list | tuple):
        return False  # packed sequences come in another order
    tensors = [_value(part) for part in (data, *states, *parameters)]
    if not all(
        isinstance(t, Tensor) and t.device.type == "cpu" and t.dtype == torch.float32
        for t in tensors
    ):
        return False
    directions = 2 if both else 1
    whole = len(parameters) == PARAMETERS * int(layers) * directions
    fixed = all(isinstance(size, int) for t in tensors for size in t.shape)
    batched = fixed and tensors[0].dim() == 3 and tensors[0].numel() > 0
    return bool(biases) and whole and batched and (not train or float(dropout) == 0.0)


def _value(part: Any) -> Any:
    return part.meta.get("val") if isinstance(part, fx.Node) else part


def lstm_by_layers(
    data: Tensor,
    states: Sequence[Tensor],
    parameters: Sequence[Tensor],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both: bool,
    batch_first: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `torch.lstm` computes, by `aten.mkldnn_rnn_layer`; `_fits` has been asked."""
    del dropout
    sequence = data.transpose(0, 1) if batch_first else data
    sequence = sequence.contiguous()
    hidden, cells = states
    last_hidden: list[Tensor] = []
    last_cells: list[Tensor] = []
    directions = 2 if both else 1
    for layer in range(layers):
        outputs: list[Tensor] = []
        for direction in range(directions):
            position = layer * directions + direction
            own = parameters[PARAMETERS * position : PARAMETERS * (position + 1)]
            result = torch.ops.aten.mkldnn_rnn_layer.default(
                sequence,
                *own,
                hidden[position],
                cells[position],
                direction > 0,
                [],
                LSTM_MODE,
                hidden.shape[2],
                layers,
                biases,
                both,
                False,
                train,
            )
            outputs.append(result[0])
            last_hidden.append(result[1])
            last_cells.append(result[2])
        sequence = torch.cat(outputs, -1) if both else outputs[0]
    output = sequence.transpose(0, 1) if batch_first else sequence
    return output, torch.stack(last_hidden), torch.stack(last_cells)
