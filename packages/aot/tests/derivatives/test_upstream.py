"""Derivatives of a user's behind the inputs of a compiled program: run where eager runs them."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.errors import Unsupported

RUNS: list[int] = []


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        RUNS.append(1)
        return grad + 1


Pair = tuple[torch.Tensor, torch.Tensor]
PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Pair]] = {
    "apart": lambda a, b: (a * 2, b * 3),
    "one of both": lambda a, b: (a * b, b.exp()),
    "both of both": lambda a, b: (a * b, b + a),
}
BEFORE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "leaf": lambda x: x,
    "torch's": lambda x: (x * 2).cos(),
    "a user's": lambda x: Own.apply(x),  # type: ignore[no-any-return]
    "behind torch's": lambda x: Own.apply(x).cos() * 2,  # type: ignore[no-any-return]
}


def outcome(call: Callable[..., Pair], before: str, asked: str) -> list[Any]:
    RUNS.clear()
    x, y = (torch.tensor([0.3, 0.7]).requires_grad_() for _ in range(2))
    p, q = call(BEFORE[before](x), y)
    {"first": p, "second": q, "both": p + q}[asked].sum().backward()
    return [x.grad, y.grad, len(RUNS)]


def traced(error: BaseException) -> list[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__)


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=list(PROGRAMS))
@pytest.mark.parametrize("order", (1, -1))
def test_none_is_run_without_a_gradient(fn: Callable[..., Pair], order: int) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    answered = 0
    for before, asked in itertools.product([*BEFORE][::order], ("both", "first", "second")):
        expected = outcome(fn, before, asked)
        try:
            given = outcome(compiled, before, asked)
        except Unsupported as error:
            assert error.id == "AO0158" and "backward" not in {e.name for e in traced(error)}
            assert before in ("a user's", "behind torch's")
            continue
        torch.testing.assert_close(given, expected)
        answered += 1
    assert answered >= (12 if fn is PROGRAMS["both of both"] else 6)


class Ends(torch.autograd.Function):
    """It gives no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> None:
        return None


class Given(torch.autograd.Function):
    """It answers an undefined gradient by a value that no other gradient depends on."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        x, w = ctx.saved_tensors
        return (x * w, None) if grad is None else (grad * w, grad * x)


WITHIN: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "torch's": lambda a, b: (a * b).sin(),
    "a user's": lambda a, b: Own.apply(a * 2) * b,
    "two of a user's": lambda a, b: Own.apply(a).cos() + Own.apply(b),
    "one that takes None": lambda a, b: Given.apply(a * 2, b).sin(),
    "behind one that ends it": lambda a, b: Ends.apply(Own.apply(a)) + Own.apply(b * a),
}
BEHIND: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "defined": lambda r: r * 2,
    "undefined": lambda r: Ends.apply(r * 2),  # type: ignore[no-any-return]
    "both": lambda r: Ends.apply(r) + r.cos(),  # type: ignore[no-any-return]
}


@pytest.mark.parametrize("fn", WITHIN.values(), ids=list(WITHIN))
@pytest.mark.parametrize("create_graph", (False, True))
def test_undefined_gradients_run_a_users_derivatives(
    fn: Callable[..., torch.Tensor], create_graph: bool
) -> None:
    """Eager runs a user's derivative where its gradient is undefined, torch's gives none there."""
    outcomes = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        found: list[Any] = []
        for behind in BEHIND.values():
            x, y = (torch.tensor([0.3, 0.7 + n]).requires_grad_() for n in range(2))
            result = behind(call(x.cos(), y))
            result.sum().backward(create_graph=create_graph)
            found += [grad if grad is None else grad.detach() for grad in (x.grad, y.grad)]
        outcomes.append(found)
    torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("between", (lambda r: r, lambda r: r * 2), ids=("next", "behind"))
def test_a_call_that_no_gradient_is_asked_of_runs_none(between: Callable[..., Any]) -> None:
    """A compiled call leads from all results to all inputs, eager from each to its own."""

    def own(x: torch.Tensor) -> torch.Tensor:
        return Own.apply(x * 2)  # type: ignore[no-any-return]

    def two(a: torch.Tensor, b: torch.Tensor) -> Pair:
        return a * 3, b.cos()

    outcomes = []
    for first, then in ((own, two), [aot.aot_function(f, aot.run_as_is) for f in (own, two)]):
        x, y = (torch.tensor([0.3, 0.7]).requires_grad_() for _ in range(2))
        then(between(first(x)), y)[1].sum().backward()
        outcomes.append([x.grad, y.grad])
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_undefined_gradients_of_some_results_are_refused() -> None:
    """Where it is not known for which results a user's derivative is to run."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> Pair:
        return Own.apply(x), y * 2

    x, y = (torch.tensor([0.3, 0.7]).requires_grad_() for _ in range(2))
    second = aot.aot_function(fn, aot.run_as_is)(x, y)[1]
    with pytest.raises(aot.AotError, match="not all of its results"):
        Ends.apply(second).sum().backward()
