"""Recurrent cells and layers: ATen's whole ones against the formulas and against autograd."""

import pytest
import torch
from flambeau_prims import decompositions
from flambeau_prims.coverage import is_inert
from flambeau_prims.sweep.watch import WithWriting, watching

aten = torch.ops.aten
TABLE = WithWriting(decompositions())


def tensors(*shapes):
    g = torch.Generator().manual_seed(4)
    return [torch.randn(s, dtype=torch.float64, generator=g) for s in shapes]


def lstm(gates, cx):
    i, f, g, o = gates.chunk(4, 1)
    cy = f.sigmoid() * cx + i.sigmoid() * g.tanh()
    return o.sigmoid() * cy.tanh(), cy


def gru(left, right, hx):
    (ir, iz, inn), (hr, hz, hn) = left.chunk(3, 1), right.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (inn + r * hn).tanh()
    return n + z * (hx - n)


def test_lstm_cell_and_gradient():
    left, right, cx, b1, b2, gh, gc = tensors(
        (2, 12), (2, 12), (2, 3), (12,), (12,), (2, 3), (2, 3)
    )
    leaves = [t.clone().requires_grad_() for t in (left + right + b1 + b2, cx)]
    hy, cy = lstm(*leaves)
    expected = torch.autograd.grad([hy, cy], leaves, [gh, gc])
    cell = TABLE[aten._thnn_fused_lstm_cell.default]
    got_h, got_c, kept = cell(left, right, cx, b1, b2)
    torch.testing.assert_close((got_h, got_c), (hy.detach(), cy.detach()))
    back = TABLE[aten._thnn_fused_lstm_cell_backward_impl.default]
    gates, state, bias = back(gh, gc, cx, got_c, kept, True)
    torch.testing.assert_close((gates, state), expected)
    torch.testing.assert_close(bias, expected[0].sum(0))
    assert back(None, None, cx, got_c, kept, True) == (None, None, None)


def test_gru_cell_and_gradient():
    left, right, hx, b1, b2, gh = tensors((2, 9), (2, 9), (2, 3), (9,), (9,), (2, 3))
    leaves = [t.clone().requires_grad_() for t in (left + b1, right + b2, hx)]
    hy = gru(*leaves)
    expected = torch.autograd.grad(hy, leaves, gh)
    got, kept = TABLE[aten._thnn_fused_gru_cell.default](left, right, hx, b1, b2)
    torch.testing.assert_close(got, hy.detach())
    found = TABLE[aten._thnn_fused_gru_cell_backward.default](gh, kept, True)
    torch.testing.assert_close(tuple(found[:3]), expected)
    torch.testing.assert_close(found[3], expected[0].sum(0))
    torch.testing.assert_close(found[4], expected[1].sum(0))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_layers(kind, grad):
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(5, 4, num_layers=2, bidirectional=True, batch_first=True)
    x = torch.randn(3, 6, 5)

    def run():
        with torch.set_grad_enabled(grad):
            out = layer(x)[0]
            if not grad:
                return [out]
            return [out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))]

    expected = run()
    with watching(TABLE) as seen:
        got = run()
    for ours, eager in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
    left = [op for op in seen.left if not is_inert(op)]
    assert left == [] and not seen.broken
