"""What a backward pass writes to tensors of the forward pass, against eager: counters, maxima."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

# What a derivative does with the tensor that it keeps, and a gradient.
WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add_": lambda kept, g: kept.add_(1),
    "of the gradient": lambda kept, g: kept.copy_(torch.maximum(kept, g.abs().amax())),
    "an element": lambda kept, g: kept.__setitem__(0, g.sum()),
    "a view": lambda kept, g: kept[1:].mul_(2).add_(g[0]),
    "rolled": lambda kept, g: kept.copy_(kept.roll(1)),
    "data": lambda kept, g: kept.data.sub_(3),
    "a constant": lambda kept, g: kept.fill_(7),
    "out": lambda kept, g: torch.add(kept, g.sum(), out=kept),
    "foreach": lambda kept, g: torch._foreach_add_([kept], 2.0),
}


def function_writing(write: Callable[..., Any], saved: bool) -> Callable[..., Any]:
    class Writing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
            ctx.kept = kept
            if saved:
                ctx.save_for_backward(x)
            return x * kept[0]

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            write(ctx.kept, g)
            return (g * ctx.kept.sum() * (ctx.saved_tensors[0] if saved else 2)), None

    return Writing.apply  # type: ignore[no-any-return]


def outcome(call: Callable[..., Any]) -> Any:
    """Values after the forward pass, after one backward pass and after a second one."""
    x = torch.arange(1.0, 4.0).requires_grad_()
    kept, other = torch.arange(2.0, 5.0), torch.arange(3.0)
    results = call(x, kept, other)
    results = results if isinstance(results, tuple) else (results,)
    seen: list[Any] = [[item.detach().clone() for item in results], kept.clone(), other.clone()]
    end = sum(((item * item).sum() for item in results if item.requires_grad), torch.zeros(()))
    for again in (True, False):
        before = kept._version
        end.backward(retain_graph=again)
        assert x.grad is not None
        seen += [x.grad.clone(), kept.clone(), other.clone(), kept._version > before]
    return seen


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("write", list(WRITES))
def test_a_derivative_that_writes_to_an_input(write: str, saved: bool) -> None:
    apply = function_writing(WRITES[write], saved)

    def once(x: torch.Tensor, kept: torch.Tensor, other: torch.Tensor) -> Any:
        return apply(x.sin(), kept) * 2

    def twice(x: torch.Tensor, kept: torch.Tensor, other: torch.Tensor) -> Any:
        return apply(apply(x, kept).cos(), kept) + other

    def to_both(x: torch.Tensor, kept: torch.Tensor, other: torch.Tensor) -> Any:
        return apply(apply(x, kept).cos(), other) * kept.sum()

    def written_before(x: torch.Tensor, kept: torch.Tensor, other: torch.Tensor) -> Any:
        kept.mul_(2)
        return apply(x, kept), other + 1

    def of_a_view(x: torch.Tensor, kept: torch.Tensor, other: torch.Tensor) -> Any:
        return apply(x, kept.flip(0).flip(0) if write == "a view" else kept[:2]).exp(), kept

    programs = [once, twice, to_both, written_before]
    for program in [*programs, of_a_view] if write != "a view" else programs:
        compiled = aot.aot_function(program, aot.run_as_is)
        expected = outcome(program)
        torch.testing.assert_close(outcome(compiled), expected)
        torch.testing.assert_close(outcome(compiled), expected)


def in_turn(call: Callable[..., Any]) -> list[Any]:
    """What gradients that are differentiated in turn give to an input and to the results."""
    x, kept = torch.linspace(0.1, 1, 4).requires_grad_(), torch.ones(3)
    results = call(x, kept)
    first = torch.autograd.grad(results[0].square().sum(), x, create_graph=True)
    seen = [*first, kept.clone()]
    end = first[0].square().sum() + results[0].sum()
    seen += torch.autograd.grad(end, [x, *results], allow_unused=True, retain_graph=True)
    seen.append(kept.clone())
    results[0].retain_grad()
    first[0].sum().backward()
    return [*seen, x.grad, results[0].grad, kept]


class Largest(torch.autograd.Function):
    """Keeps the largest gradient so far, as functions for eight-bit numbers do."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.kept = kept
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            ctx.kept.add_(grads[0].abs().max())
        return grads[0] * x.cos(), None


@pytest.mark.filterwarnings("ignore:a derivative of a compiled program runs eagerly")
def test_one_with_a_result_that_its_operator_keeps_writes_once_in_each_pass() -> None:
    """What gradients give to that result is given to whoever requests it, too."""

    def program(x: torch.Tensor, kept: torch.Tensor) -> Any:
        y: torch.Tensor = Largest.apply(x, kept)
        return y.exp(), y.sin()

    expected, given = in_turn(program), in_turn(aot.aot_function(program, aot.run_as_is))
    torch.testing.assert_close(given, expected)
    assert expected[3] is not None


def test_a_buffer_of_a_module() -> None:
    apply = function_writing(WRITES["of the gradient"], True)

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("largest", torch.ones(3))
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> Any:
            return apply(x * self.weight, self.largest).sin()

    seen = []
    for compiled in (False, True):
        module = Module()
        call = aot.aot_module(module, aot.run_as_is) if compiled else module
        for scale in (1.0, 5.0):
            (call(torch.arange(1.0, 4.0)).sum() * scale).backward()
        seen.append([module.largest, module.weight.grad])
    torch.testing.assert_close(seen[1], seen[0])


