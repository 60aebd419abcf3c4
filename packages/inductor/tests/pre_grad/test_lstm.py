"""LSTMs stay library calls where eager calls the same kernel, and nowhere else."""

from __future__ import annotations

import operator

import pytest
import torch
from flambeau_inductor.pre_grad import lstm
from flambeau_inductor.pre_grad.lstm import keep_recurrent, lstm_by_cudnn, lstm_by_layers
from flambeau_inductor.runtime.gpu.cudnn_lstm import layout
from flambeau_inductor.runtime.operators import for_backward
from flambeau_inductor.runtime.operators import operator as library
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode


def _captured(net: nn.LSTM, x: Tensor, states: tuple[Tensor, Tensor]) -> fx.GraphModule:
    """The graph that capture makes of a call of `net`."""
    graph = fx.Graph()
    weights = net._flat_weights
    nodes = []
    for position, value in enumerate((x, *states, *weights)):
        nodes.append(graph.placeholder(f"a{position}"))
        nodes[-1].meta["val"] = value
    settings = (net.bias, net.num_layers, net.dropout, net.training, net.bidirectional)
    called = graph.call_function(
        torch.lstm, (nodes[0], tuple(nodes[1:3]), nodes[3:], *settings, net.batch_first)
    )
    graph.output(tuple(graph.call_function(operator.getitem, (called, k)) for k in range(3)))
    return fx.GraphModule(nn.Module(), graph)


def _inputs(net: nn.LSTM, **kind: torch.dtype) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    rows = net.num_layers * (2 if net.bidirectional else 1)
    x = torch.randn(3, 7, net.input_size, **kind)
    batch = x.shape[0] if net.batch_first else x.shape[1]
    states = [torch.randn(rows, batch, net.hidden_size, **kind) for _ in range(2)]
    return x, (states[0], states[1])


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_values_and_gradients_are_eagers(both: bool, batch_first: bool) -> None:
    net = nn.LSTM(5, 6, 2, bidirectional=both, batch_first=batch_first)
    x, states = _inputs(net)
    gm = _captured(net, x, states)
    assert keep_recurrent(gm) == 1
    found = gm(x, *states, *net._flat_weights)
    output, (hidden, cells) = net(x, states)
    for got, want in zip(found, (output, hidden, cells), strict=True):
        assert torch.equal(got, want)
        assert got.stride() == want.stride()
    got, want = (
        torch.autograd.grad(o.square().sum() + c.sum(), net._flat_weights)
        for o, c in ((found[0], found[2]), (output, cells))
    )
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize(
    "net",
    [
        nn.LSTM(5, 6, bias=False),
        nn.LSTM(5, 6, proj_size=3),
        nn.LSTM(5, 6, 2, dropout=0.5),
        nn.LSTM(5, 6).double(),
    ],
    ids=["without biases", "projected", "dropout", "float64"],
)
def test_what_the_fused_layer_does_not_do_is_left_alone(net: nn.LSTM) -> None:
    x, (hidden, cells) = _inputs(net, dtype=net.weight_ih_l0.dtype)
    if net.proj_size:
        hidden = hidden[..., : net.proj_size].contiguous()
    gm = _captured(net, x, (hidden, cells))
    assert keep_recurrent(gm) == 0
    assert not any(node.target is lstm_by_layers for node in gm.graph.nodes)


def test_without_the_library_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.LSTM(5, 6)
    gm = _captured(net, *_inputs(net))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert keep_recurrent(gm) == 0


def test_the_memory_of_the_workspace_reaches_the_backward() -> None:
    """Forward and backward run apart, without gradients: what passes between has 0 elements."""
    net = nn.LSTM(5, 6)
    x, (hidden, cells) = _inputs(net)
    settings = (False, [], 2, 6, 1, True, False, False, True)
    name = "aten.mkldnn_rnn_layer.default"
    leaves = (x.requires_grad_(), *net._flat_weights)
    output, _, _ = lstm_by_layers(
        x, (hidden, cells), net._flat_weights, True, 1, 0.0, True, False, False
    )
    want = torch.autograd.grad(output.sum(), leaves)
    with torch.no_grad():
        made = library(for_backward(name))(*leaves, hidden[0], cells[0], *settings)
        assert made[3].numel() == 0
        assert not any(t.requires_grad for t in made)
        found = library("aten.mkldnn_rnn_layer_backward.default")(
            *leaves, hidden[0], cells[0], *made[:3], torch.ones_like(made[0]), None, None,
            False, 2, 6, 1, True, True, False, [], False, made[3],
        )  # fmt: skip
    for got, expected in zip(found[:3], want[:3], strict=True):
        assert torch.allclose(got, expected)


class _Listing(TorchDispatchMode):
    """The operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.called.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_cudnns_lstm_is_one_call_forth_and_one_back(
    both: bool, batch_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By shape rules alone: no GPU is asked."""
    net = nn.LSTM(5, 6, 2, bidirectional=both, batch_first=batch_first)
    x, states = _inputs(net)
    want, (last, _) = net(x, states)
    gm = _captured(net, x, states)
    monkeypatch.setitem(lstm.WAYS, "cpu", (lambda call: (77,), lstm_by_cudnn))
    assert keep_recurrent(gm) == 1
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(t) for t in (x, *states, *net._flat_weights)]
        leaves = [t.detach().requires_grad_() for t in fakes]
        listing = _Listing()
        with listing:
            output, hidden, _ = gm(*leaves)
            slopes = torch.autograd.grad(output.sum() + hidden.sum(), leaves)
    ours = [name for name in listing.called if name.startswith("flambeau_inductor.")]
    assert ours == ["flambeau_inductor.lstm.default", "flambeau_inductor.lstm_backward.default"]
    assert (output.shape, hidden.shape) == (want.shape, last.shape)
    assert [t.shape for t in slopes] == [t.shape for t in fakes]
    turned = output.transpose(0, 1) if batch_first else output
    assert turned.is_contiguous()


def test_a_graph_with_autocast_is_left_alone() -> None:
    net = nn.LSTM(5, 6)
    gm = _captured(net, *_inputs(net))
    called = next(node for node in gm.graph.nodes if node.target is torch.lstm)
    with gm.graph.inserting_before(called):
        gm.graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu",))
    assert keep_recurrent(gm) == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("both", [False, True])
def test_cudnns_lstm_gives_what_eager_gives(both: bool, dtype: torch.dtype) -> None:
    net = nn.LSTM(32, 48, 2, bidirectional=both, batch_first=True).cuda().to(dtype)
    x, states = _inputs(net, dtype=dtype)
    x, states = x.cuda(), (states[0].cuda(), states[1].cuda())
    gm = _captured(net, x, states)
    assert keep_recurrent(gm) == 1
    found = gm(x, *states, *net._flat_weights)
    output, (hidden, cells) = net(x, states)
    for got, want in zip(found, (output, hidden, cells), strict=True):
        assert torch.equal(got, want) and got.stride() == want.stride()
    got, want = (
        torch.autograd.grad(o.float().square().sum() + c.float().sum(), net._flat_weights)
        for o, c in ((found[0], found[2]), (output, cells))
    )
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    total, offsets = layout(32, 48, 2, both, dtype, x.device)
    assert total >= sum(w.numel() for w in net._flat_weights) and len(offsets) == len(got)
