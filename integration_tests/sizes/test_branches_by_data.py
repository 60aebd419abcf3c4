"""Branches by a tensor's data as choices of the graph: eager's results, gradients and memory. What
a choice cannot be ends the graph as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

BY_DATA = {"capture.branches_by_data": True}
CASES: dict[str, tuple[Callable[..., Any], bool]] = {}
WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


def case(one: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A program by name, and whether it is one graph."""

    def keep(program: Callable[..., Any]) -> Callable[..., Any]:
        CASES[program.__name__] = program, one
        return program

    return keep


@case()
def two_ways(x: Tensor) -> Any:
    if x.sum() > 0:
        y = x.sin() @ WEIGHT
    else:
        y = x.cos()
    return y * 2


@case()
def one_way(x: Tensor) -> Any:
    g = x * 3
    if g.norm() > 2:
        g = g / g.norm()
    return x - g


@case()
def not_of_a_condition(x: Tensor) -> Any:
    y = x * 2
    if not torch.isfinite(y).all() or y.mean() > 1:
        y = y * 0 + x
    return y.exp()


@case()
def two_returns(x: Tensor) -> Any:
    if (x > 0).all():
        return x.log1p(), 1
    y = x.abs()
    return y.sqrt(), 1


@case()
def an_expression(x: Tensor) -> Any:
    return (x + 1 if x.max() > 1 else x - 1) * (2 if x.min() < 0 else 3)


@case()
def a_loop_that_is_left(x: Tensor) -> Any:
    for _ in range(5):
        x = torch.tanh(x @ WEIGHT) * 1.5
        if x.abs().mean() < 0.4:
            break
    return x


@case()
def a_loop_that_returns(x: Tensor) -> Any:
    for step in range(4):
        x = torch.sin(x * 2)
        if x.abs().mean() < 0.5:
            return x, step
    return x * 2, -1


@case()
def a_loop_that_goes_on(x: Tensor) -> Any:
    total = torch.zeros_like(x) * x
    for scale in (1.0, 2.0, -1.0):
        y = x * scale
        if y.sum() < 0:
            continue
        total = total + y
    return total


@case()
def a_counter(x: Tensor) -> Any:
    count = 0
    gap = x.detach().abs().max()
    while gap > 0.2 and count < 6:
        gap = gap * 0.5
        count += 1
    return x * gap, count


@case()
def several_that_pass_through(x: Tensor) -> Any:
    a, b = x * 1, x * 2
    for _ in range(3):
        if (a - b).abs().max() < 0.7:
            break
        a, b = (a + b) / 2, a * 0.9 + b * 0.1
    return a @ WEIGHT, b.sum()


@case()
def nested(x: Tensor) -> Any:
    if x.sum() > 0:
        y = x * 2
        if y.max() > 2:
            y = y - 1
        else:
            y = y + 1
    else:
        y = -x
    return y


def clipped(x: Tensor, limit: float) -> Tensor:
    if x.abs().max() > limit:
        return x * 0.5
    return x * 1.0


@case()
def in_functions(x: Tensor) -> Any:
    return clipped(clipped(x, 1.0) * 2, 1.5)


@case(one=False)
def a_number_of_data(x: Tensor) -> Any:
    count = (x > 0).sum().item()
    return x.relu().sum() / count if count > 3 else x.relu().sum()


@case(one=False)
def a_place_that_one_way_has(x: Tensor) -> Any:
    place = (x.detach() > 0).sum()
    if place < 4:
        return x[0] + x.reshape(-1).sort().values.diff().cumsum(0)[place]
    return x[0] * 2


@case(one=False)
def drawn_in_one_way(x: Tensor) -> Any:
    if x.sum() > 0:
        y = torch.nn.functional.dropout(x, 0.5)
    else:
        y = x * 1.5
    return y + torch.rand(4)


@case()
def views(x: Tensor) -> Any:
    y = x * 2
    if y.sum() > 0:
        z = y.view(2, 8)[1]
    else:
        z = y.view(2, 8)[0]
    return z.exp()


@case(one=False)
def one_that_leaves_as_it_was(x: Tensor) -> Any:
    """Eager's result is the argument itself."""
    if x.norm() > 2:
        x = x / x.norm()
    return x


@case(one=False)
def one_of_two_that_leave(x: Tensor) -> Any:
    y = z = x * 2
    if y.sum() > 0:
        z = y + 1
    return y, z


@case(one=False)
def one_that_is_written_to(x: Tensor) -> Any:
    y = z = x * 2
    if y.sum() > 0:
        z = y * 2
    z.add_(1)
    return y.sum()


@case(one=False)
def written_in_one_way(x: Tensor) -> Any:
    y = x * 2
    if y.sum() > 0:
        y.mul_(3)
    return y


@case(one=False)
def a_list_that_grows(x: Tensor) -> Any:
    found = []
    for scale in (1, 2, 3):
        y = x * scale
        if y.sum() > 0:
            found.append(y)
    return found, x * 2