def test_a_custom_operator_whose_derivative_writes() -> None:
    @torch.library.custom_op("flambeau_test::writes_late", mutates_args=())
    def op(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return x * 2

    @op.register_fake
    def fake(x: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kept = inputs[1]

    def backward(ctx: Any, g: torch.Tensor) -> Any:
        ctx.kept.add_(g.sum())
        return g * ctx.kept.sum(), None

    op.register_autograd(backward, setup_context=setup)

    def program(x: torch.Tensor, kept: torch.Tensor, other: torch.Tensor) -> Any:
        return op(x, kept).sin()

    torch.testing.assert_close(outcome(aot.aot_function(program, aot.run_as_is)), outcome(program))


def test_a_hook_that_writes() -> None:
    def program(x: torch.Tensor, kept: torch.Tensor, other: torch.Tensor) -> Any:
        y = x.sin()
        y.register_hook(lambda g: kept.add_(g))
        return y.exp() * other

    torch.testing.assert_close(outcome(aot.aot_function(program, aot.run_as_is)), outcome(program))


def of_the_program(x: torch.Tensor, kept: torch.Tensor) -> Any:
    return function_writing(WRITES["add_"], False)(x, kept * 2)


def for_one_result(x: torch.Tensor, kept: torch.Tensor) -> Any:
    return function_writing(WRITES["add_"], False)(x, kept), x.sin()


CLOSED_OVER = torch.ones(3)


def of_nobody(x: torch.Tensor, kept: torch.Tensor) -> Any:
    return function_writing(WRITES["add_"], False)(x, CLOSED_OVER)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (of_the_program, "writes to a tensor that the program has made"),
        (for_one_result, "for some of the results only"),
        (of_nobody, "writes to an argument"),
    ],
)
def test_what_is_refused(program: Callable[..., Any], words: str) -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(aot.Unsupported, match=words):
        aot.aot_function(program, aot.run_as_is)(x, torch.ones(3))
    assert torch.equal(CLOSED_OVER, torch.ones(3))


def test_a_second_derivative_writes_once() -> None:
    """It runs eagerly: what the backward part writes to is written to as often as in eager."""

    def run(function: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        x = torch.arange(1.0, 4.0).requires_grad_()
        kept = torch.ones(3)
        end = (function(x, kept) ** 2).sum()
        (first,) = torch.autograd.grad(end, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return first, second, kept

    def program(x: torch.Tensor, kept: torch.Tensor) -> Any:
        return function_writing(WRITES["add_"], True)(x, kept)

    with pytest.warns(UserWarning, match="runs eagerly.*writes to an input"):
        got = run(aot.aot_function(program, aot.run_as_is))
    torch.testing.assert_close(got, run(program))


@pytest.mark.parametrize("after", [torch.mul, torch.pow], ids=["linear", "curved"])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("hook", [False, True])
def test_what_eager_does_once_is_not_done_twice(
    after: Any, beside: bool, power: int, hook: bool
) -> None:
    """A pass through the results and through the gradients of an earlier pass."""

    def run(function: Callable[..., Any]) -> Any:
        x = torch.arange(1.0, 4.0).requires_grad_()
        kept = torch.ones(3)
        end = (function(x, kept) ** power).sum()
        (first,) = torch.autograd.grad(end, x, create_graph=True)
        penalty = (first * first).sum() + (end if beside else 0)
        if penalty.requires_grad:
            penalty.backward()
        return first, x.grad, kept

    def program(x: torch.Tensor, kept: torch.Tensor) -> Any:
        if not hook:
            return after(function_writing(WRITES["add_"], True)(x * 2, kept), 2.0)
        y = x * 2
        y.register_hook(lambda grad: kept.add_(1) * grad)
        return after(y, 2.0)

    compiled = aot.aot_function(program, aot.run_as_is)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(run(compiled), run(program))


WRITES_TO_GRADIENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "mul_": lambda g: g.mul_(2),
    "by one": lambda g: g.mul_(1),
    "an element": lambda g: g[0].zero_(),
    "out": lambda g: torch.neg(g, out=g),
    "foreach": lambda g: torch._foreach_mul_([g], 2.0),
}


def function_writing_to_gradients(write: Callable[..., Any]) -> Callable[..., Any]:
    class Writing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> Any:
            write(g)
            return g + 1

    return Writing.apply  # type: ignore[no-any-return]


@pytest.mark.parametrize("write", list(WRITES_TO_GRADIENTS))
def test_a_write_to_the_gradient_of_a_result_is_refused(write: str) -> None:
    """Of a result's, which may be expanded, or the caller's own; not of one made in the graph."""
    apply = function_writing_to_gradients(WRITES_TO_GRADIENTS[write])
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    with pytest.raises(aot.Unsupported, match="writes to the gradient that it is given"):
        aot.aot_function(lambda x: apply(x * 2), aot.run_as_is)(x)

    def inside(x: torch.Tensor) -> torch.Tensor:
        return apply(x * 2) * 3

    compiled = aot.aot_function(inside, aot.run_as_is)
    for weight in (torch.ones(()).expand(2, 3), torch.arange(6.0).reshape(2, 3)):
        found = torch.autograd.grad(compiled(x), x, weight)
        torch.testing.assert_close(found, torch.autograd.grad(inside(x), x, weight))
