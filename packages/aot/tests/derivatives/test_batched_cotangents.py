"""Backward passes inside of `vmap`: eager's gradients for every sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.autograd import functional, grad

Program = Callable[[torch.Tensor], torch.Tensor]

PROGRAMS: dict[str, Program] = {
    "a product": lambda x: x @ torch.ones(3, 2),
    "pointwise": lambda x: (x.sin() * x).tanh(),
    "its result": lambda x: x.exp(),
    "a softmax": lambda x: x.softmax(-1),
    "sums": lambda x: (x * x).cumsum(0),
    "a view": lambda x: (x * 2)[:, 1:],
    "a part written to": lambda x: (x * 2).index_fill(0, torch.tensor([0]), 3.0),
    "in place": lambda x: (x * 2).exp_() + x,
    "indices": lambda x: x[torch.tensor([0, 1, 0])] * x[:1],
    "a number": lambda x: (x**3).sum(),
    "a norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "a choice": lambda x: torch.where(x > 0, x, x.abs().sqrt()),
}


def batched(call: Program, x: torch.Tensor) -> Any:
    y = call(x)
    return grad(y, x, torch.rand(4, *y.shape), is_grads_batched=True)


def kept(call: Program, x: torch.Tensor) -> Any:
    y = call(x)
    seeds = torch.rand(2, *y.shape)
    first = grad(y, x, seeds, is_grads_batched=True, retain_graph=True)
    return first, grad(y, x, seeds, is_grads_batched=True), None


def one_sample(call: Program, x: torch.Tensor) -> Any:
    y = call(x)
    return grad(y, x, torch.rand(1, *y.shape), is_grads_batched=True)


def no_sample(call: Program, x: torch.Tensor) -> Any:
    y = call(x)
    return torch.vmap(lambda v: grad(y, x, v)[0])(torch.rand(0, *y.shape))


def mapped(call: Program, x: torch.Tensor) -> Any:
    y = call(x)
    return torch.vmap(lambda v: grad(y, x, v, retain_graph=True)[0])(torch.rand(3, *y.shape))


def mapped_twice(call: Program, x: torch.Tensor) -> Any:
    y = call(x)
    inner = torch.vmap(lambda v: grad(y, x, v, retain_graph=True)[0], in_dims=min(1, y.ndim))
    return torch.vmap(inner)(torch.rand(2, *y.shape[:1], 3, *y.shape[1:]))


def jacobian(call: Program, x: torch.Tensor) -> Any:
    return functional.jacobian(call, x, vectorize=True)


def differentiated(call: Program, x: torch.Tensor) -> Any:
    y = call(x)
    seeds = torch.rand(3, *y.shape)
    (first,) = grad(y, x, seeds, is_grads_batched=True, create_graph=True)
    second = grad(first.square().sum() + y.sum(), x, allow_unused=True)
    return first, second


def hessian(call: Program, x: torch.Tensor) -> Any:
    return functional.hessian(lambda x: call(x).square().sum(), x, vectorize=True)


WAYS = (batched, kept, one_sample, mapped, mapped_twice, jacobian, differentiated, hessian)


def outcome(call: Program, way: Callable[..., Any]) -> Any:
    torch.manual_seed(3)
    x = torch.randn(2, 3, dtype=torch.float32).requires_grad_()
    try:
        return way(call, x)
    except (RuntimeError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_gradients_are_those_of_eager(name: str) -> None:
    compiled = aot.aot_function(PROGRAMS[name], aot.run_as_is)
    for way in (*WAYS, no_sample):
        expected, given = outcome(PROGRAMS[name], way), outcome(compiled, way)
        if isinstance(expected, type) and not isinstance(given, type):
            continue  # torch has no rule for a batch of this
        assert isinstance(given, type) == isinstance(expected, type), (way.__name__, given)
        if not isinstance(given, type):
            torch.testing.assert_close(given, expected)


def test_several_results_one_of_them_unused() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sin(), (x * x).sum(0), x.detach() * 2

    def way(call: Any, x: torch.Tensor) -> Any:
        first, second, _ = call(x)
        seeds = torch.rand(4, *first.shape), torch.rand(4, *second.shape)
        alone = [
            grad(out, x, seed, is_grads_batched=True, retain_graph=True)
            for out, seed in zip((first, second), seeds, strict=True)
        ]
        return alone, grad((first, second), x, seeds, is_grads_batched=True)

    compiled = aot.aot_function(program, aot.run_as_is)
    torch.testing.assert_close(outcome(compiled, way), outcome(program, way))
