"""Models of libraries, compiled as the libraries' pages say, run on Flambeau once installed."""

import pytest
import torch

import flambeau
from benchmarks.zoo.torchvision_cpu import torchvision


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    flambeau.install()
    yield
    flambeau.uninstall()


def bert():
    torchvision()  # transformers imports it
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    return BertModel(BertConfig(vocab_size=32, num_hidden_layers=1, **sizes)).eval()


def by_forward(model):
    model.forward = torch.compile(model.forward, mode="reduce-overhead")
    return model, model.forward


def by_module(model):
    made = torch.compile(model)
    return made, made


def in_place(model):
    model.compile()
    return model, model._compiled_call_impl


@pytest.mark.parametrize("way", [by_forward, by_module, in_place])
def test_transformers(way):
    model = bert()
    inputs = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]])
    cases = [torch.ones_like(inputs), (inputs > 0).long()]
    with torch.no_grad():
        expected = [model(input_ids=inputs, attention_mask=mask) for mask in cases]
        called, compiled = way(model)
        for mask, eager in zip(cases, expected, strict=True):
            out = called(input_ids=inputs, attention_mask=mask)
            torch.testing.assert_close(out.last_hidden_state, eager.last_hidden_state)
            torch.testing.assert_close(out.pooler_output, eager.pooler_output)
    report = flambeau.report(compiled)
    assert report.graphs > 0
    assert report.faults == ()
