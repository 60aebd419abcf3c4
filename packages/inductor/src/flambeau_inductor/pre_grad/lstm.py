"""LSTMs kept whole as library calls.

In: a captured graph of torch functions, on fake tensors. Out: the same graph, in which `torch.lstm`
is a function of ours where the library's fused layer applies: oneDNN's on a CPU, one call a layer
and direction; cuDNN's on a GPU, one call in all. Invariant: the conditions are those under which
eager calls the same kernel; anywhere else the graph is left alone.

Traced as it stands, an LSTM is a matrix product and a dozen pointwise operations a time step and
layer. Fake tensors are not on a CPU as far as torch's own choice can see, and have no layout of
weights that cuDNN could choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from flambeau_inductor.node_queries import under_autocast, val_of
from flambeau_inductor.passes.rewriter import Ledger, Match, Rule, ops, rewrite_module
from flambeau_inductor.runtime.gpu import cudnn_lstm
from flambeau_inductor.runtime.gpu.cudnn_lstm import LSTM_MODE, PARAMETERS

KEPT_WHOLE = frozenset(
    {torch.ops.aten.mkldnn_rnn_layer.default, torch.ops.aten.mkldnn_rnn_layer_backward.default}
)
"""Operators that the inductor runs whole: whoever decomposes a graph for it leaves these."""

CUDNN_TYPES = (torch.float32, torch.float16, torch.float64)
CUDNN_BFLOAT16 = 91300
"""Version of cuDNN from which on torch gives it LSTMs in bfloat16."""


@dataclass(frozen=True)
class _LstmCall:
    """A call of `torch.lstm` on one batch, by its fake values."""

    data: Tensor
    states: tuple[Tensor, Tensor]
    weights: tuple[Tensor, ...]
    layers: int
    train: bool
    both: bool
    batch_first: bool

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return (self.data, *self.states, *self.weights)


def keep_recurrent(gm: fx.GraphModule, ledger: Ledger | None = None) -> int:
    """Let LSTMs that a library fuses be calls of it; how many were."""
    if under_autocast(gm.graph):
        return 0  # eager casts what it is given
    rule = Rule("keep_recurrent", (ops.lstm(where=lambda node: True),), _kept_whole)
    return rewrite_module(gm, (rule,), ledger)


def _kept_whole(m: Match) -> fx.Node | None:
    call = _call(m.root)
    if call is None or call.data.device.type not in WAYS:
        return None
    fits, function = WAYS[call.data.device.type]
    more = fits(call)
    return None if more is None else m.call(function, *m.root.args, *more)


def _call(node: fx.Node) -> _LstmCall | None:
    """What is called, if it is one batch of known sizes, with biases and without dropout."""
    if node.kwargs or len(node.args) != 9:
        return None
    settings: tuple[Any, ...] = node.args
    data, states, parameters, biases, layers, dropout, train, both, batch_first = settings
    if not isinstance(states, list | tuple) or not isinstance(parameters, list | tuple):
        return None  # packed sequences come in another order
    tensors = [val_of(part) for part in (data, *states, *parameters)]
    if len(states) != 2 or not all(isinstance(t, Tensor) for t in tensors):
        return None
    first = tensors[0]
    if any(t.device != first.device or t.dtype != first.dtype for t in tensors):
        return None
    directions = 2 if both else 1
    whole = len(parameters) == PARAMETERS * int(layers) * directions
    fixed = all(isinstance(size, int) for t in tensors for size in t.shape)
    batched = fixed and first.dim() == 3 and first.numel() > 0
    if not (biases and whole and batched and (not train or float(dropout) == 0.0)):
        return None
    found = (first, (tensors[1], tensors[2]), tuple(tensors[3:]))
    return _LstmCall(*found, int(layers), bool(train), bool(both), bool(batch_first))


def _by_onednn(call: _LstmCall) -> tuple[int, ...] | None:
    there = torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled
    return () if there and call.data.dtype == torch.float32 else None


def _by_cudnn(call: _LstmCall) -> tuple[int, ...] | None:
    """The bytes that a backward will read, where eager would call cuDNN for this call."""
    if not torch.backends.cudnn.enabled or torch.is_autocast_enabled("cuda"):
        return None
    version = torch.backends.cudnn.version()
    if version is None or not torch.cuda.is_available():
        return None
    halves = version >= CUDNN_BFLOAT16 and torch.cuda.get_device_capability() >= (8, 0)
    known = (*CUDNN_TYPES, torch.bfloat16) if halves else CUDNN_TYPES
    return (reserved_bytes(call),) if call.data.dtype in known else None


def reserved_bytes(call: _LstmCall) -> int:
    """What cuDNN keeps for the backward of such a call, which no shape rule knows: tried out."""
    if not call.train:
        return 0
    x, h, c, *weights = (torch.zeros(t.shape, dtype=t.dtype, device=t.device) for t in call.tensors)
    made = torch.ops.aten._cudnn_rnn.default(
        x, weights, PARAMETERS, cudnn_lstm.packed(weights, x, h, call.layers, call.both), h, c,
        LSTM_MODE, h.shape[2], 0, call.layers, call.batch_first, 0.0, True, call.both, [], None,
    )  # fmt: skip
    return int(made[3].numel())


def lstm_by_layers(
    data: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor], *how: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """What `torch.lstm` computes, by `aten.mkldnn_rnn_layer`, where `_by_onednn` accepts it; `how`
    are the other arguments."""
    biases, layers, _, train, both, batch_first = how
    sequence = (data.transpose(0, 1) if batch_first else data).contiguous()
    hidden, cells = states
    last_hidden: list[Tensor] = []
    last_cells: list[Tensor] = []
    directions = 2 if both else 1
    for layer in range(layers):
        outputs: list[Tensor] = []
        for direction in range(directions):
            position = layer * directions + direction
            own = parameters[PARAMETERS * position : PARAMETERS * (position + 1)]
            output, last, cell, _ = torch.ops.aten.mkldnn_rnn_layer.default(
                sequence, *own, hidden[position], cells[position], direction > 0, [], LSTM_MODE,
                hidden.shape[2], layers, biases, both, False, train,
            )  # fmt: skip
            outputs.append(output)
            last_hidden.append(last)
            last_cells.append(cell)
        sequence = torch.cat(outputs, -1) if both else outputs[0]
    output = sequence.transpose(0, 1) if batch_first else sequence
    return output, torch.stack(last_hidden), torch.stack(last_cells)


def lstm_by_cudnn(
    data: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor], *how: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """What `torch.lstm` computes, by one call of cuDNN that `_by_cudnn` has accepted; `how` are the
    other arguments, and the bytes reserved for the backward."""
    _, layers, _, *rest = how
    settings = layers, *rest
    made: tuple[Tensor, Tensor, Tensor] = _Lstm.apply(  # type: ignore[no-untyped-call]
        settings, data, *states, *parameters
    )
    return made


class _Lstm(torch.autograd.Function):
    """The operators of `runtime.recurrent`, each the other's derivative."""

    @staticmethod
    def forward(ctx: Any, settings: Any, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> Any:
        output, last, cells, kept = torch.ops.flambeau_inductor.lstm.default(
            x, h, c, weights, *settings
        )
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, h, c, output, kept, *weights)
        return output, last, cells

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> Any:
        x, h, c, output, kept, *weights = ctx.saved_tensors
        layers, train, both, batch_first, _ = ctx.settings
        if not train:
            raise RuntimeError("cudnn RNN backward can only be called in training mode")
        made = torch.ops.flambeau_inductor.lstm_backward.default(
            x, h, c, weights, output, *slopes, kept, layers, both, batch_first
        )
        return None, *made


Fits = Callable[[_LstmCall], tuple[int, ...] | None]
WAYS: dict[str, tuple[Fits, Callable[..., Any]]] = {
    "cpu": (_by_onednn, lstm_by_layers),
    "cuda": (_by_cudnn, lstm_by_cudnn),
}
"""By type of device: whether the library takes a call, with further arguments if it does, and what
then stands for it."""
