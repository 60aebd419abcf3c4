"""`cond` and `while_loop` inside programs: decided at every call, and differentiated."""

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch

cond = torch.ops.higher_order.cond
while_loop = torch.ops.higher_order.while_loop


def one_result(p: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    y = cond(p, lambda v, u: (v @ u).sin(), lambda v, u: v.cos() @ u.t(), (x * 2, w))
    return y.sum() + x.sum()


def two_results(p: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    def true(v: torch.Tensor, u: torch.Tensor) -> Any:
        return v * u, v.argmax(1)

    def false(v: torch.Tensor, u: torch.Tensor) -> Any:
        return v - 1, u.argmax(1)

    values, places = cond(p, true, false, (x, w))
    return values[0].sum() * 2, places


def detached_side(p: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> Any:
    return cond(p, lambda v: v.detach().sin(), lambda v: v.exp(), (x,)).sum() + w.sum()


def eager(program: Callable[..., Any], *args: Any) -> Any:
    """The same with the side chosen by Python."""

    def chosen(p: torch.Tensor, true: Any, false: Any, operands: Any) -> Any:
        return true(*operands) if p else false(*operands)

    scope = dict(program.__globals__, cond=chosen)
    return type(program)(program.__code__, scope, closure=program.__closure__)(*args)


@pytest.mark.parametrize(
    "program", [one_result, two_results, detached_side], ids=lambda fn: fn.__name__
)
@pytest.mark.parametrize("first", [True, False])
def test_results_and_gradients(program: Callable[..., Any], first: bool) -> None:
    compiled = aot.aot_function(program, aot.run_as_is)
    torch.manual_seed(0)
    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    for side in (first, not first):
        p = torch.tensor(side)
        given, expected = compiled(p, x, w), eager(program, p, x, w)
        torch.testing.assert_close(given, expected)
        ends = [out[0] if isinstance(out, tuple) else out for out in (given, expected)]
        grads = [torch.autograd.grad(end, (x, w), allow_unused=True) for end in ends]
        for own, other in zip(*grads, strict=True):
            # A side that does not use an operand gives zeros where eager gives none.
            torch.testing.assert_close(own, torch.zeros_like(own) if other is None else other)
    assert len(compiled.compiled) == 1


def test_torch_cond_called_by_python_code() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))

    compiled = aot.aot_function(program, aot.run_as_is)
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(compiled(x), x.sin() if x.sum() > 0 else x.cos())
    assert len(compiled.compiled) == 1


def test_while_loop_runs_as_often_as_the_values_say() -> None:
    def program(n: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
        def condition(i: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return i < 10

        def body(i: torch.Tensor, v: torch.Tensor, w: torch.Tensor) -> Any:
            return i + 3, v * w

        return while_loop(condition, body, (n, x.sin()), (y,))

    compiled = aot.aot_function(program, aot.run_as_is)
    x, y = torch.rand(2), torch.rand(2)
    for start, times in ((0, 4), (5, 2), (20, 0)):
        count, value = compiled(torch.tensor(start), x, y)
        assert int(count) == start + 3 * times
        torch.testing.assert_close(value, x.sin() * y**times)
    assert len(compiled.compiled) == 1


def test_a_graph_of_cond_reaches_the_compilers_as_one_operator() -> None:
    seen: list[list[str]] = []

    def compiler(gm: Any, examples: Any, info: Any) -> Any:
        seen.append([n.target.name() for n in gm.graph.nodes if n.op == "call_function"])
        return aot.boxed(gm)

    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    aot.aot_function(one_result, compiler)(torch.tensor(True), x, w).backward()
    kept = [[name for name in names if "flambeau_aot_branches" in name] for names in seen]
    assert [len(names) for names in kept] == [1, 1]


def writes(p: torch.Tensor, x: torch.Tensor) -> Any:
    return cond(p, lambda v: v.mul_(2), lambda v: v + 1, (x,))


def returns_operand(p: torch.Tensor, x: torch.Tensor) -> Any:
    return cond(p, lambda v: v, lambda v: v + 1, (x,))


def other_shapes(p: torch.Tensor, x: torch.Tensor) -> Any:
    return cond(p, lambda v: v[0].clone(), lambda v: v + 1, (x,))


def draws(p: torch.Tensor, x: torch.Tensor) -> Any:
    generator = torch.Generator()
    return cond(p, lambda v: v * torch.rand(3, generator=generator), lambda v: v + 1, (x * 1,))


def other_count(p: torch.Tensor, x: torch.Tensor) -> Any:
    return while_loop(lambda v: v.sum() < 3, lambda v: (v + 1, v * 2), (x * 1,), ())


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (writes, "writes to an operand"),
        (returns_operand, "return a new tensor"),
        (other_shapes, "other shapes, strides or dtypes"),
        (draws, "draw outside of it"),
        (other_count, "returns 2 values and carries 1"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refused_by_name(program: Callable[..., Any], message: str) -> None:
    with pytest.raises(aot.Unsupported, match=message):
        aot.aot_function(program, aot.run_as_is)(
            torch.tensor(True), torch.randn(3, 3, requires_grad=True)
        )


def test_there_is_no_second_derivative() -> None:
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    loss = aot.aot_function(one_result, aot.run_as_is)(torch.tensor(True), x, w)
    with pytest.raises(aot.DoubleBackwardError, match=r"torch\.where"):
        torch.autograd.grad(loss, x, create_graph=True)
