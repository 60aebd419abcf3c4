"""Recurrent layers of a GPU's library are refused by name; those that torch computes are traced."""

from __future__ import annotations

import contextlib
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.intercept.replaced_calls import RECURRENT, refuse_recurrent
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.mark.parametrize("acceptable", [True, False])
@pytest.mark.parametrize("function", sorted(RECURRENT, key=lambda f: f.__name__))
def test_by_cudnn(function: Any, acceptable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "is_acceptable", lambda tensor: acceptable)
    with FakeTensorMode():
        batch = torch.empty(3, 2, 4, device="cuda")
    refused = pytest.raises(aot.Unsupported, match="cuDNN computes whole")
    with refused if acceptable else contextlib.nullcontext():
        refuse_recurrent(function, batch)
    refuse_recurrent(function, torch.empty(3, 2, 4))


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_by_torch(layer: Any) -> None:
    module, x = layer(4, 3, 2, bidirectional=True), torch.randn(3, 2, 4)
    expected, _ = module(x)
    found, _ = aot.aot_module(module, aot.run_as_is)(x)
    torch.testing.assert_close(found, expected)
