"""Whole steps under autocast: as near to the same steps in float64 as eager's are."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.collective_programs import ResidualBlock
from integration_tests.distributed.two_ranks import two_ranks

WIDTH, SEEDS, STEPS = 16, 4, 3
MARGIN = 1.1
"""Of the distances' root mean square; a sum of ranks that is rounded to bfloat16 once more is far
beyond it."""


def _step(model, optimizer, x, y):
    loss = F.mse_loss(model(x), y.to(x.dtype))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _trained(run, seed, rank, dtype):
    """Losses and what becomes of the parameters, in float64."""
    torch.manual_seed(seed)
    model = nn.Sequential(ResidualBlock(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)).to(dtype)
    mesh = init_device_mesh("cpu", (2,))
    for each in (model[0], model):
        fully_shard(each, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    made, found = torch.Generator().manual_seed(2 * seed + rank), []
    half = dtype is not torch.float64
    for _ in range(STEPS):
        x, y = (torch.randn(8, WIDTH, generator=made).to(dtype) for _ in range(2))
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            found.append(run(model, optimizer, x, y))
    found += [each.detach().full_tensor().flatten() for each in model.parameters()]
    return torch.cat([each.flatten().double() for each in found])


def _distances(rank):
    """Of eager's and of compiled steps, over all seeds."""
    options, found = {"capture.gather_parameters": True}, []
    compiled = flambeau.compile(_step, fullgraph=True, options=options)
    for seed in range(SEEDS):
        exact = _trained(_step, seed, rank, torch.float64)
        for place, run in enumerate((_step, compiled)):
            found.append((place, _trained(run, seed, rank, torch.float32) - exact))
    return [
        torch.cat([each for place, each in found if place == of]).square().mean().sqrt().item()
        for of in (0, 1)
    ]


def test_compiled_steps_are_as_near_to_float64_as_eagers(tmp_path):
    for eager, compiled in two_ranks(_distances, tmp_path):
        assert 0 < compiled <= MARGIN * eager, (eager, compiled)
