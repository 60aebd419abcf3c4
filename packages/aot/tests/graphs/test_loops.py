"""`while_loop` inside programs: as many rounds as the values say, and gradients through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F

cond = torch.ops.higher_order.cond
while_loop = torch.ops.higher_order.while_loop


def power(n: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    """What is carried requires grad from the start; `w` is read in every round."""

    def body(i: torch.Tensor, v: torch.Tensor, u: torch.Tensor) -> Any:
        return i - 1, (v @ u).tanh()

    _, value = while_loop(lambda i, v, u: i > 0, body, (n, x * 2), (w,))
    return value.sum() + x.sum()


def summed(n: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    """What is carried begins without a gradient, and takes part in it from the first round on."""

    def body(i: torch.Tensor, total: torch.Tensor, v: torch.Tensor, u: torch.Tensor) -> Any:
        return i - 1, total + (v * u).sin() * total.exp().clamp(max=2)

    start = torch.zeros(3, 3)
    _, total = while_loop(lambda i, t, v, u: i > 0, body, (n, start), (x, w.t()))
    return total.square().sum()


def by_value(n: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    """The condition reads what is carried; one of the results has no gradient."""

    def body(v: torch.Tensor, k: torch.Tensor, u: torch.Tensor, m: torch.Tensor) -> Any:
        return v * 1.5 + u.mean(), k + v.detach().argmax()

    value, places = while_loop(
        lambda v, k, u, m: v.abs().sum() < 20 * (m + 1), body, (x + 1, n * 0), (w, n)
    )
    return value.sum(), places


def dropped(n: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    """Every round draws, and the gradient is that of what it drew."""

    def body(i: torch.Tensor, v: torch.Tensor, u: torch.Tensor) -> Any:
        unused = torch.rand(2)
        kept = F.dropout(v @ u, 0.5)
        return i - 1, kept.sin() + v * torch.rand(3, 3) + unused.sum().detach() * 0

    _, value = while_loop(lambda i, v, u: i > 0, body, (n, x * 1), (w,))
    return F.dropout(value, 0.2).sum()


def chosen(n: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    """Either side draws as often as it likes."""

    def true(v: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return F.dropout(v @ u, 0.5).sin() * torch.rand(3, 3)

    y = cond(n > 1, true, lambda v, u: v * torch.randn(3, 3) - u, (x, w))
    return F.dropout(y, 0.5).sum()


def eager(program: Callable[..., Any], *args: Any) -> Any:
    """The same in Python's own loop."""

    def loop(condition: Any, body: Any, carried: Any, additional: Any) -> Any:
        while condition(*carried, *additional):
            carried = body(*carried, *additional)
        return carried

    def side(p: torch.Tensor, true: Any, false: Any, operands: Any) -> Any:
        return true(*operands) if p else false(*operands)

    scope = dict(program.__globals__, while_loop=loop, cond=side)
    return type(program)(program.__code__, scope, closure=program.__closure__)(*args)


PROGRAMS = [power, summed, by_value, dropped, chosen]


def outcome(call: Callable[..., Any], rounds: int) -> list[Any]:
    """Results, gradients, and the next number of the stream."""
    torch.manual_seed(rounds)
    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    results = call(torch.tensor(rounds), x, w)
    loss = results[0] if isinstance(results, tuple) else results
    if loss.requires_grad:
        loss.backward()
    grads = [torch.zeros(3, 3) if item.grad is None else item.grad for item in (x, w)]
    return [results, *grads, torch.rand(3)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_results_and_gradients(program: Callable[..., Any], partition: Any) -> None:
    compiled = aot.aot_function(program, aot.run_as_is, partition=partition)
    for rounds in (3, 1, 0, 2):
        expected = outcome(lambda *args: eager(program, *args), rounds)
        given = outcome(compiled, rounds)
        torch.testing.assert_close(given, expected)
    assert len(compiled.compiled) == 1


def test_a_loop_in_a_side_of_a_cond() -> None:
    def program(n: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        def true(v: torch.Tensor, u: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return while_loop(
                lambda k, a, b: k > 0, lambda k, a, b: (k - 1, (a @ b).sin()), (i, v * 2), (u,)
            )[1]

        return cond(n > 1, true, lambda v, u, i: v.cos(), (x, w, n)).sum()

    compiled = aot.aot_function(program, aot.run_as_is)
    for rounds in (3, 0):
        expected = outcome(lambda *args: eager(program, *args), rounds)
        torch.testing.assert_close(outcome(compiled, rounds), expected)


def test_two_backward_passes_draw_the_same() -> None:
    compiled = aot.aot_function(dropped, aot.run_as_is)
    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    loss = compiled(torch.tensor(3), x, w)
    first = torch.autograd.grad(loss, (x, w), retain_graph=True)
    state = torch.get_rng_state()
    torch.rand(7)
    second = torch.autograd.grad(loss, (x, w))
    torch.testing.assert_close(first, second)
    torch.set_rng_state(state)


def test_without_grad_nothing_is_differentiated() -> None:
    compiled: Any = aot.aot_function(dropped, aot.run_as_is)
    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    with torch.no_grad():
        torch.manual_seed(0)
        given = compiled(torch.tensor(2), x, w)
        torch.manual_seed(0)
        torch.testing.assert_close(given, eager(dropped, torch.tensor(2), x, w))
    (entry,) = compiled.compiled.values()
    assert entry.report.kind == "inference"


def test_what_a_body_closes_over_is_to_be_an_operand() -> None:
    def program(n: torch.Tensor, x: torch.Tensor) -> Any:
        return while_loop(lambda i: i > 0, lambda i: (i - x.argmax(),), (n,), ())

    with pytest.raises(aot.Unsupported, match="pass it as an operand"):
        aot.aot_function(program, aot.run_as_is)(torch.tensor(2), torch.rand(3))
