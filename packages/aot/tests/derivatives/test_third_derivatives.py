"""Derivatives up to the third order, passes by some inputs, while results are kept or not."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.errors import Unsupported

Results = tuple[torch.Tensor, ...]


class Scaled(torch.autograd.Function):
    """A derivative of the user's, linear in the gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 2


class Shifted(Scaled):
    """One that is not."""

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] + 1


def square(x: torch.Tensor, w: torch.Tensor) -> Results:
    y = x * 2
    return y, y * y * w


def chain(x: torch.Tensor, w: torch.Tensor) -> Results:
    y = x * w
    z = y * y
    return y, z, z * y.cos()


def separate(x: torch.Tensor, w: torch.Tensor) -> Results:
    return x * x * w, x.sin()


def viewed(x: torch.Tensor, w: torch.Tensor) -> Results:
    y = (x * w).t()
    return y, y.sin() * x, y[:1]


def scaled(x: torch.Tensor, w: torch.Tensor) -> Results:
    y: torch.Tensor = Scaled.apply(x * w)
    return y, y.cos() * w


def single(x: torch.Tensor, w: torch.Tensor) -> Results:
    return ((x * w).sin() * x.square(),)


def outcome(
    call: Callable[..., Results], passes: tuple[str, ...], by: str, keep: bool
) -> list[Any]:
    """The gradients of all passes: each is of the sum of squares of those of the one before."""
    x, w = (torch.tensor([[0.5, -1.5], [2.0, 0.25]]).double() + n / 8 for n in range(2))
    x, w = x.requires_grad_(), w.requires_grad_()
    results = call(x, w)
    known = {"x": (x,), "w": (w,), "both": (x, w), "result": (results[0], x)}[by]
    loss = sum((n + 1) * result.square().sum() for n, result in enumerate(results))
    if not keep:
        del results
    found: list[Any] = []
    for at, way in enumerate(passes):
        more = at < len(passes) - 1
        if way == "grad":
            grads = torch.autograd.grad(loss, known, create_graph=more, allow_unused=True)
            found += grads
            found += [grad is not None and grad.requires_grad for grad in grads]
            loss = sum(grad.square().sum() for grad in grads if grad is not None)
        else:
            x.grad = w.grad = None
            torch.autograd.backward(
                loss, inputs=known[-1:] if way == "inputs" else None, create_graph=more
            )
            found += [x.grad, w.grad]
            loss = sum(leaf.grad.square().sum() for leaf in (x, w) if leaf.grad is not None)
    return found


WAYS = ("grad", "backward", "inputs")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("by", ["x", "w", "both", "result"])
@pytest.mark.parametrize(
    "fn", [square, chain, separate, viewed, scaled, single], ids=lambda fn: fn.__name__
)
@pytest.mark.filterwarnings("ignore:a derivative of a compiled:UserWarning")
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
def test_they_are_eagers(fn: Callable[..., Results], by: str) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    for count, keep in itertools.product((2, 3), (True, False)):
        for passes in itertools.product(WAYS, repeat=count):
            if by == "result" and (not keep or "backward" in passes or "inputs" in passes):
                continue
            case = passes, by, keep
            torch.testing.assert_close(
                outcome(compiled, *case),
                outcome(fn, *case),
                msg=lambda text, case=case: f"{case} {text}",
            )


def test_a_derivative_that_is_not_linear_is_not_run_in_parts() -> None:
    """Where a gradient by a result may be requested, or of one, the program runs as eager does."""

    def shifted(x: torch.Tensor) -> Results:
        y: torch.Tensor = Shifted.apply(x)
        return y, y.sin()

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(Unsupported, match=r"AO0166.*not linear in the gradient"):
        aot.aot_function(shifted, aot.run_as_is)(x)
    alone = aot.aot_function(lambda x: shifted(x)[1], aot.run_as_is)
    for call in (alone, lambda x: shifted(x)[1]):
        x = torch.ones(2, requires_grad=True)
        (first,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        torch.testing.assert_close(first, x.cos() + 1)
        torch.testing.assert_close(second, 1 - x.sin())


READ = {
    "compared": lambda x, w: w.masked_fill(x > 0, 0.5),
    "its sign": lambda x, w: w * x.sign(),
    "its place": lambda x, w: w.gather(1, x.argmax(1, keepdim=True)),
    "without history": lambda x, w: w * x.detach(),
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.filterwarnings("error")
def test_an_input_is_differentiated_by_that_is_read_without_a_derivative(read: str) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> Results:
        return x + x, READ[read](x, w) ** 3

    compiled = aot.aot_function(fn, aot.run_as_is)
    case = ("grad",) * 3, "result", True
    torch.testing.assert_close(outcome(compiled, *case), outcome(fn, *case))


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.filterwarnings("ignore:a derivative of a compiled:UserWarning")
def test_formulas_that_read_elements_have_other_results_than_traced_ones(zeros: int) -> None:
    """A product without zeros is derived by division, and its traced derivative by views."""

    def third(fn: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        w = torch.linspace(0.5, 1.5, 6).view(2, 3)
        w[0, :zeros] = 0
        given = [x.requires_grad_() for x in (w, torch.ones(2, 3))]
        found = list(torch.autograd.grad(fn(*given).sum(), given, create_graph=True))
        for last in (False, True):
            total = sum(x.square().sum() for x in found[-2:])
            found += torch.autograd.grad(total, given, create_graph=not last)
        return found

    products = [lambda w: w.prod(0), lambda w: w.prod(1, keepdim=True), lambda w: w.prod()]
    for product in products:

        def fn(w: torch.Tensor, x: torch.Tensor, of: Any = product) -> torch.Tensor:
            return (of(w) + x) ** 2

        torch.testing.assert_close(third(aot.aot_function(fn, aot.run_as_is)), third(fn))
