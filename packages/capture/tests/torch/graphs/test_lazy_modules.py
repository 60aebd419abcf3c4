"""Lazy modules: the call that makes their parameters is Python's, then all is one graph.

Generated: every lazy module of torch's, called, enclosed, and between breaks.
"""

import pytest
import torch
from flambeau_capture import Unsupported
from flambeau_capture.api import compiler_of
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

LAZY = [kind for kind in vars(nn).values() if isinstance(kind, type)]
LAZY = [kind for kind in LAZY if issubclass(kind, LazyModuleMixin)]


def made(kind):
    """One, and an argument."""
    if kind is nn.LazyLinear:
        return kind(3), torch.randn(2, 4)
    dims = int(kind.__name__[-2])
    given = torch.randn(2, 4, *(5,) * dims)
    return kind() if "Norm" in kind.__name__ else kind(3, 2), given


class Enclosing(nn.Module):
    def __init__(self, inner, breaks):
        super().__init__()
        self.inner = inner
        self.breaks = breaks

    def forward(self, x):
        y = self.inner(x * 2).relu()
        if self.breaks:
            print(end="")
        return y + 1


PLACES = {
    "alone": lambda inner: inner,
    "enclosed": lambda inner: Enclosing(inner, False),
    "before a break": lambda inner: Enclosing(inner, True),
    "in a row": lambda inner: nn.Sequential(nn.Identity(), inner),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", LAZY)
def test_the_first_call_is_pythons(capture, backend, kind, place):
    (inner, x), (other, _) = made(kind), made(kind)
    ours, theirs = PLACES[place](inner), PLACES[place](other)
    compiled = capture(ours)
    for call in range(3):
        found = []
        for module in (compiled, theirs):
            torch.manual_seed(0)
            result = module(x)
            found.append([result, *module.state_dict().values(), torch.rand(1)])
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
        begun = call > 0 or place == "alone"  # its call is Python's, and comes to its forward
        assert type(inner) is not kind and len(backend) == begun * (1 + ("break" in place))
    assert len(compiler_of(compiled).records.breaks) == ("break" in place)


def test_one_graph_is_wanted_of_the_first_call(capture):
    inner, x = made(nn.LazyLinear)
    ours = Enclosing(inner, False)
    compiled = capture(ours, nopython=True)
    with pytest.raises(Unsupported, match="makes the parameters"):
        compiled(x)
    ours(x)
    assert torch.equal(compiled(x), ours(x))
