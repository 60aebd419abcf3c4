"""LSTMs through the whole road."""

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
