"""Modules that `disable` was given: modules still, of the same state, whose calls are Python's."""

from __future__ import annotations

import copy

import flambeau_capture
import pytest
import torch
from torch import nn


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(3, 3), inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(self.first(x)).sin()


@pytest.mark.parametrize("recursive", [True, False])
@pytest.mark.parametrize("made", [lambda: nn.Linear(3, 3), lambda: nn.Sequential(nn.Linear(3, 3))])
def test_a_disabled_module_is_a_part_of_the_module_that_holds_it(capture, backend, made, recursive):
    inner = made()
    module = Outer(flambeau_capture.disable(inner, recursive=recursive))
    assert {*map(id, inner.parameters())} < {*map(id, module.parameters())}
    assert [*module.state_dict()] == [*Outer(inner).state_dict()]
    assert isinstance(module.inner, type(inner)) and module.inner == inner
    fn, x = capture(module), torch.randn(2, 3)
    for _ in range(3):
        assert torch.equal(fn(x), module(x))
    targets = [str(node.target) for g in backend.graphs for node in g.graph.nodes]
    # what is disabled alone leaves the call of `forward` below it to be compiled
    assert sum("linear" in target for target in targets) == (1 if recursive else 2)
    module.eval().double()
    assert not inner.training and next(inner.parameters()).dtype == torch.float64
    assert torch.equal(fn(x.double()), module(x.double()))
    assert torch.equal(copy.deepcopy(module)(x.double()), module(x.double()))


def test_its_call_is_an_error_where_one_graph_is_asked_for(capture):
    module = flambeau_capture.disable(nn.Linear(3, 3))
    fn = flambeau_capture.compile(lambda x: module(x) * 2, fullgraph=True)
    with pytest.raises(flambeau_capture.Unsupported, match="FB0006"):
        fn(torch.randn(2, 3))


def test_beside_the_module_that_it_was_made_of(capture):
    inner = nn.Linear(3, 3)
    twin = flambeau_capture.disable(inner)

    def f(x, first, second):
        return first(x) + second(x) * 2

    x = torch.randn(2, 3)
    for pair in ((inner, twin), (twin, inner), (twin, twin)):
        assert torch.equal(capture(f)(x, *pair), f(x, *pair))
