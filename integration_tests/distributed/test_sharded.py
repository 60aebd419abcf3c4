"""Sharded models with kernels: blocks under FSDP2, and tensor-parallel modules."""

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.collective_programs import ResidualBlock
from integration_tests.distributed.two_ranks import two_ranks

WIDTH = 16


def model():
    torch.manual_seed(0)
    return nn.Sequential(
        ResidualBlock(WIDTH, 4 * WIDTH), ResidualBlock(WIDTH, 4 * WIDTH), nn.Linear(WIDTH, 4)
    )


def trained(run, parameters, seed):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    losses = []
    made = torch.Generator().manual_seed(seed)
    for _ in range(4):
        x = torch.randn(8, WIDTH, generator=made)
        y = torch.randint(0, 4, (8,), generator=made)
        optimizer.zero_grad()
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _fully_sharded(rank):
    mesh = init_device_mesh("cpu", (2,))
    found = []
    for how in ("eager", "whole", "blocks"):
        sharded = model()
        if how == "blocks":
            for block in list(sharded)[:2]:
                block.compiled = flambeau.compile(block.forward, fullgraph=True)
                block.forward = block.compiled
        for block in list(sharded)[:2]:
            fully_shard(block, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        run = flambeau.compile(sharded) if how == "whole" else sharded
        losses = trained(run, sharded.parameters(), rank)
        reports = [flambeau.report(run)] if how == "whole" else []
        if how == "blocks":
            reports = [flambeau.report(block.compiled) for block in list(sharded)[:2]]
        kernels = sum(each.kernels for each in reports)
        found.append((losses, kernels, sum(len(each.fallbacks) for each in reports)))
    return found


def _tensor_parallel(rank):
    mesh = init_device_mesh("cpu", (2,))
    found = []
    for compiled in (False, True):
        parallel = model()
        for block in list(parallel)[:2]:
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        run = flambeau.compile(parallel) if compiled else parallel
        losses = trained(run, parallel.parameters(), seed=7)
        report = flambeau.report(run) if compiled else None
        found.append((losses, report.graphs if report else 0))
    return found


@pytest.mark.parametrize("program", [_fully_sharded], ids=["fsdp2"])
def test_sharded_blocks_are_compiled(program, tmp_path):
    for eager, *others in two_ranks(program, tmp_path):
        for losses, kernels, fallbacks in others:
            torch.testing.assert_close(losses, eager[0], rtol=1e-4, atol=1e-5)
            assert kernels > 0
            assert fallbacks == 0


def test_tensor_parallel_modules_are_compiled(tmp_path):
    for (plain, _), (losses, graphs) in two_ranks(_tensor_parallel, tmp_path):
        torch.testing.assert_close(losses, plain, rtol=1e-4, atol=1e-5)
        assert graphs > 0
