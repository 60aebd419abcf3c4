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


OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "one gradient a multiple of the other": lambda x, w: (x + 2 * w).sin(),
    "both the same": lambda x, w: (x + w).sin(),
    "a part": lambda x, w: (x[:2] + w[1:] * x[:2]).exp(),
    "products": lambda x, w: (x * w).sin() * x,
    "apart": lambda x, w: x.sin() + w.cos(),
    "a random one": lambda x, w: torch.nn.functional.dropout(x + 2 * w, 0.5).sin(),
}


def retained(gradients: list[Tensor]) -> list[Any]:
    gradients[0].retain_grad()
    gradients[1].square().sum().backward(retain_graph=True)
    return [gradients[0].grad]


def hooked(gradients: list[Tensor]) -> list[Any]:
    seen: list[Tensor] = []
    gradients[0].register_hook(lambda g: seen.append(g.clone()) or g * 2)  # type: ignore[func-returns-value]
    (gradients[0].sum() + gradients[1].square().sum()).backward(retain_graph=True)
    return seen


def by_the_other(gradients: list[Tensor]) -> list[Any]:
    return list(torch.autograd.grad(gradients[1].square().sum(), gradients[0], allow_unused=True))


def differentiated(gradients: list[Tensor]) -> list[Any]:
    gradients[0].retain_grad()
    gradients[1].square().sum().backward(create_graph=True)
    return [gradients[0].grad]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("ask", [retained, hooked, by_the_other, differentiated])
@pytest.mark.parametrize("program", OF_TWO)
def test_gradients_on_which_others_depend(program: str, ask: Any, around: bool) -> None:
    """What is asked of a gradient, which another one of the same pass is computed from: the
    derivative of the derivative runs eagerly then, `around` in a compiled function as well."""

    def outcome(function: Any, wrap: Any) -> Any:
        def run(x: Tensor, w: Tensor) -> Any:
            result = function(x, w)
            gradients = [*torch.autograd.grad(result.sum(), (x, w), create_graph=True)]
            return result, gradients, ask(gradients)

        torch.manual_seed(0)
        x = torch.tensor([0.5, 1.0, 2.0], requires_grad=True)
        w = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
        result, gradients, found = wrap(run)(x, w)
        values = [result, *gradients, *found, x.grad, w.grad]
        return [None if each is None else each.detach() for each in values]

    def compiled(function: Any) -> Any:
        return flambeau.compile(function, backend="aot_eager")

    expected = outcome(OF_TWO[program], lambda run: run)
    found = outcome(compiled(OF_TWO[program]), compiled if around else lambda run: run)
    torch.testing.assert_close(found, expected)
