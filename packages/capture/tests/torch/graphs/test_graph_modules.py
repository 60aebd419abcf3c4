"""Modules of torch.fx in captured code: called, hooked, nested, and written again."""

import pytest
import torch
from torch import fx


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.linear(x).relu() * self.scale + 1


class Holding(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


class Nested(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.layers = torch.nn.Sequential(inner, torch.nn.Tanh())

    def forward(self, x):
        return self.layers(x).sum(0)


def as_function(module):
    return lambda x: module(x) - 1


@pytest.mark.parametrize("place", [as_function, Holding, Nested])
def test_in_one_graph_and_captured_again_once_written_again(capture, backend, same, place):
    graph_module = fx.symbolic_trace(Block())
    program = place(graph_module)
    compiled = capture(program, nopython=True)
    x = torch.randn(2, 3)
    same(compiled(x), program(x))
    same(compiled(x), program(x))
    assert len(backend) == 1
    (added,) = (node for node in graph_module.graph.nodes if node.args[1:] == (1,))
    added.args = (added.args[0], 5)
    graph_module.recompile()
    same(compiled(x), program(x))
    assert len(backend) == 2


def test_hooks_are_called(capture, same):
    graph_module = fx.symbolic_trace(Block())
    program = Holding(graph_module)
    compiled = capture(program, nopython=True)
    x = torch.randn(2, 3)
    same(compiled(x), program(x))
    handle = graph_module.register_forward_hook(lambda module, given, result: result * 3)
    same(compiled(x), program(x))
    handle.remove()
    same(compiled(x), program(x))


class OwnCall(fx.GraphModule):
    def __call__(self, x):
        return super().__call__(x) * 10


def test_a_call_of_the_class_itself_is_made(capture, same):
    traced = fx.symbolic_trace(Block())
    module = OwnCall(traced, traced.graph)
    compiled = capture(lambda x: module(x))
    x = torch.randn(2, 3)
    same(compiled(x), module(x))


def test_what_it_raises_is_raised(capture):
    graph_module = fx.symbolic_trace(Block())
    compiled = capture(lambda x: graph_module(x))
    with pytest.raises(RuntimeError) as expected:
        graph_module(torch.randn(2, 4))
    with pytest.raises(RuntimeError) as found:
        compiled(torch.randn(2, 4))
    assert str(found.value) == str(expected.value)