@case(one=False)
def of_two_sizes(x: Tensor) -> Any:
    y = x[:2] if x.sum() > 0 else x[1:]
    return y * 2


@case(one=False)
def of_two_classes(x: Tensor) -> Any:
    y = x.double() if x.sum() > 0 else x * 2
    return y * 2


@case(one=False)
def of_two_layouts(x: Tensor) -> Any:
    y = (x * 2).t() if x.sum() > 0 else x * 2
    return y, y + 1


@case(one=False)
def none_or_a_tensor(x: Tensor) -> Any:
    y = None if x.sum() > 0 else x * 2
    return x if y is None else y + x


@case(one=False)
def stored(x: Tensor) -> Any:
    kept: dict[str, Tensor] = {"a": x}
    if x.sum() > 0:
        kept["a"] = x * 2
    return kept["a"] * 3


def same(
    program: Callable[..., Any], compiled: Callable[..., Any], x: Tensor, trains: bool
) -> None:
    found = []
    for run in (program, compiled):
        own = x.clone().requires_grad_(trains)
        torch.manual_seed(1)
        result = run(own)
        drawn = torch.rand(1)
        parts = result if isinstance(result, tuple | list) else [result]
        flat = [t for part in parts for t in (part if isinstance(part, list) else [part])]
        tensors = [part for part in flat if isinstance(part, Tensor)]
        memory = [t.untyped_storage()._cdata for t in (own, *tensors)]
        places = [memory.index(each) for each in memory]
        ends = [t.sum() for t in tensors if t.requires_grad]
        if ends:
            sum(ends[1:], ends[0]).backward()
        layout = [(t.stride(), t.dtype, t.requires_grad) for t in tensors]
        plain = [part for part in flat if not isinstance(part, Tensor)]
        found.append(([t.detach() for t in tensors], own.grad, drawn, layout, places, plain))
    torch.testing.assert_close(found[1][:3], found[0][:3])
    assert found[1][3:] == found[0][3:]


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", CASES)
def test_a_branch_by_data(name: str, backend: str, trains: bool) -> None:
    program, one = CASES[name]
    compiled = flambeau.compile(program, backend=backend, options=BY_DATA)
    for seed, scale in enumerate((1.0, 3.0, 0.1, 1.0, 0.5)):
        torch.manual_seed(seed)
        same(program, compiled, torch.randn(4, 4) * scale, trains)
        same(program, compiled, torch.rand(4, 4) * scale, trains)
        same(program, compiled, -torch.rand(4, 4) * scale, trains)
    report = flambeau.report(compiled)
    if one:
        assert (report.graphs, report.breaks, report.fallbacks) == (1, (), ())
    assert not report.faults


def a_view_of_each_way(x: Tensor) -> Tensor:
    y = x * 2
    return y.t() if y.sum() > 0 else y.cos().t()


def a_view_through_two_choices(x: Tensor) -> Tensor:
    y = x * 2
    if y.sum() > 0:
        if y.max() > 1:
            y = y.t().t()
        else:
            y = y + 1
    return y


def a_view_of_a_round(x: Tensor) -> Tensor:
    y = x * 2
    for _ in range(3):
        y = y[:]
        if y.sum() > 0:
            continue
        y = y.clone()
    return y


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(
    "program", [a_view_of_each_way, a_view_through_two_choices, a_view_of_a_round]
)
def test_a_result_is_a_view_where_eager_has_one(program: Callable[..., Any], trains: bool) -> None:
    compiled = flambeau.compile(program, backend="eager", options=BY_DATA)
    for scale in (1.0, 0.1, -1.0):
        x = torch.rand(4, 4) * scale
        same(program, compiled, x, trains)
        want, got = (each(x.clone().requires_grad_(trains)) for each in (program, compiled))
        assert got._is_view() == want._is_view()


def test_a_choice_is_for_every_size() -> None:
    compiled = flambeau.compile(in_functions, backend="aot_eager", options=BY_DATA, dynamic=True)
    for rows in (3, 5, 9):
        for scale in (0.1, 1.0, 9.0):
            same(in_functions, compiled, torch.randn(rows, 4) * scale, True)
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks) == (1, ())


def test_derivatives_of_second_order_are_refused_by_name() -> None:
    compiled = flambeau.compile(a_loop_that_is_left, backend="aot_eager", options=BY_DATA)
    x = torch.ones(4, 4).requires_grad_()
    with pytest.raises(RuntimeError, match="AO0149"):
        (first,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
        torch.autograd.grad(first.sin().sum(), x)


def test_it_is_asked_for() -> None:
    compiled = flambeau.compile(two_ways, backend="eager")
    same(two_ways, compiled, torch.rand(4, 4), False)
    assert ["FB0001" in each for each in flambeau.report(compiled).breaks] == [True]
