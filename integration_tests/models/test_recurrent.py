"""Recurrent layers through the whole road."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

import flambeau


@pytest.mark.sweep(2)
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


@pytest.mark.sweep(2)
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


def _calls(layer: nn.RNNBase, order: bool, total: int | None) -> Callable[..., Any]:
    first = layer.batch_first

    def fn(x: torch.Tensor, lengths: Any) -> Any:
        packed = rnn.pack_padded_sequence(x, lengths, first, enforce_sorted=order)
        packed, state = layer(packed)
        out, lengths = rnn.pad_packed_sequence(packed, first, 0.5, total)
        return (out, lengths, *(state if isinstance(state, tuple) else (state,)))

    return fn


def _ran(fn: Any, layer: nn.Module, x: torch.Tensor, lengths: Any) -> Any:
    x = x.clone().requires_grad_()
    layer.zero_grad()
    torch.manual_seed(1)
    found = fn(x, lengths)
    sum(y.cos().sum() for y in found if y.requires_grad).backward()
    grads = [x.grad, *(weight.grad for weight in layer.parameters())]
    return found, [y.stride() for y in found], [*map(torch.clone, grads)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(
    ("kind", "backend"),
    [(nn.LSTM, "inductor"), (nn.GRU, "aot_eager"), (nn.RNN, "aot_eager")],  # one operator for all
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_packed_sequences_are_one_graph(kind: type[nn.RNNBase], backend: str, layers: int) -> None:
    """Of every number of lengths, whatever they are; the batch and its steps are open."""
    drawn = random.Random(f"{kind.__name__} {backend} {layers}")
    torch.manual_seed(0)
    order, both, first = (drawn.random() < 0.5 for _ in range(3))
    drop = drawn.choice((0.0, 0.4)) if layers > 1 else 0.0
    layer = kind(3, 4, layers, dropout=drop, bidirectional=both, batch_first=first)
    total = None if layer.dropout else 9  # no call that has drawn is run again
    fn = _calls(layer, order, total)
    compiled = flambeau.compile(fn, backend=backend)
    for batch, steps in ((3, 6), (3, 8), (4, 7), (2, 5)):
        lengths = [drawn.randint(1, steps) for _ in range(batch)]
        given = torch.tensor(sorted(lengths, reverse=True) if order else lengths)
        x = torch.randn(*((batch, steps) if first else (steps, batch)), 3)
        want, got = (_ran(each, layer, x, given) for each in (fn, compiled))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    report = flambeau.report(compiled)
    assert (report.breaks, report.narrowed) == ((), ()) and report.graphs <= 3, str(report)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda each: each.__name__)
def test_an_open_number_of_steps_is_one_graph(
    kind: type[nn.RNNBase], first: bool, backend: str
) -> None:
    torch.manual_seed(0)
    layer = kind(3, 4, bidirectional=not first, batch_first=first)

    def fn(x: torch.Tensor) -> Any:
        out, state = layer(x)
        return (out, *(state if isinstance(state, tuple) else (state,)))

    compiled = flambeau.compile(fn, backend=backend)
    for steps in (4, 6, 9, 3):
        x = torch.randn(*((2, steps) if first else (steps, 2)), 3)
        want, got = (_ran(lambda x, _, fn=each: fn(x), layer, x, None) for each in (fn, compiled))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert flambeau.report(compiled).graphs == 2


def test_a_packed_sequence_is_differentiated_twice() -> None:
    torch.manual_seed(0)
    layer = nn.GRU(3, 4)
    fn = _calls(layer, True, None)
    compiled = flambeau.compile(fn, backend="aot_eager")
    seen = []
    for each in (fn, compiled):
        torch.manual_seed(1)
        x = torch.randn(5, 2, 3, requires_grad=True)
        out = each(x, torch.tensor([5, 3]))[0]
        (grad,) = torch.autograd.grad(out.cos().sum(), x, create_graph=True)
        seen.append(torch.autograd.grad(grad.square().sum(), [x, *layer.parameters()]))
    torch.testing.assert_close(seen[1], seen[0])


def test_autocast_around_a_packed_sequence_is_eagers() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(3, 4)
    fn = _calls(layer, True, None)
    compiled = flambeau.compile(fn, backend="aot_eager")
    x = torch.randn(5, 2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        want, got = (each(x, torch.tensor([5, 3])) for each in (fn, compiled))
    torch.testing.assert_close(got, want)
