"""Large results of training are used again by the next step, but never while somebody has them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.runtime import output_cache
from flambeau_inductor.wrapper import source as wrapper_source
from torch import Tensor

import flambeau

ROWS, COLUMNS = 1024, 1100


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (output_cache, wrapper_source):
        monkeypatch.setattr(module, "RETURNED", 1024)


def loss(x: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(x, target)


def given(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return torch.randn(ROWS, COLUMNS, requires_grad=True), torch.randint(0, COLUMNS, (ROWS,))


def eager(seed: int) -> Tensor:
    x, target = given(seed)
    loss(x, target).backward()
    assert x.grad is not None
    return x.grad


def close(got: Tensor | None, want: Tensor) -> bool:
    return got is not None and torch.allclose(got, want, rtol=1e-5, atol=1e-9)


def test_steps() -> None:
    compiled = flambeau.compile(loss)
    addresses = set()
    held = []
    for seed in range(6):
        x, target = given(seed)
        compiled(x, target).backward()
        assert close(x.grad, eager(seed))
        if seed < 2:
            held.append((seed, x.grad))
        else:
            addresses.add(x.grad.data_ptr())
    # what is held is what it was, and what is not is used again
    assert all(close(grad, eager(seed)) for seed, grad in held)
    assert len(addresses) < 4


def test_a_graph_that_is_retained() -> None:
    compiled = flambeau.compile(loss)
    x, target = given(0)
    out = compiled(x, target)
    out.backward(retain_graph=True)
    other, labels = given(1)
    compiled(other, labels).backward()
    x.grad = None
    out.backward()
    assert close(x.grad, eager(0)) and close(other.grad, eager(1))


def test_two_losses_before_their_gradients() -> None:
    compiled = flambeau.compile(loss)
    pairs = [given(seed) for seed in range(3)]
    losses = [compiled(x, target) for x, target in pairs]
    for (x, _), value in zip(pairs, losses, strict=True):
        value.backward()
        assert x.grad is not None
    assert all(close(x.grad, eager(seed)) for seed, (x, _) in enumerate(pairs))
