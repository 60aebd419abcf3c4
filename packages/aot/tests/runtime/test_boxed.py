"""A graph run as it is, under the boxed convention."""

import weakref

import flambeau_aot as aot
import pytest
import torch
from torch import fx


class Inner(torch.nn.Module):
    def forward(self, x):
        return x * 2


class Model(torch.nn.Module):
    """Every kind of node, and arguments of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.inner = Inner()

    def forward(self, x, y):
        z = torch.clamp(self.inner(x) + self.weight, min=float("-inf"), max=1.5)
        parts = torch.cat([z, y], dim=0)[..., 1:4]
        return parts.to(torch.float64), z.sum(), torch.full((2,), -0.0), parts.add(y[0], alpha=3)


class KeepInner(fx.Tracer):
    def is_leaf_module(self, module, name):
        return isinstance(module, Inner)


def test_every_kind_of_node() -> None:
    model = Model()
    gm = fx.GraphModule(model, KeepInner().trace(model))
    assert {node.op for node in gm.graph.nodes} == {
        "placeholder", "get_attr", "call_function", "call_method", "call_module", "output",
    }  # fmt: skip
    x, y = torch.randn(3), torch.randn(3)
    args = [x, y]
    for one, other in zip(aot.boxed(gm)(args), model(x, y), strict=True):
        assert torch.equal(one, other)
    assert args == []


def test_values_are_let_go_after_their_last_use() -> None:
    alive: list[int] = []
    seen: list[weakref.ref] = []

    def watch(x):
        made = x + 1
        seen.append(weakref.ref(made))
        alive.append(sum(item() is not None for item in seen))
        return made

    graph = fx.Graph()
    value = graph.placeholder("x")
    for _ in range(6):
        value = graph.call_function(watch, (value,))
    graph.call_function(watch, (value,))  # read by nobody
    graph.output((value,))
    given = torch.randn(3)
    reference = weakref.ref(given)
    call = aot.boxed(fx.GraphModule(torch.nn.Module(), graph))
    args = [given]
    del given
    call(args)
    assert max(alive) == 2
    assert reference() is None


def test_an_error_shows_the_line_of_the_graph() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.mm, (x, x)),))
    with pytest.raises(RuntimeError) as caught:
        aot.boxed(fx.GraphModule(torch.nn.Module(), graph))([torch.randn(2, 3)])
    assert "v_mm = call_0(v_x, v_x)" in "".join(map(str, caught.traceback))
