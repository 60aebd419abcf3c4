"""`place += x` of a tensor writes into the tensor and assigns it to where it is: what holds it does
not change, so that an export of it has the write and nothing else."""

import collections
import copy
import itertools
import types

import flambeau_capture as fc
import pytest
import torch
from torch import nn

PLACES = [
    "self.buffer", "self.plain", "self.object.tensor", "self.dict['key']", "self.ordered['key']",
    "self.list[0]", "self.parameter", "self.parameters_[0]",
]  # fmt: skip
STATEMENTS = [
    "{0} += x", "{0} *= x", "{0} -= 2", "{0} = {0}.mul_(x)", "{0}, y = {0}, x",
    "y = {0}; y += x; {0} = y", "{0}[:1] = x[:1]",
]  # fmt: skip
CASES = list(itertools.product(PLACES, STATEMENTS))


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("buffer", torch.ones(3))
        self.plain, self.list = torch.ones(3), [torch.ones(3)]
        self.object = types.SimpleNamespace(tensor=torch.ones(3))
        self.dict = {"key": torch.ones(3)}
        self.ordered = collections.OrderedDict(key=torch.ones(3))
        self.parameter = nn.Parameter(torch.ones(3), requires_grad=False)
        self.parameters_ = nn.ParameterList([nn.Parameter(torch.ones(3), requires_grad=False)])


@pytest.mark.parametrize(("place", "statement"), CASES)
def test_a_write_into_what_is_there_changes_no_holder(place, statement):
    text = f"def forward(self, x):\n    {statement.format(place)}\n    return {place} * 2\n"
    made: dict = {}
    exec(text, made)
    module = type("Written", (Holder,), {"forward": made["forward"]})()
    eager, x = copy.deepcopy(module), torch.arange(3.0)
    exported = fc.export(module, x)
    for _ in range(2):
        assert torch.equal(exported(x), eager(x))
    mine, theirs = (eval(place, {"self": each}) for each in (module, eager))
    assert torch.equal(mine, theirs)
