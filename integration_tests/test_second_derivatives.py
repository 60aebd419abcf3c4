"""Second derivatives across a compiled function: eager's, whatever the derivative needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import flambeau

Backward = Callable[[Any, Tensor], Tensor]


def plain(ctx: Any, g: Tensor) -> Tensor:
    return g * 2 * ctx.saved_tensors[0]


def writing(ctx: Any, g: Tensor) -> Tensor:
    g.mul_(2)
    return g * ctx.saved_tensors[0]


BACKWARDS: dict[str, Backward] = {
    "plain": plain,
    "writes to its gradient": writing,
    "once": once_differentiable(plain),
    "once, writing": once_differentiable(writing),
}


def square(backward: Backward) -> Any:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x**2

    Square.backward = staticmethod(backward)  # type: ignore[method-assign,assignment]
    return Square


PROGRAMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "alone": lambda f, x: f.apply(x),
    "beside": lambda f, x: f.apply(x * 1) + x**2,
    "inner": lambda f, x: f.apply(x.exp()) ** 2,
    "twice": lambda f, x: f.apply(f.apply(x * 1) * 1),
}

LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "constant": lambda y: (y * 3).sum(),
    "with a history": lambda y: (y * y).sum(),
}


def by_grad(first: Tensor, x: Tensor) -> Any:
    return torch.autograd.grad(first.pow(2).sum(), x, allow_unused=True)[0]


def by_backward(first: Tensor, x: Tensor) -> Any:
    first.pow(2).sum().backward()
    return x.grad


def outcome(function: Any, loss: Any, second: Any) -> Any:
    x = torch.tensor([0.5, 1.0, -2.0], requires_grad=True)
    try:
        (first,) = torch.autograd.grad(loss(function(x)), x, create_graph=True)
        return first.detach().clone(), second(first, x)
    except RuntimeError as error:
        return type(error), str(error)[:60]


@pytest.mark.filterwarnings("ignore::flambeau.FlambeauWarning")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backward", BACKWARDS)
def test_second_derivatives_are_those_of_eager(program: str, backward: str) -> None:
    kind = square(BACKWARDS[backward])
    function = lambda x: PROGRAMS[program](kind, x)  # noqa: E731
    compiled = flambeau.compile(function, backend="aot_eager")
    for loss in LOSSES.values():
        for second in (by_grad, by_backward):
            got, want = (outcome(each, loss, second) for each in (compiled, function))
            if isinstance(want[0], type):
                assert got == want
            else:
                torch.testing.assert_close(got, want)


def test_a_derivative_that_runs_eagerly_is_told() -> None:
    kind = square(once_differentiable(plain))
    compiled = flambeau.compile(lambda x: kind.apply(x.exp()) ** 2, backend="aot_eager")
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(flambeau.FlambeauWarning, match="once_differentiable"):
        torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    assert "once_differentiable" in str(flambeau.report())
