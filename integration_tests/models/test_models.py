"""Two real architectures through every backend: a sentence encoder and a CNN in training."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import flambeau


@pytest.fixture(scope="module")
def encoder():
    """MiniLM's architecture at a fraction of its size, from its configuration alone."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.BertModel(config).eval()


def embed(model, input_ids, attention_mask):
    hidden = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
    mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
    return F.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=-1)


def tokens(rows=3, length=16):
    ids = torch.randint(0, 200, (rows, length))
    mask = torch.ones_like(ids)
    mask[1:, length // 2 :] = 0
    return ids, mask


def test_the_encoder_is_one_graph(encoder, backend):
    compiled = flambeau.compile(embed, backend=backend, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            ids, mask = tokens()
            torch.testing.assert_close(compiled(encoder, ids, mask), embed(encoder, ids, mask))
    report = flambeau.report(compiled)
    assert (report.graphs, report.fallbacks, report.internal_errors) == (1, (), ())


def test_another_length_is_another_graph(encoder):
    compiled = flambeau.compile(embed, backend="aot_eager")
    with torch.no_grad():
        for length in (16, 24, 16):
            ids, mask = tokens(length=length)
            torch.testing.assert_close(compiled(encoder, ids, mask), embed(encoder, ids, mask))
    assert flambeau.report(compiled).graphs == 2


class Cnn(nn.Module):
    """Convolutions with batch norm, pooling, a linear layer."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        )  # fmt: skip
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


def loss_of(model, images, labels):
    return F.cross_entropy(model(images), labels)


def train(loss, steps=20):
    """The losses, the gradients of the first step, and the state at the end."""
    torch.manual_seed(1)
    model = Cnn()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    curve, gradients = [], []
    for step in range(steps):
        images, labels = torch.randn(16, 1, 8, 8), torch.randint(10, (16,))
        optimizer.zero_grad()
        value = loss(model, images, labels)
        value.backward()
        if step == 0:
            gradients = [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        curve.append(value.item())
    return curve, gradients, model.state_dict()


@pytest.fixture(scope="module")
def eager_run():
    return train(loss_of)


def test_twenty_steps_follow_eager(backend, eager_run):
    curve, gradients, state = eager_run
    compiled = flambeau.compile(loss_of, backend=backend, fullgraph=True)
    own_curve, own_gradients, own_state = train(compiled)
    torch.testing.assert_close(own_gradients, gradients, rtol=1e-4, atol=1e-5)
    assert own_curve == pytest.approx(curve, abs=2e-3)
    tracked = "features.1.num_batches_tracked"
    assert own_state[tracked] == state[tracked] == 20
    torch.testing.assert_close(
        own_state["features.1.running_mean"], state["features.1.running_mean"], rtol=0, atol=1e-3
    )
    report = flambeau.report(compiled)
    assert (report.graphs, report.fallbacks) == (1, ())


def test_training_and_evaluation_are_two_graphs(backend):
    model = Cnn()
    reference = copy.deepcopy(model)
    compiled = flambeau.compile(model, backend=backend)
    x = torch.randn(4, 1, 8, 8)
    for training in (True, False, True):
        model.train(training)
        reference.train(training)
        torch.testing.assert_close(compiled(x), reference(x), rtol=1e-4, atol=1e-5)
    assert flambeau.report(compiled).graphs == 2
