"""torch.distributions with checked arguments: one graph, which raises what eager raises."""

import pytest
import torch
from torch import distributions as d


@pytest.fixture(autouse=True)
def checked(monkeypatch):
    """The checks are on, as at the start: a call of torch's `map` or `scan` switches them off."""
    monkeypatch.setattr(d.Distribution, "_validate_args", True)


def kl(t):
    return d.kl_divergence(d.Normal(t, 1.0), d.Normal(0.0, 2.0))


@pytest.mark.parametrize(
    "fn",
    [
        lambda t: (d.Normal(t, torch.ones(3)).log_prob(t + 1), d.Normal(t, 1.0).entropy()),
        lambda t: d.Categorical(logits=t).log_prob(torch.tensor(1)),
        lambda t: d.Bernoulli(logits=t).log_prob(torch.ones(3)),
        lambda t: d.Normal(t, 1.0).rsample().shape,
        lambda t: d.Independent(d.Normal(t, 1.0), 1).log_prob(t),
        lambda t: d.Beta(t.exp(), t.exp()).mean,
        lambda t: d.Laplace(t, 1.0).cdf(t),
        kl,
    ],
)
def test_one_graph(one_graph, fn):
    one_graph(fn)


@pytest.fixture
def one_graph(capture, backend, same):
    def run(fn):
        t = torch.tensor([0.5, 1.0, -2.0])
        fn(t)  # torch remembers which function is right for a pair of classes
        compiled = capture(fn)
        for _ in range(2):
            same(compiled(t), fn(t))
        assert len(backend) == 1

    return run


@pytest.mark.parametrize("bad", [float("nan"), -1.0])
def test_what_is_not_allowed_raises_when_the_graph_runs(capture, backend, bad):
    def fn(scale):
        return d.Normal(torch.zeros(3), scale).log_prob(torch.zeros(3))

    compiled = capture(fn)
    compiled(torch.ones(3))
    wrong = torch.tensor([1.0, bad, 1.0])
    with pytest.raises(ValueError, match=r"Expected parameter scale .* of distribution Normal"):
        compiled(wrong)
    with pytest.raises(ValueError, match=r"Expected parameter scale .* of distribution Normal"):
        fn(wrong)
    compiled(torch.ones(3))
    assert len(backend) == 1


def test_a_value_outside_of_the_support(capture):
    def fn(value):
        return d.Bernoulli(torch.full((3,), 0.5)).log_prob(value)

    compiled = capture(fn)
    compiled(torch.ones(3))
    with pytest.raises(ValueError, match="Expected value argument"):
        compiled(torch.full((3,), 0.3))
