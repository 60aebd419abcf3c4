"""Rewrites: what they do, and what they must leave alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.driver import PassContext
from flambeau_inductor.passes.primitive_passes import rewrite
from torch import fx


def rewritten(
    function: Callable[..., Any], *inputs: torch.Tensor, skip: tuple[str, ...] = ()
) -> list[str]:
    low = flambeau_prims.lower(fx.symbolic_trace(function), list(inputs))
    done = rewrite(low, PassContext(options=Options(skip_passes=skip)))
    wanted = low(*inputs)
    got = done(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for a, b in zip(wanted, got if isinstance(got, tuple) else (got,), strict=True):
        torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-6, equal_nan=True)
        assert a.stride() == b.stride()
    return [
        str(n.target).removeprefix("flambeau_prims.").removesuffix(".default")
        for n in done.graph.nodes
        if n.op == "call_function"
    ]


X = torch.randn(4, 6)


def test_equal_values_are_computed_once() -> None:
    names = rewritten(lambda x: x.exp() + x.exp() * 2, X)
    assert names.count("exp") == 1


def test_what_is_computed_again_to_save_memory_stays_apart() -> None:
    low = flambeau_prims.lower(fx.symbolic_trace(lambda x: x.exp() + x.exp() * x.exp()), [X])
    made = [node for node in low.graph.nodes if "exp" in str(node.target)]
    for node in made[1:]:
        node.meta["computed_again"] = True
    done = rewrite(low, PassContext(options=Options()))
    assert sum("exp" in str(node.target) for node in done.graph.nodes) == 2


def test_two_equal_outputs_stay_two() -> None:
    assert rewritten(lambda x: (x.exp(), x.exp()), X).count("exp") == 2


def test_arithmetic_on_constants_is_done_once_and_for_all() -> None:
    names = rewritten(lambda x: x + (torch.ones(6) * 3 + 1), X)
    assert names.count("mul") == 0 and names.count("add") == 1


def test_a_constant_is_made_where_it_is_wanted() -> None:
    prims = torch.ops.flambeau_prims
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(3, device="meta")
    where = {"dtype": torch.float32, "device": torch.device("cpu")}
    number = graph.call_function(prims.full.default, ([], 2.5), where)
    number.meta["val"] = torch.empty(())
    moved = graph.call_function(
        prims.device_put.default, (number,), {"device": torch.device("meta")}
    )
    moved.meta["val"] = torch.empty((), device="meta")
    spread = graph.call_function(prims.broadcast_in_dim.default, (moved, [3], []))
    spread.meta["val"] = torch.empty((), device="meta").expand(3)
    total = graph.call_function(prims.add.default, (x, spread))
    total.meta["val"] = torch.empty(3, device="meta")
    graph.output((total,))
    done = rewrite(fx.GraphModule(torch.nn.Module(), graph))
    (made,) = [n for n in done.graph.nodes if n.target is prims.full.default]
    assert made.args == ([3], 2.5) and made.kwargs["device"] == torch.device("meta")
    assert all(n.target is not prims.device_put.default for n in done.graph.nodes)


@pytest.mark.parametrize(
    ("function", "gone"),
    [
        (lambda x: x.exp() * 1, "mul"),
        (lambda x: x.exp() / 1 + 2, "div"),
        (lambda x: x.exp().reshape(4, 6) + 1, "reshape"),
        (lambda x: x.exp().permute(0, 1) + 1, "permute"),
    ],
)
def test_what_changes_nothing_is_dropped(function: Callable[..., Any], gone: str) -> None:
    # The product that is returned keeps its own memory only where it is not a view.
    names = rewritten(lambda x: function(x) + x, X)
    assert gone not in names


EQUAL = (lambda x: x * 1, lambda x: x / 1)
VIEWS = (lambda x: x, lambda x: x[2:], lambda x: x.view(2, 3)[1], lambda x: x.view(3, 2).t())
PLACES = (
    lambda x: x.as_strided((2,), (1,), 3) + 1,
    lambda x: torch.as_strided_copy(x, (2,), (1,), 0),
    lambda x: x.as_strided_scatter(torch.ones(2), (2,), (1,), 4) + 1,
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("equal", EQUAL)
def test_a_value_in_whose_memory_a_place_is_named_keeps_it(
    equal: Callable[..., Any], view: Callable[..., Any], place: Callable[..., Any]
) -> None:
    x = torch.arange(9.0)[3:]  # the memory of an equal value begins elsewhere
    rewritten(lambda x: place(view(equal(x))), x)


def test_adding_zero_is_kept() -> None:
    x = torch.tensor([-0.0])
    names = rewritten(lambda x: (x + 0.0).neg(), x)
    assert "add" in names


def test_a_bias_goes_into_the_product() -> None:
    linear = torch.nn.functional.linear
    w, b = torch.randn(5, 6), torch.randn(5)
    assert "addmm" in rewritten(linear_of(linear), X, w, b)
    assert "addmm" not in rewritten(linear_of(linear), X, w, b, skip=("bias_into_product",))
    followed = rewritten(lambda x, w, b: linear(x, w, b).relu(), X, w, b)
    assert "addmm" not in followed and "mm" in followed


def test_a_bias_of_a_map_of_batches_goes_into_the_product() -> None:
    linear = torch.nn.functional.linear
    x, w, b = torch.randn(2, 4, 6), torch.randn(5, 6), torch.randn(5)
    assert "addmm" in rewritten(linear_of(linear), x, w, b)
    assert "addmm" not in rewritten(lambda x, w, b: linear(x, w) + b[:4, None].sum(), x, w, b)


def linear_of(linear: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda x, w, b: linear(x, w, b)
