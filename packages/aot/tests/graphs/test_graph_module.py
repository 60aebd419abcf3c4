"""Graph modules whose code comes late behave as those whose code comes at once."""

import copy
import pickle

import torch
from flambeau_aot.partition.split import TracedModule
from torch import fx


def build() -> TracedModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.sin, (x,)),))
    return TracedModule(graph)


def test_code_is_generated_at_the_first_use() -> None:
    gm = build()
    assert "_code" not in gm.__dict__
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(gm(x)[0], x.sin())
        assert torch.equal(gm.forward(x)[0], x.sin())
    assert "torch.sin" in build().code


def test_edited_graph_runs_after_recompile() -> None:
    gm = build()
    x = torch.randn(3)
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    assert torch.equal(gm(x)[0], x.cos())


def test_two_modules_do_not_share_code() -> None:
    one, two = build(), build()
    x = torch.randn(3)
    one(x)
    for node in two.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.tanh
    assert torch.equal(two(x)[0], x.tanh())
    assert torch.equal(one(x)[0], x.sin())


def test_copies_run() -> None:
    x = torch.randn(3)
    for gm in (build(), build().ready()):
        assert torch.equal(copy.deepcopy(gm)(x)[0], x.sin())
        assert torch.equal(pickle.loads(pickle.dumps(gm))(x)[0], x.sin())
