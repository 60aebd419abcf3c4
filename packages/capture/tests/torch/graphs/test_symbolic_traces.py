"""`torch.fx.symbolic_trace` of compiled callables, and of what calls them: the graph of the
original, and nothing is compiled while it is traced."""

import inspect
import types

import pytest
import torch
from flambeau_capture import disable, optimize
from flambeau_capture.api import compiler_of


def plain(x):
    return x.sin() + 1


def annotated(x: torch.Tensor, y: torch.Tensor = None) -> torch.Tensor:
    return x * 2 if y is None else x * y


def packed(x, *rest, scale=2, **others):
    return (x + len(rest)) * scale


def closing(k):
    def inner(x):
        return x * k + plain(x)

    return inner


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x).relu() + 1


TARGETS = {
    "function": plain,
    "lambda": lambda x: x.cos() * 3,
    "annotated": annotated,
    "packed arguments": packed,
    "closure": closing(3.0),
    "module": Layer(),
    "bound method": Layer().forward,
    "built in": torch.sin,
    "container": torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()),
}
AROUND = {
    "itself": lambda fn: fn,
    "in a function": lambda fn: lambda x: fn(x * 2) + 1,
    "in a module": lambda fn: _Holding(fn),
    "twice": lambda fn: lambda x: fn(fn(x)),
    "disabled": disable,
}


class _Holding(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x) + 1


def traced(fn):
    try:
        return torch.fx.symbolic_trace(fn).code
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("warm", [False, True])
def test_the_graph_of_the_original(backend, target, around, warm):
    fn, wrap = TARGETS[target], AROUND[around]
    if around == "disabled" and isinstance(fn, torch.nn.Module):
        return  # it answers no module
    ours = optimize(backend, raise_internal_errors=True, never_slower=False)(fn)
    if warm:
        ours(torch.ones(2, 2))
    before = len(backend), len(compiler_of(ours).records.frames)
    wanted = traced(fn if around == "disabled" else wrap(fn))
    assert traced(wrap(ours)) == wanted
    assert (len(backend), len(compiler_of(ours).records.frames)) == before
    assert torch.equal(ours(torch.ones(2, 2)), fn(torch.ones(2, 2)))
    assert len(backend) >= 1


def test_it_is_as_before_afterwards(capture):
    fn = capture(plain)
    torch.fx.symbolic_trace(fn)
    assert inspect.isfunction(fn) and fn.__code__ is plain.__code__
    assert type(fn) is not types.FunctionType
