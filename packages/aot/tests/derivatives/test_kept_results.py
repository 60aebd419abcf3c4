"""Gradients by a result that its own operator keeps, as that of `exp`: they depend on it too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

T = torch.Tensor
F = torch.nn.functional
grad = torch.autograd.grad

PROGRAMS: dict[str, Callable[[T, T], T]] = {
    "exp": lambda x, w: (x * w).exp(),
    "of an input": lambda x, w: x.exp(),
    "sigmoid": lambda x, w: torch.sigmoid(x @ w),
    "sqrt": lambda x, w: (x * w).sqrt(),
    "softmax": lambda x, w: (x * w).softmax(-1),
    "log_softmax": lambda x, w: (x @ w).log_softmax(-1),
    "relu": lambda x, w: (x - w).relu(),
    "amax": lambda x, w: (x * w).amax(0),
    "norm": lambda x, w: (x * w).norm(dim=0),
    "logsumexp": lambda x, w: (x * w).logsumexp(0),
    "in place": lambda x, w: (x * w).exp_(),
    "in place, of a copy": lambda x, w: (x * w).clone().tanh_(),
    "power": lambda x, w: (x * 1) ** w,
    "inverse": lambda x, w: torch.linalg.inv(x @ w + torch.eye(3) * 4),
    "not kept": lambda x, w: x * w,
}


def _first(y: T, x: T, **options: Any) -> T:
    return grad(y.pow(2).sum(), x, create_graph=True, **options)[0]


def _hooked(y: T, x: T, w: T, seen: list[T]) -> Any:
    y.register_hook(lambda g: (seen.append(g.clone()), g * 3)[1])
    return grad(_first(y, x).sum(), [x, y], allow_unused=True)


def _retained(y: T, x: T, w: T, seen: list[T]) -> Any:
    y.retain_grad()
    y.pow(2).sum().backward(create_graph=True)
    assert x.grad is not None
    return grad(x.grad.sum(), [x, w], allow_unused=True), y.grad


def _third(y: T, x: T, w: T, seen: list[T]) -> Any:
    (second,) = grad(_first(y, x).pow(2).sum(), x, create_graph=True)
    return grad(second.pow(2).sum(), [x, y, w], allow_unused=True)


def _by_both(y: T, x: T, w: T, seen: list[T]) -> Any:
    first = grad(y.pow(3).sum(), [y, x], create_graph=True)
    return grad(first[0].sum() + first[1].sum(), [y, x, w], allow_unused=True)


USES: dict[str, Callable[[T, T, T, list[T]], Any]] = {
    "by it": lambda y, x, w, seen: grad(_first(y, x).sum(), y, allow_unused=True),
    "by all": lambda y, x, w, seen: grad(_first(y, x).sum(), [x, w, y], allow_unused=True),
    "backward": lambda y, x, w, seen: (_first(y, x).pow(2).sum().backward(), x.grad, w.grad),
    "hook": _hooked,
    "retain_grad": _retained,
    "third order": _third,
    "both": _by_both,
    "first order": lambda y, x, w, seen: grad(y.pow(2).sum(), [y, x], retain_graph=True),
}


def outcome(call: Callable[[T, T], T], use: str) -> list[T | bool]:
    torch.manual_seed(0)
    x, w = (torch.rand(3, 3).add_(0.4).requires_grad_() for _ in range(2))
    seen: list[T] = []
    found = torch.utils._pytree.tree_leaves(USES[use](call(x, w), x, w, seen))
    return [item.detach() if isinstance(item, T) else item for item in [*found, *seen]]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:a derivative of a compiled program runs eagerly")
@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_by_a_result_that_its_operator_keeps(name: str, use: str) -> None:
    compiled = aot.aot_function(PROGRAMS[name], aot.run_as_is)
    expected, given = outcome(PROGRAMS[name], use), outcome(compiled, use)
    assert [item is None for item in given] == [item is None for item in expected]
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)


def test_the_derivative_is_compiled_where_the_result_is_gone() -> None:
    compiled: Any = aot.aot_function(PROGRAMS["exp"], aot.run_as_is)
    x, w = (torch.rand(3, 3, requires_grad=True) for _ in range(2))
    loss = compiled(x, w).sum()
    (first,) = grad(loss, x, create_graph=True)
    assert first.grad_fn is not None and "CompiledGraph" in first.grad_fn.name()
    torch.testing.assert_close(grad(first.sum(), x)[0], (x * w).exp() * w * w)
