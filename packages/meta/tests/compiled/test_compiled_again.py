"""What captures a function anew looks through what `compile` made of it: the answers are about the
function, in whichever way it was compiled."""

import pytest
import torch
from torch import nn

import flambeau
from flambeau.bisecting.trials import TrialProgram

X = torch.linspace(-2, 2, 4)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    yield
    flambeau.uninstall()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.map = nn.Linear(4, 4)

    def forward(self, x, scale=2.0):
        return torch.relu(self.map(x)) * scale


def fn(x):
    return x.sin() + 1


def wrong(gm, example_inputs):
    """A backend whose graphs answer something else, so that who runs it is found out."""
    return lambda *inputs: tuple(each + 100 for each in gm(*inputs))


def by_torch(target):
    flambeau.install()
    return torch.compile(target, backend=wrong)


def ours(target):
    return flambeau.compile(target, backend=wrong)


def compiled_in_place(module):
    flambeau.install()
    module.compile(backend=wrong)
    return module


def compiled_forward(module):
    module.forward = ours(module.forward)
    return module


WAYS = {
    "function": lambda: (ours(fn), fn),
    "function, torch.compile": lambda: (by_torch(fn), fn),
    "function, twice": lambda: (ours(ours(fn)), fn),
    "module": lambda: (ours(made := Scaled()), made),
    "module, torch.compile": lambda: (by_torch(made := Scaled()), made),
    "method": lambda: (ours((made := Scaled()).forward), made),
    "Module.compile": lambda: (compiled_in_place(made := Scaled()), made.forward),
    "its forward": lambda: (compiled_forward(made := Scaled()), lambda x: Scaled.forward(made, x)),
    "what it calls": lambda: ((lambda part: lambda x: part(x))(ours(fn)), fn),
}
each_way = pytest.mark.parametrize("way", WAYS)


@each_way
def test_export(way):
    compiled, eager = WAYS[way]()
    torch.testing.assert_close(flambeau.export(compiled, X)(X), eager(X))


@each_way
def test_plan(way):
    compiled, eager = WAYS[way]()
    planned = flambeau.plan(compiled, X)
    assert len(planned.graphs) == 1
    torch.testing.assert_close(planned.result, eager(X))


@each_way
def test_what_bisect_expects(way):
    compiled, eager = WAYS[way]()
    program = TrialProgram(compiled, [((X,), {})], {}, "")
    torch.testing.assert_close(program.expected[0].values[0][1], eager(X).detach())
    assert program.attempt("capture", "eager") is None


def test_package(tmp_path):
    compiled, eager = WAYS["module, torch.compile"]()
    loaded = flambeau.load(flambeau.package(compiled, X, path=tmp_path / "scaled"))
    torch.testing.assert_close(loaded(X), eager(X))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("way", [each for each in WAYS if "odule" in each])
def test_torch_export(way, strict):
    compiled, eager = WAYS[way]()
    if way == "module" and strict:
        pytest.skip("torch's compiler looks into no callable of another compiler")
    program = torch.export.export(compiled, (X,), strict=strict)
    torch.testing.assert_close(program.module()(X), eager(X))
