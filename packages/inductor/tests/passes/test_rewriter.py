"""A rule is one declaration: it finds every spelling of a value, and nothing that is another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor.ir.nodes import name_of
from flambeau_inductor.node_queries import val_of
from flambeau_inductor.passes.constants import Constants
from flambeau_inductor.passes.rewriter import Ledger, NumberPattern, Rule, Seen, Value, ops, rewrite
from torch import Tensor, fx

from tests.pre_grad.test_attention import captured

X, W = torch.randn(6, 32), torch.randn(32)

# --- a new pattern: what a graph of torch functions computes as F.rms_norm does ----------------

_x = Value("x")
_power = ops.pow(_x, 2) | ops.square(_x) | _x * _x
_mean = ops.mean(_power, where=lambda node: node.args[1:] == (-1,) and node.kwargs["keepdim"])
RMS_NORM = Rule(
    "rms_norm",
    (_x * ops.rsqrt(_mean + NumberPattern("eps")) * Value("w"),),
    lambda m: m.call(F.rms_norm, m["x"], [val_of(m["w"]).shape[-1]], m["w"], m["eps"]),
)


def by_powers(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w


def turned_around(x: Tensor, w: Tensor) -> Tensor:
    return w * ((1e-6 + torch.square(x).mean(-1, keepdim=True)).rsqrt() * x)


def by_itself(x: Tensor, w: Tensor) -> Tensor:
    return torch.mul(x, torch.rsqrt(torch.add(torch.mean(x * x, -1, keepdim=True), 1e-6))) * w


def of_another(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt((x + 1).pow(2).mean(-1, keepdim=True) + 1e-6) * w


def to_another(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True).abs() + 1e-6) * w


def seen_by_others(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    factor = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
    return x * factor * w, factor


@pytest.mark.parametrize("fn", [by_powers, turned_around, by_itself])
def test_a_rule_finds_every_spelling(fn: Callable[..., Tensor]) -> None:
    gm, ledger = captured(fn, X, W), Ledger()
    assert rewrite(gm.graph, (RMS_NORM,), ledger) == 1 and ledger.done == ["rms_norm"]
    assert [n.target for n in gm.graph.nodes if n.op.startswith("call")] == [F.rms_norm]
    gm.recompile()
    torch.testing.assert_close(gm(X, W), fn(X, W))


@pytest.mark.parametrize("fn", [of_another, to_another, seen_by_others])
def test_and_nothing_else(fn: Callable[..., Any]) -> None:
    gm = captured(fn, X, W)
    before = str(gm.graph)
    assert rewrite(gm.graph, (RMS_NORM,)) == 0 and str(gm.graph) == before


def test_rules_are_left_out_by_name_and_bounded() -> None:
    def twice(x: Tensor, w: Tensor) -> Tensor:
        return by_powers(by_powers(x, w), w)

    assert rewrite(captured(twice, X, W).graph, (RMS_NORM,), Ledger(skip=("rms_norm",))) == 0
    for fuel in range(3):
        gm = captured(twice, X, W)
        assert rewrite(gm.graph, (RMS_NORM,), Ledger(fuel=fuel)) == fuel
        gm.recompile()
        torch.testing.assert_close(gm(X, W), twice(X, W))


def test_views_are_looked_through_in_primitives() -> None:
    def through(node: fx.Node) -> tuple[fx.Node, ...] | None:
        return (node,) if name_of(node) in ("reshape", "permute") else None

    def fn(x: Tensor) -> Tensor:
        return torch.exp(torch.log(x).reshape(4, 48).t())

    rule = Rule("exp_of_log", (ops.exp(Seen(ops.log(_x), through)),), lambda m: m["x"])
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), [X.abs()])
    assert rewrite(gm.graph, (rule,)) == 1


# --- constants ---------------------------------------------------------------------------------


def last(fn: Callable[..., Any], *inputs: Tensor, primitives: bool = False) -> Tensor | None:
    """What is known of the result of `fn`."""
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), [*inputs]) if primitives else None
    graph = (gm or captured(fn, *inputs)).graph
    (result,) = graph.find_nodes(op="output")[0].all_input_nodes
    return Constants(graph).of(result)


KNOWN: dict[str, Callable[[Tensor], Tensor]] = {
    "made": lambda x: x.new_ones(4, 4).tril().cumsum(0) / 3,
    "looked up": lambda x: x.new_ones(5).cumsum(0)[x.new_full((3,), 2).long()],
    "sorted, of products": lambda x: (torch.ones_like(x) @ x.new_full((32, 3), 2.0)).sort(0)[0],
    "like another": lambda x: torch.zeros_like(x).logical_not().float().flip(0),
}
UNKNOWN: dict[str, Callable[[Tensor], Tensor]] = {
    "an input": lambda x: x.new_ones(6, 32) + x,
    "drawn": lambda x: torch.bernoulli(x.new_full((4,), 0.5)),
    "drawn, like another": lambda x: torch.rand_like(x.new_ones(3)),
    "dropped": lambda x: F.dropout(x.new_ones(8), 0.5, True),
    "left as it was": lambda x: torch.empty_like(x).mul(0),
}


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("primitives", [False, True])
def test_what_is_the_same_at_every_call_is_known(name: str, primitives: bool) -> None:
    fn = KNOWN[name]
    found = last(fn, X, primitives=primitives)
    assert found is not None
    torch.testing.assert_close(found, fn(X))


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_varies_is_not_and_draws_nothing(name: str) -> None:
    gm = captured(UNKNOWN[name], X)
    (result,) = gm.graph.find_nodes(op="output")[0].all_input_nodes
    state = torch.get_rng_state()
    assert Constants(gm.graph).of(result) is None
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("when", ["before", "after", "through a view"])
def test_what_an_input_is_written_to_varies(when: str) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        made = x.new_ones(32)
        if when == "before":
            made.add_(x[0])
        elif when == "through a view":
            made[2:].add_(x[0, 2:])
        result = made * 2
        if when == "after":
            made.copy_(x[0])
        return result, made

    gm = captured(fn, X)
    made, result = gm.graph.find_nodes(op="call_method", target="new_ones")[0], None
    for node in gm.graph.nodes:
        result = node if node.target is torch.mul or "mul" in str(node.target) else result
    constants = Constants(gm.graph)
    assert constants.of(made) is None and constants.of(result) is None


def test_work_is_bounded() -> None:
    def fn(x: Tensor) -> Tensor:
        made = x.new_ones(1 << 14, 64)
        for _ in range(3):
            made = made @ made.t() @ made
        return made

    graph = fx.symbolic_trace(fn).graph
    with torch._subclasses.FakeTensorMode() as mode:
        fake = mode.from_tensor(X)
        values: dict[fx.Node, Any] = {}
        for node in graph.nodes:
            if node.op != "output":
                args = fx.node.map_arg(node.args, values.__getitem__)
                node.meta["val"] = values[node] = (
                    fake
                    if node.op == "placeholder"
                    else getattr(args[0], node.target)(*args[1:])
                    if node.op == "call_method"
                    else node.target(*args)
                )
    (result,) = graph.find_nodes(op="output")[0].all_input_nodes
    assert Constants(graph).of(result) is None
