"""Gradients of some results only: what was not asked for takes no part, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.serialize.saved_program import restore, stored_from


class Two(torch.autograd.Function):
    """Two results, with a derivative that does not look which of them is asked for."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        return x.log(), x * x

    @staticmethod
    def backward(ctx: Any, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return one / x + 2 * x * other


class Shifted(torch.autograd.Function):
    """A derivative that is not zero where its gradient is."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad + 1


class Constant(torch.autograd.Function):
    """A derivative that does not read its gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.size = x.shape
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return torch.ones(ctx.size)


def pole(x: torch.Tensor) -> Any:
    return x.log(), x * x


def behind_a_sort(x: torch.Tensor) -> Any:
    ordered = x.sort()[0]
    return ordered.sqrt(), ordered.exp()


def three(x: torch.Tensor) -> Any:
    y = x * 3
    return y.log(), y.sqrt(), (y.pow(0.5) + y).sin()


def parts(x: torch.Tensor) -> Any:
    one, other = (x * 2).split(2)
    return one.log(), other.log() * one.sum(), one.sin() + other.cos()


def products(x: torch.Tensor) -> Any:
    y = x.outer(x)
    return y.log().sum(), y @ y, y.diagonal().rsqrt()


def function_of_two(x: torch.Tensor) -> Any:
    return Two.apply(x * 1)


def function_of_two_behind_a_pole(x: torch.Tensor) -> Any:
    one, other = Two.apply(x + 1)
    return one.log(), other.sin(), x.cos()


def not_linear(x: torch.Tensor) -> Any:
    return Shifted.apply(x * 2), x.cos()


def constant(x: torch.Tensor) -> Any:
    return Constant.apply(x * 2), x.cos()


def constant_alone(x: torch.Tensor) -> Any:
    y, z = x.chunk(2)
    return Constant.apply(y * 2), z.cos()


def hooked(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda grad: grad + 1)
    return y.sin(), x.cos()


def hooked_with_a_constant(x: torch.Tensor) -> Any:
    y = x * 2
    y.register_hook(lambda grad: torch.ones(4))
    return y.sin(), x.cos(), x.log()


def written_in_part(x: torch.Tensor) -> Any:
    y = x.clone()
    y[:2].sqrt_()
    return y, x.exp(), y[1:].log()


PROGRAMS: list[Callable[[torch.Tensor], Any]] = [
    pole,
    behind_a_sort,
    three,
    parts,
    products,
    function_of_two,
    function_of_two_behind_a_pole,
    not_linear,
    constant,
    constant_alone,
    hooked,
    hooked_with_a_constant,
    written_in_part,
]
VALUES = torch.tensor([0.0, 1.0, 2.0, 0.0])


def gradient(fn: Callable[..., Any], asked: list[int], create_graph: bool) -> Any:
    x = VALUES.clone().requires_grad_()
    results = list(fn(x))
    total = sum((place + 1) * results[place].sum() for place in asked)
    (found,) = torch.autograd.grad(total, x, create_graph=create_graph, allow_unused=True)
    return found


def subsets(count: int) -> list[list[int]]:
    return [[at for at in range(count) if mask >> at & 1] for mask in range(1, 1 << count)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("create_graph", [False, True], ids=["first", "higher"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_every_set_of_results_that_a_gradient_can_be_asked_of(
    fn: Callable[[torch.Tensor], Any], create_graph: bool
) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    for asked in subsets(len(fn(VALUES.clone().requires_grad_()))):
        expected = gradient(fn, asked, create_graph)
        given = gradient(compiled, asked, create_graph)
        torch.testing.assert_close(given, expected, equal_nan=True)


def flags_of(fn: Callable[..., Any]) -> tuple[Any, ...]:
    compiled = aot.aot_function(fn, aot.run_as_is)
    compiled(VALUES.clone().requires_grad_())
    (entry,) = compiled.compiled.values()
    return entry.joint.presences


def test_there_are_flags_only_where_gradients_of_different_results_meet() -> None:
    assert flags_of(lambda x: x.log() * x) == ()
    assert flags_of(lambda x: (x, x[1:].t() if x.dim() > 2 else x[1:])) == ()
    assert {item.tangents for item in flags_of(pole)} == {(0,), (1,)}
    # what nobody asks for is zeros itself, and needs no flag
    assert {item.tangents for item in flags_of(lambda x: (x.log().sum(), x.clone()))} == {(0,)}
    assert {item.tangents for item in flags_of(lambda x: list(x.log().chunk(2)))} == set()


def test_a_gradient_that_only_others_have_is_none() -> None:
    def two(x: torch.Tensor, y: torch.Tensor) -> Any:
        return Constant.apply(x), y.log()

    for create_graph in (False, True):
        compiled = aot.aot_function(two, aot.run_as_is)
        for place in (0, 1):
            inputs = [VALUES.clone().requires_grad_() for _ in range(2)]
            outs = compiled(*inputs)
            found = torch.autograd.grad(
                outs[place].sum(), inputs, create_graph=create_graph, allow_unused=True
            )
            assert [grad is None for grad in found] == [place != 0, place != 1]


def test_an_exported_joint_graph_has_no_flags() -> None:
    found = aot.export_joint(pole, [VALUES.clone().requires_grad_()])
    assert found.joint.flags == ()
    assert [item.kind for item in found.inputs] == ["argument", "tangent", "tangent"]


def test_a_stored_program_knows_its_flags() -> None:
    compiled = aot.aot_function(pole, aot.run_as_is)
    expected = gradient(compiled, [1], False)
    (entry,) = compiled.compiled.values()
    stored = stored_from(entry.stored.data(), entry.stored.constants)
    halves = [aot.boxed(part) for part in (entry.forward, entry.backward)]
    again = restore(stored, [], *halves)
    torch.testing.assert_close(gradient(again, [1], False), expected)
    assert expected[0] == 0


def test_what_is_saved_for_others_may_be_written_to() -> None:
    def mixed(x: torch.Tensor) -> Any:
        mask = x > 1
        return x.masked_fill(mask, 0.0).exp(), x * x, mask

    results = []
    for call in (mixed, aot.aot_function(mixed, aot.run_as_is)):
        x = VALUES.clone().requires_grad_()
        kept, square, mask = call(x)
        kept.detach().mul_(float("nan"))
        mask.logical_not_()
        results.append(torch.autograd.grad(square.sum(), x)[0])
    assert torch.equal(*results)


@pytest.mark.parametrize("weights", [1, 4])
def test_zeros_that_a_derivative_gives_for_undefined_gradients_are_defined(weights: int) -> None:
    """Of the parametric relu, the second derivative twice by one operand is zeros in eager."""

    def second(call: Callable[..., torch.Tensor], of: int, by: int) -> torch.Tensor | None:
        x = torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()
        given = [x, torch.linspace(0.25, 1, weights).requires_grad_()]
        (first,) = torch.autograd.grad(call(*given).sum(), given[of], create_graph=True)
        return torch.autograd.grad(first.sum(), given[by], allow_unused=True)[0]

    compiled = aot.aot_function(torch.nn.functional.prelu, aot.run_as_is)
    for of, by in ((0, 0), (0, 1), (1, 0), (1, 1)):
        eager, own = (second(call, of, by) for call in (torch.nn.functional.prelu, compiled))
        assert eager is not None and own is not None
        torch.testing.assert_close(own, eager)
