"""The least that has to work: a function, a module, a branch. Under five seconds."""

import torch
from flambeau_capture import Options, Unsupported, list_backends, optimize


def test_a_function(capture, backend):
    def fn(x, y):
        return torch.cos(x) + torch.sin(y)

    x, y = torch.randn(10), torch.randn(10)
    compiled = capture(fn)
    for _ in range(3):
        assert torch.equal(compiled(x, y), fn(x, y))
    assert len(backend) == 1
    assert [node.op for node in backend.graphs[0].graph.nodes][:2] == ["placeholder"] * 2


def test_a_module(capture, backend):
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    x = torch.randn(2, 4)
    compiled = capture(module)
    assert torch.equal(compiled(x), module(x))
    assert [node.op for node in backend.graphs[0].graph.nodes].count("get_attr") == 2
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert isinstance(compiled, torch.nn.Sequential)


def test_a_branch_on_data(capture, backend):
    def fn(x):
        if x.sum() < 0:
            return x - 1
        return x + 1

    compiled = capture(fn)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert torch.equal(compiled(x), fn(x))
    assert len(backend) == 3


def test_no_break_allowed():
    def fn(x):
        return x + 1 if x.sum() > 0 else x

    compiled = optimize("eager", nopython=True)(fn)
    try:
        compiled(torch.ones(2))
    except Unsupported as error:
        text = str(error)
        assert "FB0001" in text and __file__ in text and "x.sum() > 0" in text
    else:
        raise AssertionError("a graph break went unnoticed")


def test_backends_and_options():
    assert "eager" in list_backends()
    assert Options().cache_size_limit == 8
