"""Backends of other engines: right answers where one is here, a sentence where it is not."""

import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import flambeau
from flambeau.errors import BackendMissing, FlambeauWarning


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = F.gelu(self.norm(self.conv(x)))
        return {"logits": self.head(y.mean((2, 3))), "shape": y.shape[1]}


def answers(backend, training=False):
    torch.manual_seed(0)
    model, x = Model().train(training), torch.randn(2, 3, 8, 8)
    compiled = flambeau.compile(model, backend=backend)
    return model, compiled, x


def test_every_name_says_what_it_needs():
    names = {str(each): each for each in flambeau.list_backends()}
    assert names["inductor"].available
    assert not names["inductor"].needs
    for name in ("tensorrt", "openxla", "ipex", "nvfuser", "onnxrt", "cudagraphs"):
        assert names[name].needs
        assert names[name].about


@pytest.mark.parametrize("name", ["tensorrt", "openxla", "ipex", "nvfuser", "onnxrt", "cudagraphs"])
def test_what_is_not_here_is_one_clear_sentence(name):
    known = {str(each): each for each in flambeau.list_backends()}[name]
    if known.available:
        pytest.skip(f"what {name} needs is here")
    with pytest.raises(BackendMissing, match=f"backend '{name}' needs .*, which is not here"):
        flambeau.compile(lambda x: x + 1, backend=name)


@pytest.mark.parametrize("backend", ["ts", "ofi", "onnxrt"])
def test_inference_is_that_of_eager(backend):
    if backend == "onnxrt":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    model, compiled, x = answers(backend)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(
                compiled(x)["logits"], model(x)["logits"], rtol=1e-4, atol=1e-5
            )
    report = flambeau.report(compiled)
    assert report.fallbacks == ()
    assert report.graphs == 1


def test_ts_trains():
    torch.manual_seed(0)
    model, compiled, x = answers("ts", training=True)
    before = model.norm.num_batches_tracked.clone()
    compiled(x)["logits"].square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    assert model.norm.num_batches_tracked == before + 1
    torch.manual_seed(0)
    again = Model()
    again(x)["logits"].square().sum().backward()
    for own, wanted in zip(grads, (p.grad for p in again.parameters()), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.norm.running_mean, again.norm.running_mean)


@pytest.mark.parametrize("backend", ["ofi", "onnxrt"])
def test_gradients_are_left_to_eager_with_a_reason(backend):
    if backend == "onnxrt":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
    model, compiled, x = answers(backend)
    with pytest.warns(FlambeauWarning, match=r"needs gradients"):
        compiled(x)["logits"].sum().backward()
    assert model.head.weight.grad is not None
    assert len(flambeau.report(compiled).fallbacks) == 1


def test_a_mode_in_the_graph_is_not_lost():
    weight = torch.randn(3, requires_grad=True)

    def part(x):
        with torch.no_grad():
            kept = x * weight
        return kept + weight

    with pytest.warns(FlambeauWarning, match="enters a mode"):
        found = flambeau.compile(part, backend="ts")(torch.ones(3))
    found.sum().backward()
    torch.testing.assert_close(weight.grad, torch.ones(3))


def test_a_package_is_called_as_it_documents(monkeypatch):
    """With a stand-in for the package: it gets the graph and the inputs, and its result runs."""
    seen = []

    def extract(gm, inputs):
        seen.append((gm, inputs))
        return gm.forward

    for name in ("torch_xla", "torch_xla.core", "torch_xla.core.dynamo_bridge"):
        module = types.ModuleType(name)
        module.__spec__ = types.SimpleNamespace(name=name)
        module.extract_compiled_graph = extract
        monkeypatch.setitem(sys.modules, name, module)
    x = torch.randn(3)
    compiled = flambeau.compile(lambda x: x.sin() + 1, backend="openxla")
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    ((gm, inputs),) = seen
    assert isinstance(gm, torch.fx.GraphModule)
    assert inputs[0] is x
