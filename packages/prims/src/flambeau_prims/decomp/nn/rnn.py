"""Decompositions of recurrent cells and layers.

In: gates, states and weights. Out: prims, a step of time after the other.
Invariant: gates are in torch's order: LSTM i, f, g, o; GRU r, z, n; the workspace that a cell
returns is what its own backward here reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.decomposition_table import decomposition

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
    zero = e.const(0.0, new)
    dh = zero if grad_hy is None else e.cast(grad_hy, new.dtype)
    dc = zero if grad_cy is None else e.cast(grad_cy, new.dtype)
    gates, state = _lstm_slopes(dh, dc, old, new, chunks(kept, 4))
    bias = e.cast(p.sum(gates, [0]), cx.dtype) if has_bias else None
    return e.cast(gates, workspace.dtype), e.cast(state, cx.dtype), bias


def _lstm_slopes(
    dh: Tensor, dc: Tensor, old: Tensor, new: Tensor, gates: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """(gradient of what enters the gates, of the cell state before), given the activated gates."""
    i, f, g, o = gates
    top = p.tanh(new)
    dc = p.add(dc, p.mul(p.mul(dh, o), e.sub(1.0, p.mul(top, top))))
    slopes = [
        p.mul(p.mul(dc, g), _sigmoid_slope(i)),
        p.mul(p.mul(dc, old), _sigmoid_slope(f)),
        p.mul(p.mul(dc, i), e.sub(1.0, p.mul(g, g))),
        p.mul(p.mul(dh, top), _sigmoid_slope(o)),
    ]
    return p.cat(slopes, 1), p.mul(dc, f)


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


class Step(NamedTuple):
    """One step of a layer: the states before it, its gates, the cell after it."""

    before: Tensor
    cell_before: Tensor
    gates: list[Tensor]
    cell: Tensor
    after: Tensor


def _flat(x: Tensor) -> Tensor:
    """[T, N, C] as [T * N, C]."""
    return p.reshape(x, [x.shape[0] * x.shape[1], x.shape[2]])


def _at(x: Tensor, step: int) -> Tensor:
    _, batch, width = x.shape
    part = p.slice(x, [step, 0, 0], [step + 1, batch, width], [1, 1, 1])
    return p.reshape(part, [batch, width])


def _steps(
    x: Tensor, weights: Sequence[Tensor], hx: Tensor, cx: Tensor, reverse: bool, biased: bool
) -> list[Step]:
    """All steps of one direction of an LSTM layer, in the order of time, computed wide."""
    steps, batch, _ = x.shape
    wide = e.widen(x)
    dtype = wide.dtype
    into = p.mm(_flat(wide), _transposed(weights[0], dtype))
    for bias in weights[2:] if biased else ():
        into = e.add(into, e.cast(bias, dtype))
    into = p.reshape(into, [steps, batch, into.shape[1]])
    again = _transposed(weights[1], dtype)
    state, cell = (p.reshape(e.cast(t, dtype), [batch, t.shape[-1]]) for t in (hx, cx))
    done: list[Step] = []
    for step in reversed(range(steps)) if reverse else range(steps):
        entering = p.add(_at(into, step), p.mm(state, again))
        after, left, gates = lstm_step(entering, cell)
        done.append(Step(state, cell, gates, left, after))
        state, cell = after, left
    return done[::-1] if reverse else done


def _transposed(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return p.permute(e.cast(weight, dtype), [1, 0])


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    return p.cat([p.reshape(t, [1, *t.shape]) for t in parts], 0)


def _is_plain_lstm(x: Tensor, mode: int, batch_sizes: Sequence[int]) -> bool:
    return mode == LSTM and len(batch_sizes) == 0 and x.ndim == 3 and x.shape[0] > 0


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
    """One direction of one layer over [T, N, C]; the backward needs no workspace."""
    del bidirectional, batch_first, hidden_size, num_layers, train
    if not _is_plain_lstm(x, mode, batch_sizes):
        return NotImplemented
    weights = (weight_ih, weight_hh, bias_ih, bias_hh)
    done = _steps(x, weights, hx, cx, reverse, has_biases)
    last = done[0] if reverse else done[-1]
    states = [
        e.cast(p.reshape(t, list(s.shape)), x.dtype) for t, s in ((last.after, hx), (last.cell, cx))
    ]
    workspace = p.full([0], 0, dtype=torch.uint8, device=x.device)
    return e.cast(_stacked([s.after for s in done]), x.dtype), *states, workspace


@decomposition(*overloads("mkldnn_rnn_layer_backward", "default"))
def rnn_layer_backward(
    x: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor,
    bias_hh: Tensor,
    hx: Tensor,
    cx: Tensor,
    output: Tensor,
    hy: Tensor,
    cy: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Tensor,
) -> Any:
    """Gradients of the input, of four weights, of both first states; the steps run again."""
    del output, hy, cy, hidden_size, num_layers, train, bidirectional, batch_first
    if not _is_plain_lstm(x, mode, batch_sizes) or workspace.numel() != 0:
        return NotImplemented  # with a workspace, the forward was oneDNN's own
    weights = (weight_ih, weight_hh, bias_ih, bias_hh)
    done = _steps(x, weights, hx, cx, reverse, has_biases)
    dtype = done[0].after.dtype
    shape = list(done[0].after.shape)
    into, again = e.cast(weight_ih, dtype), e.cast(weight_hh, dtype)
    zero = p.full(shape, 0, dtype=dtype, device=x.device)
    dh = zero if grad_hy is None else p.reshape(e.cast(grad_hy, dtype), shape)
    dc = zero if grad_cy is None else p.reshape(e.cast(grad_cy, dtype), shape)
    gates: list[Tensor] = []
    for step in range(len(done)) if reverse else reversed(range(len(done))):
        at = done[step]
        if grad_output is not None:
            dh = p.add(dh, e.cast(_at(grad_output, step), dtype))
        slope, dc = _lstm_slopes(dh, dc, at.cell_before, at.cell, at.gates)
        dh = p.mm(slope, again)
        gates.append(slope)
    entered = _stacked(gates if reverse else gates[::-1])
    flat = _flat(entered)
    across = p.permute(flat, [1, 0])
    dx = p.reshape(p.mm(flat, into), list(x.shape))
    weight_grads = [
        p.mm(across, _flat(e.widen(x))),
        p.mm(across, _flat(_stacked([s.before for s in done]))),
        *[p.sum(flat, [0])] * 2,
    ]
    return (
        e.cast(dx, x.dtype),
        *(e.cast(g, w.dtype) for g, w in zip(weight_grads, weights, strict=True)),
        e.cast(p.reshape(dh, list(hx.shape)), hx.dtype),
        e.cast(p.reshape(dc, list(cx.shape)), cx.dtype),
    )
