"""Forward-mode differentiation across a compiled function: eager's tangents, or an error that says
that one would be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

import flambeau

Function = Callable[..., Any]
Driver = Callable[[Function, Tensor, Tensor], Any]


def several(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin() * 2, x.view(-1).exp().sum()


def written(x: Tensor) -> Tensor:
    y = x.clone()
    y[0] = y[1] * 3
    return y


def broken(x: Tensor) -> Tensor:
    y = x.cos()
    print(end="")
    flambeau.graph_break()
    return y * x


FUNCTIONS: dict[str, Function] = {
    "pointwise": lambda x: x.sin() * 2,
    "several": several,
    "written": written,
    "broken": broken,
    "module": nn.Linear(4, 4),
}


def tangents(result: Any) -> list[tuple[Tensor, Tensor | None]]:
    return [tuple(forward_ad.unpack_dual(item)) for item in _tensors(result)]


def _tensors(result: Any) -> Iterator[Tensor]:
    yield from (result,) if isinstance(result, Tensor) else result


def by_dual(f: Function, x: Tensor, t: Tensor) -> Any:
    with forward_ad.dual_level():
        return tangents(f(forward_ad.make_dual(x, t)))


def that_requires_grad(f: Function, x: Tensor, t: Tensor) -> Any:
    """Forward over reverse."""
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), t)
        total = sum(item.sum() for item in _tensors(f(dual)))
        return tangents(torch.autograd.grad(total, dual))


def by_jvp(f: Function, x: Tensor, t: Tensor) -> Any:
    return torch.func.jvp(f, (x,), (t,))


def of_a_parameter(f: Function, x: Tensor, t: Tensor) -> Any:
    """What is read besides the arguments has the tangent."""
    scale = x.clone()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(scale, t)
        return tangents(f(dual * x))


DRIVERS: dict[str, Driver] = {
    "dual": by_dual,
    "forward over reverse": that_requires_grad,
    "jvp": by_jvp,
    "inner": of_a_parameter,
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_are_those_of_eager(name: str, driver: str) -> None:
    function, drive = FUNCTIONS[name], DRIVERS[driver]
    compiled = flambeau.compile(function)
    x, t = torch.randn(4, 4), torch.randn(4, 4)
    plain = function(x)
    want = drive(function, x, t)
    for _ in range(2):  # before the function was compiled, and after
        torch.testing.assert_close(drive(compiled, x, t), want)
        torch.testing.assert_close(compiled(x), plain)


def test_a_level_inside_of_the_function() -> None:
    def derivative(x: Tensor, t: Tensor) -> Any:
        with forward_ad.dual_level():
            return tangents(x.exp() * forward_ad.make_dual(x, t).sin())

    x, t = torch.randn(3), torch.randn(3)
    got, want = flambeau.compile(derivative)(x, t), derivative(x, t)
    torch.testing.assert_close(got, want)


def test_the_reason_is_named() -> None:
    compiled = flambeau.compile(lambda x: x * 2, fullgraph=True)
    with forward_ad.dual_level(), pytest.raises(flambeau.Unsupported, match="FB0027"):
        compiled(forward_ad.make_dual(torch.ones(2), torch.ones(2)))


@pytest.mark.filterwarnings("ignore:a derivative of a compiled program runs eagerly")
def test_a_gradient_has_the_tangent_that_its_cotangent_brings() -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (x * y).sin(), y.exp() * x, (x * y).sin().sum()

    found = []
    for call in (fn, flambeau.compile(fn)):
        x, y = (torch.tensor([0.5, 2.0]).mul(n).requires_grad_() for n in (1, 2))
        results = call(x, y)
        with forward_ad.dual_level():
            given = forward_ad.make_dual(torch.ones(2), torch.tensor([2.0, 3.0]))
            for each in (0, 1):
                own = torch.autograd.grad(results[each], (x, y), given, retain_graph=True)
                found.append([tuple(forward_ad.unpack_dual(g)) for g in own])
            found.append(torch.autograd.grad(results[2], (x, y)))  # none, and compiled
    torch.testing.assert_close(found[3:], found[:3])


def test_a_gradient_with_a_tangent_is_refused_where_the_program_cannot_run_again() -> None:
    x = torch.ones(3, requires_grad=True)
    options = aot.Options(higher_order=False)
    y = aot.aot_function(lambda x: x.sin() * x, aot.run_as_is, options=options)(x)
    with forward_ad.dual_level():
        given = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        with pytest.raises(aot.AotError, match="AO0155"):
            torch.autograd.grad(y, x, given, retain_graph=True)
        plain = torch.autograd.grad(y, x, torch.ones(3))[0]
    torch.testing.assert_close(plain, torch.ones(3).cos() + torch.ones(3).sin())
