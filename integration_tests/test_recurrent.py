"""Recurrent layers through the whole road."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import flambeau


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_trains_as_in_eager_and_stays_a_library_call(layers: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.LSTM(8, 16, layers, batch_first=True))
    own = copy.deepcopy(net)
    compiled = flambeau.compile(own)
    x = torch.randn(2, 12, 4)
    for model in (net, compiled):
        model(x)[0].square().sum().backward()
    for got, want in zip(own.parameters(), net.parameters(), strict=True):
        assert got.grad is not None and want.grad is not None
        assert torch.allclose(got.grad, want.grad, rtol=1e-4, atol=1e-5)
    text = str(flambeau.report())
    assert f"{layers} x  aten.mkldnn_rnn_layer.default" in text
    assert f"{layers} x  aten.mkldnn_rnn_layer_backward.default" in text
    with torch.no_grad():
        assert torch.allclose(compiled(x)[0], net(x)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("both", "first"), [(False, True), (True, False)], ids=["one way", "both ways, time first"]
)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda each: each.__name__)
def test_masks_between_layers_are_those_of_eager_at_every_length(
    kind: type[nn.RNNBase], both: bool, first: bool
) -> None:
    torch.manual_seed(0)
    layers = kind(3, 4, 2, dropout=0.4, bidirectional=both, batch_first=first)
    compiled = flambeau.compile(layers, backend="aot_eager")
    for length in (2, 3, 4):
        seen = []
        for call in (layers, compiled):
            torch.manual_seed(1)
            shape = (2, length, 3) if first else (length, 2, 3)
            x = torch.ones(shape, requires_grad=True)
            result = call(x)[0]
            result.cos().sum().backward()
            seen.append((result, x.grad, result.stride(), torch.get_rng_state()))
        torch.testing.assert_close(seen[1], seen[0])
