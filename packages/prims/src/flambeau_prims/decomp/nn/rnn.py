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
from flambeau_prims.decomp.views.view import selected, sliced
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition, overloads

aten = torch.ops.aten
LSTM = 2
"""The number of oneDNN's plain LSTM among kinds of layers."""


def chunks(x: Tensor, count: int) -> list[Tensor]:
    """`count` equal parts along the last dimension."""
    size = x.shape[-1] // count
    return [sliced(x, x.ndim - 1, i * size, (i + 1) * size) for i in range(count)]


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    wide = e.widen(gates)
    return wide if bias is None else e.add(wide, e.cast(bias, wide.dtype))


def lstm_step(gates: Tensor, cx: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(hidden state, cell state, activated gates) from the sum of all that enters the gates."""
    i, f, g, o = chunks(gates, 4)
    i, f, g, o = p.sigmoid(i), p.sigmoid(f), p.tanh(g), p.sigmoid(o)
    cy = p.add(p.mul(f, cx), p.mul(i, g))
    return p.mul(o, p.tanh(cy)), cy, [i, f, g, o]


@by_name(aten._thnn_fused_lstm_cell.default)
def lstm_cell(a: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    gates = p.add(_biased(a.input_gates, a.input_bias), _biased(a.hidden_gates, a.hidden_bias))
    hy, cy, activated = lstm_step(gates, e.cast(a.cx, gates.dtype))
    dtype = a.input_gates.dtype
    return e.cast(hy, dtype), e.cast(cy, dtype), e.cast(p.cat(activated, 1), dtype)


@by_name(aten._thnn_fused_lstm_cell_backward_impl.default)
def lstm_cell_backward(a: Arguments) -> Any:
    """(gradient of the gates, of the cell state, of the bias)."""
    if a.grad_hy is None and a.grad_cy is None:
        return None, None, None
    old, new, kept = e.widen(a.cx, a.cy, a.workspace)
    zero = e.const(0.0, new)
    dh, dc = (zero if g is None else e.cast(g, new.dtype) for g in (a.grad_hy, a.grad_cy))
    gates, state = _lstm_slopes(dh, dc, old, new, chunks(kept, 4))
    bias = e.cast(p.sum(gates, [0]), a.cx.dtype) if a.has_bias else None
    return e.cast(gates, a.workspace.dtype), e.cast(state, a.cx.dtype), bias


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


@by_name(aten._thnn_fused_gru_cell.default)
def gru_cell(a: Arguments) -> tuple[Tensor, Tensor]:
    """The workspace holds r, z, n, hx and the hidden part of n, in torch's order."""
    ir, iz, inn = chunks(_biased(a.input_gates, a.input_bias), 3)
    hr, hz, hn = chunks(_biased(a.hidden_gates, a.hidden_bias), 3)
    state = e.widen(a.hx)
    r, z = p.sigmoid(p.add(ir, hr)), p.sigmoid(p.add(iz, hz))
    n = p.tanh(p.add(inn, p.mul(r, hn)))
    hy = p.add(n, p.mul(z, p.sub(state, n)))
    kept = p.cat([r, z, n, state, hn], 1)
    return e.cast(hy, a.hx.dtype), e.cast(kept, a.input_gates.dtype)


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
    return selected(x, 0, step)


def _steps(a: Arguments, weights: Sequence[Tensor], hx: Tensor, cx: Tensor) -> list[Step]:
    """All steps of one direction of an LSTM layer, in the order of time, computed wide."""
    steps, batch, _ = a.input.shape
    wide = e.widen(a.input)
    dtype = wide.dtype
    into = p.mm(_flat(wide), _transposed(weights[0], dtype))
    for bias in weights[2:] if a.has_biases else ():
        into = e.add(into, e.cast(bias, dtype))
    into = p.reshape(into, [steps, batch, into.shape[1]])
    again = _transposed(weights[1], dtype)
    state, cell = (p.reshape(e.cast(t, dtype), [batch, t.shape[-1]]) for t in (hx, cx))
    done: list[Step] = []
    for step in reversed(range(steps)) if a.reverse else range(steps):
        entering = p.add(_at(into, step), p.mm(state, again))
        after, left, gates = lstm_step(entering, cell)
        done.append(Step(state, cell, gates, left, after))
        state, cell = after, left
    return done[::-1] if a.reverse else done


def _transposed(weight: Tensor, dtype: torch.dtype) -> Tensor:
    return p.permute(e.cast(weight, dtype), [1, 0])


def _stacked(parts: Sequence[Tensor]) -> Tensor:
    return p.cat([p.reshape(t, [1, *t.shape]) for t in parts], 0)


def _is_plain_lstm(a: Arguments) -> bool:
    x = a.input
    return a.mode == LSTM and len(a.batch_sizes) == 0 and x.ndim == 3 and x.shape[0] > 0


@by_name(*overloads("mkldnn_rnn_layer", "default"))
def rnn_layer(a: Arguments) -> Any:
    """One direction of one layer over [T, N, C]; the backward needs no workspace."""
    if not _is_plain_lstm(a):
        return NotImplemented
    x, hx, cx = a.input, a.hx_, a.cx_
    done = _steps(a, (a.weight0, a.weight1, a.weight2, a.weight3), hx, cx)
    last = done[0] if a.reverse else done[-1]
    states = [
        e.cast(p.reshape(t, list(s.shape)), x.dtype) for t, s in ((last.after, hx), (last.cell, cx))
    ]
    workspace = e.filled(x, [0], 0, torch.uint8)
    return e.cast(_stacked([s.after for s in done]), x.dtype), *states, workspace


@by_name(*overloads("mkldnn_rnn_layer_backward", "default"))
def rnn_layer_backward(a: Arguments) -> Any:
    """Gradients of the input, of four weights, of both first states; the steps run again."""
    if not _is_plain_lstm(a) or a.workspace.numel() != 0:
        return NotImplemented  # with a workspace, the forward was oneDNN's own
    x, hx, cx = a.input, a.hx_, a.cx_tmp
    weights = (a.weight1, a.weight2, a.weight3, a.weight4)
    done = _steps(a, weights, hx, cx)
    dtype = done[0].after.dtype
    shape = list(done[0].after.shape)
    into, again = e.cast(weights[0], dtype), e.cast(weights[1], dtype)
    zero = e.filled(x, shape, 0, dtype)
    dh, dc = (
        zero if g is None else p.reshape(e.cast(g, dtype), shape) for g in (a.grad_hy, a.grad_cy)
    )
    gates: list[Tensor] = []
    for step in range(len(done)) if a.reverse else reversed(range(len(done))):
        at = done[step]
        if a.grad_output is not None:
            dh = p.add(dh, e.cast(_at(a.grad_output, step), dtype))
        slope, dc = _lstm_slopes(dh, dc, at.cell_before, at.cell, at.gates)
        dh = p.mm(slope, again)
        gates.append(slope)
    entered = _stacked(gates if a.reverse else gates[::-1])
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
