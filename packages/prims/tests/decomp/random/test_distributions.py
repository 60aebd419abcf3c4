"""Draws by `random="philox"`: moments of each distribution, and that the seed repeats them."""

import math

import pytest
import torch
from flambeau_prims import decompositions
from flambeau_prims.sweep.watch import WithWriting, watching

TABLE = WithWriting(decompositions(random="philox"))
N = 100_000


def mean_is(expected, tolerance):
    def check(x):
        assert abs(x.double().mean().item() - expected) < tolerance

    return check


def cauchy_quartiles(x):
    assert abs(x.median().item() - 1) < 0.05 and abs((x - 1).abs().median().item() - 2) < 0.06


def whole_numbers(x):
    mean_is(1 / 0.3, 0.05)(x)
    assert x.min() == 1 and torch.equal(x, x.round())


DRAWS = {
    "exponential": (lambda: torch.empty(N).exponential_(2.0), mean_is(0.5, 0.01)),
    "cauchy": (lambda: torch.empty(N).cauchy_(1, 2), cauchy_quartiles),
    "geometric": (lambda: torch.empty(N).geometric_(0.3), whole_numbers),
    "log_normal": (lambda: torch.empty(N).log_normal_(0, 0.5).log(), mean_is(0, 0.01)),
    "normal": (lambda: torch.normal(torch.full((N,), 2.0), 3.0), mean_is(2, 0.05)),
    "normal_of_stds": (
        lambda: torch.normal(0.0, torch.full((N,), 3.0, dtype=torch.float64)) ** 2,
        mean_is(9, 0.2),
    ),
    "normal_of_size": (lambda: torch.normal(1.0, 2.0, (N,)), mean_is(1, 0.05)),
    "bernoulli": (lambda: torch.empty(N).bernoulli_(torch.tensor(0.2)), mean_is(0.2, 0.01)),
    "multinomial": (
        lambda: torch.multinomial(torch.tensor([1.0, 0.0, 3.0]), N // 10, True),
        mean_is(1.5, 0.05),
    ),
    "dropout": (lambda: torch.nn.functional.dropout(torch.ones(N), 0.3), mean_is(1, 0.02)),
    "rrelu": (
        lambda: torch.nn.functional.rrelu(-torch.ones(N), 0.1, 0.3, training=True),
        mean_is(-0.2, 0.01),
    ),
}


@pytest.mark.parametrize("name", sorted(DRAWS))
def test_draws(name):
    draw, check = DRAWS[name]
    found = []
    for _ in range(2):
        torch.manual_seed(5)
        with watching(TABLE) as seen:
            found.append(draw())
        assert not seen.left and not seen.broken
    assert torch.equal(found[0], found[1])
    check(found[0])


def test_without_replacement():
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4]).expand(5000, 4)
    torch.manual_seed(0)
    with watching(TABLE) as seen:
        drawn = torch.multinomial(weights, 2)
    assert (drawn[:, 0] != drawn[:, 1]).all() and not seen.left
    first = torch.bincount(drawn[:, 0], minlength=4) / 5000
    assert torch.allclose(first, weights[0], atol=0.03)
    # the chance that 3 comes second: sum over i of w_i * w_3 / (1 - w_i)
    second = sum(w * 0.4 / (1 - w) for w in (0.1, 0.2, 0.3))
    assert math.isclose((drawn[:, 1] == 3).float().mean().item(), second, abs_tol=0.03)
