"""What a key says of how distributed tensors answer operators."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import fx
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication

from flambeau.cache.distributed_keys import dispatch
from flambeau.cache.graph_data import CannotKey


def _graph(*, distributed: bool) -> fx.GraphModule:
    def place(x: torch.Tensor) -> torch.Tensor:
        return x

    if distributed:
        place.given = {}  # type: ignore[attr-defined]
    graph = fx.Graph()
    graph.output(graph.call_function(place, (graph.placeholder("x"),)))
    return fx.GraphModule(torch.nn.Module(), graph)


def _tables() -> dict[str, dict[Any, Any]]:
    dispatcher: Any = DTensor._op_dispatcher
    rules = vars(dispatcher.sharding_propagator)
    names = ("op_to_rules", "op_strategy_funcs", "op_single_dim_strategy_funcs")
    return {"handlers": dispatcher._custom_op_handlers, **{n: rules.get(n, {}) for n in names}}


def test_torch_as_it_is_has_a_text_that_changes_with_implicit_replication() -> None:
    usual = dispatch(_graph(distributed=True), [])
    assert "aten.convolution.default: torch." in usual
    assert usual == dispatch(_graph(distributed=True), [])
    with implicit_replication():
        assert dispatch(_graph(distributed=True), []) != usual


@pytest.mark.parametrize("table", ["handlers", "op_strategy_funcs", "op_single_dim_strategy_funcs"])
@pytest.mark.parametrize("wrap", [lambda rule: rule, functools.partial], ids=["plain", "partial"])
def test_a_rule_of_the_users_leaves_no_key(
    table: str, wrap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def own(*args: Any) -> Any:
        raise AssertionError

    monkeypatch.setitem(_tables()[table], torch.ops.aten.mm.default, wrap(own))
    with pytest.raises(CannotKey, match=r"a rule of aten\.mm\.default"):
        dispatch(_graph(distributed=True), [])
    assert dispatch(_graph(distributed=False), []) == ""
