"""Cells and layers of recurrent networks that ATen has whole.

In: gates, states and weights. Out: prims, a step of time after the other.
Invariant: gates are in torch's order: LSTM i, f, g, o; GRU r, z, n; the workspace that a cell
returns is what its own backward here reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.table import decomposition

aten = torch.ops.aten
LSTM = 2
"""The number of oneDNN's plain LSTM among kinds of layers."""


def chunks(x: Tensor, count: int) -> list[Tensor]:
    """`count` equal parts along the last dimension."""
    size = x.shape[-1] // count
    start, stop, step = [0] * x.ndim, list(x.shape), [1] * x.ndim
    return [
        p.slice(x, [*start[:-1], i * size], [*stop[:-1], (i + 1) * size], step)
        for i in range(count)
    ]


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    wide = e.widen(gates)
    return wide if bias is None else e.add(wide, e.cast(bias, wide.dtype))


def lstm_step(gates: Tensor, cx: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(hidden state, cell state, activated gates) from the sum of all that enters the gates."""
    i, f, g, o = chunks(gates, 4)
    i, f, g, o = p.sigmoid(i), p.sigmoid(f), p.tanh(g), p.sigmoid(o)
    cy = p.add(p.mul(f, cx), p.mul(i, g))
    return p.mul(o, p.tanh(cy)), cy, [i, f, g, o]


@decomposition(aten._thnn_fused_lstm_cell.default)
def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    gates = p.add(_biased(input_gates, input_bias), _biased(hidden_gates, hidden_bias))
    hy, cy, activated = lstm_step(gates, e.cast(cx, gates.dtype))
    dtype = input_gates.dtype
    return e.cast(hy, dtype), e.cast(cy, dtype), e.cast(p.cat(activated, 1), dtype)


@decomposition(aten._thnn_fused_lstm_cell_backward_impl.default)
def lstm_cell_backward(
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    cx: Tensor,
    cy: Tensor,
    workspace: Tensor,
    has_bias: bool,
) -> Any:
    """(gradient of the gates, of the cell state, of the bias)."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    old, new, kept = e.widen(cx, cy, workspace)
    i, f, g, o = chunks(kept, 4)
    top = p.tanh(new)
    zero = e.const(0.0, new)
    dh = zero if grad_hy is None else e.cast(grad_hy, new.dtype)
    dc = zero if grad_cy is None else e.cast(grad_cy, new.dtype)
    dc = p.add(dc, p.mul(p.mul(dh, o), e.sub(1.0, p.mul(top, top))))
    slopes = [
        p.mul(p.mul(dc, g), _sigmoid_slope(i)),
        p.mul(p.mul(dc, old), _sigmoid_slope(f)),
        p.mul(p.mul(dc, i), e.sub(1.0, p.mul(g, g))),
        p.mul(p.mul(dh, top), _sigmoid_slope(o)),
    ]
    gates = p.cat(slopes, 1)
    bias = e.cast(p.sum(gates, [0]), cx.dtype) if has_bias else None
    return e.cast(gates, workspace.dtype), e.cast(p.mul(dc, f), cx.dtype), bias


def _sigmoid_slope(s: Tensor) -> Tensor:
    return p.mul(s, e.sub(1.0, s))


@decomposition(aten._thnn_fused_gru_cell.default)
def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The workspace holds r, z, n, hx and the hidden part of n, in torch's order."""
    ir, iz, inn = chunks(_biased(input_gates, input_bias), 3)
    hr, hz, hn = chunks(_biased(hidden_gates, hidden_bias), 3)
    state = e.widen(hx)
    r, z = p.sigmoid(p.add(ir, hr)), p.sigmoid(p.add(iz, hz))
    n = p.tanh(p.add(inn, p.mul(r, hn)))
    hy = p.add(n, p.mul(z, p.sub(state, n)))
    kept = p.cat([r, z, n, state, hn], 1)
    return e.cast(hy, hx.dtype), e.cast(kept, input_gates.dtype)


@decomposition(aten._thnn_fused_gru_cell_backward.default)
def gru_cell_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> Any:
    """Gradients of both sides' gates, of the state, of both biases."""
    dh, kept = e.widen(grad_hy, workspace)
    r, z, n, state, hn = chunks(kept, 5)
    dn = p.mul(p.mul(dh, e.sub(1.0, z)), e.sub(1.0, p.mul(n, n)))
    dz = p.mul(p.mul(dh, p.sub(state, n)), _sigmoid_slope(z))
    dr = p.mul(p.mul(dn, hn), _sigmoid_slope(r))
    entering = p.cat([dr, dz, dn], 1)
    hidden = p.cat([dr, dz, p.mul(dn, r)], 1)
    dtype = workspace.dtype
    biases = [e.cast(p.sum(t, [0]), dtype) if has_bias else None for t in (entering, hidden)]
    both = [e.cast(t, dtype) for t in (entering, hidden)]
    return (*both, e.cast(p.mul(dh, z), dtype), *biases)


@decomposition(*overloads("mkldnn_rnn_layer", "default"))
def rnn_layer(
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    hx: Tensor,
    cx: Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> Any:
    """One direction of one LSTM layer over [T, N, C], without gradient."""
    del bidirectional, batch_first, hidden_size
    if mode != LSTM or train or len(batch_sizes) or num_layers != 1 or x.ndim != 3:
        return NotImplemented
    wide = e.widen(x)
    steps, batch, width = wide.shape
    dtype = wide.dtype
    into = p.mm(p.reshape(wide, [steps * batch, width]), _turned(weight_ih, dtype))
    if has_biases:
        into = e.add(into, e.cast(bias_ih, dtype))
        into = e.add(into, e.cast(bias_hh, dtype))
    into = p.reshape(into, [steps, batch, into.shape[1]])
    again = _turned(weight_hh, dtype)
    state, cell = (p.reshape(e.cast(t, dtype), [batch, t.shape[-1]]) for t in (hx, cx))
    outputs: list[Tensor] = []
    for place in range(steps):
        at = steps - 1 - place if reverse else place
        entering = p.slice(into, [at, 0, 0], [at + 1, batch, into.shape[2]], [1, 1, 1])
        gates = p.add(p.reshape(entering, [batch, into.shape[2]]), p.mm(state, again))
        state, cell, _ = lstm_step(gates, cell)
        outputs.append(p.reshape(state, [1, *state.shape]))
    out = p.cat(outputs[::-1] if reverse else outputs, 0)
    last = [e.cast(p.reshape(t, list(s.shape)), x.dtype) for t, s in ((state, hx), (cell, cx))]
    workspace = p.full([0], 0, dtype=torch.uint8, device=x.device)
    return e.cast(out, x.dtype), *last, workspace


def _turned(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return p.permute(e.cast(weight, dtype), [1, 0])
