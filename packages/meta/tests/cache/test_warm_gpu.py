"""A warm start on a GPU: the driver loads what was built, and Triton is not imported. What needs no
GPU of this is in the inductor's tests/runtime/gpu/test_binaries.py."""

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

PROGRAM = """
import json, sys, torch, flambeau
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.LayerNorm(96)).cuda()
x = torch.randn(32, 64, device="cuda")
compiled = flambeau.compile(net)
for _ in range(4):
    got = torch.autograd.grad(compiled(x).square().sum(), net.parameters())
there = "triton" in sys.modules
wanted = torch.autograd.grad(net(x).square().sum(), net.parameters())
torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)
unaligned = torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
plain = flambeau.compile(lambda x: torch.softmax(x * 3, -1))
for y in (x, unaligned):
    torch.testing.assert_close(plain(y), torch.softmax(y * 3, -1))
records = flambeau.report(compiled).records + flambeau.report(plain).records
print(json.dumps({"disk": [each.from_disk for each in records], "triton": there}))
"""


def test_the_second_process_does_without_triton(twice):
    cold, warm = twice(PROGRAM)
    assert cold["triton"] and not any(cold["disk"])
    assert not warm["triton"] and warm["disk"] and all(warm["disk"])
