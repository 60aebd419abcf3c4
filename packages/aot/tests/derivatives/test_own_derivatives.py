"""Derivatives of a user's that need not be linear in the gradient, in passes of higher order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

LINEAR: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "scaled": lambda g: g * 2 - g / 3,
    "of shape": lambda g: g.t().reshape(-1).flip(0).view(2, 2).t() + g.sum(),
    "product": lambda g: torch.stack([g @ g.new_ones(2, 2), g]).mean(0),
    "chosen": lambda g: torch.where(torch.eye(2).bool(), g, torch.zeros_like(g)),
    "nothing added": lambda g: g + torch.zeros(2, 2),
}
OTHER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "added": lambda g: g + 1,
    "taken from": lambda g: 1 - g,
    "ones added": lambda g: g + torch.ones(2, 2),
    "clamped": lambda g: g.clamp(-1, 1),
    "squared": lambda g: g * g,
    "sign": lambda g: g.sign() + g,
    "length": lambda g: g / (g.norm() + 1),
    "chosen by it": lambda g: torch.where(g > 0, g, torch.zeros_like(g)),
    "or one": lambda g: torch.where(torch.eye(2).bool(), g, 1.0),
}


def program(derivative: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.exp()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return derivative(grad)

    def fn(x: torch.Tensor) -> torch.Tensor:
        return Own.apply(x * 1).sin() * x  # type: ignore[no-any-return]

    return fn


def third(call: Callable[..., Any]) -> list[Any]:
    """Three passes, each through the results and through the gradients of those before."""
    x = torch.tensor([[0.1, -0.4], [0.7, 1.2]]).requires_grad_()
    out = call(x)
    found = [out]
    for _ in range(3):
        loss = (found[-1] * found[-1]).sum() + out.sum()
        found += torch.autograd.grad(loss, x, create_graph=True)
    return [each.detach() for each in found]


def gradients(call: Callable[..., Any], behind: str, second: str) -> list[Any]:
    x = torch.tensor([[0.1, -0.4], [0.7, 1.2]]).requires_grad_()
    out = call(x)
    loss = (out * out).sum() if behind == "curved" else out.sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    if second == "penalty":
        ((first * first).sum() + loss).backward()
    elif first.requires_grad:
        (first * first).sum().backward()
    return [first.detach(), x.grad]


CASES = [*itertools.product(("curved", "flat"), ("alone", "penalty"))]


def check_each_order(fn: Callable[..., Any]) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    for case in CASES:
        torch.testing.assert_close(gradients(compiled, *case), gradients(fn, *case))
    torch.testing.assert_close(third(compiled), third(fn))


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", LINEAR)
def test_parts_of_a_linear_one_add_up(name: str) -> None:
    check_each_order(program(LINEAR[name]))


@pytest.mark.parametrize("name", OTHER)
def test_one_that_is_not_is_never_run_of_parts(name: str) -> None:
    check_each_order(program(OTHER[name]))


class Straight(torch.autograd.Function):
    """Its derivative leads to what its function does not read."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x > 0).float() + 0.25

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return -grad, grad * 2


THROUGH: dict[str, Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "one result": lambda x, w: (Straight.apply(x * 1, w).exp(),),
    "by what is read": lambda x, w: (Straight.apply(w, x * 3).exp() * w,),
    "a result depended on": lambda x, w: (y := Straight.apply(x * 1, w), y.exp()),
    "two": lambda x, w: (Straight.apply(x, Straight.apply(w, x)).exp(), w.sin()),
}


@pytest.mark.parametrize("fn", THROUGH.values(), ids=list(THROUGH))
def test_a_second_derivative_goes_where_no_value_was_read(fn: Callable[..., Any]) -> None:
    outcomes = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        x, w = (torch.tensor([0.3 + n, -0.7]).requires_grad_() for n in range(2))
        loss = sum((each * each).sum() for each in call(x, w))
        first = torch.autograd.grad(loss, (x, w), create_graph=True)
        sum((each * each).sum() for each in first if each.requires_grad).backward()
        outcomes.append([*(each.detach() for each in first), x.grad, w.grad])
    torch.testing.assert_close(outcomes[1], outcomes[0])
