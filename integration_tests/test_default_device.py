"""Training with a default device set: compiled to the end, also what is compiled in backward."""

import copy

import pytest
import torch
from torch import nn

import flambeau


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.3))

    def forward(self, x):
        y = self.layers(x)
        scale = torch.arange(4.0, device=x.device) + torch.rand(4, device=x.device)
        return (y * scale).square().mean(), torch.zeros(2), torch.tensor([1, 2]), y[y > 0].sum()


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_training_is_eagers(device):
    torch.manual_seed(0)
    net, data = Net(), [torch.randn(size, 4) for size in (8, 8, 9, 11)]
    reference, compiled = copy.deepcopy(net), flambeau.compile(net)
    with torch.device(device):
        for seed, x in enumerate(data):
            results = []
            for each in (compiled, reference):
                torch.manual_seed(seed)
                results.append(each(x))
                results[-1][0].backward()
            for ours, theirs in zip(*results, strict=True):
                assert (ours.device, ours.dtype) == (theirs.device, theirs.dtype)
                if theirs.device.type != "meta":
                    torch.testing.assert_close(ours, theirs)
            for ours, theirs in zip(net.parameters(), reference.parameters(), strict=True):
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    report = flambeau.report(compiled)
    assert not report.fallbacks and len(report.records) <= 2
