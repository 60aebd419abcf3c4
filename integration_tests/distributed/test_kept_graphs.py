"""Graphs of distributed tensors from the disk: a second process compiles nothing."""

import functools
import os

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.collective_programs import ResidualBlock
from integration_tests.distributed.two_ranks import two_ranks

PLAN = {"up": ColwiseParallel(), "down": RowwiseParallel()}


def _whole(value):
    return value.detach().full_tensor() if isinstance(value, DTensor) else value.detach()


def _blocks(compiled, mesh):
    """A block in columns and rows: losses and gradients of two steps."""
    torch.manual_seed(0)
    block, found = parallelize_module(ResidualBlock(8, 32), mesh, PLAN), []
    run = compiled(block)
    for step in range(2):
        x = torch.full((4, 8), 0.5 + step).requires_grad_()
        loss = run(x).square().mean()
        grads = torch.autograd.grad(loss, [x, *block.parameters()])
        found += map(_whole, (loss, *grads))
    return found


def _placements(compiled, mesh):
    """Results that are spread in each way, and what is made of a plain tensor."""

    def program(x, y):
        made = DTensor.from_local(y.exp(), mesh, [Partial()])
        return x * 2, x.sum(0), made, made.redistribute(placements=[Replicate()]), (x @ x.mT)

    x = distribute_tensor(torch.arange(24.0).view(6, 4), mesh, [Shard(0)]).requires_grad_()
    out = compiled(program)(x, torch.ones(3))
    (grad,) = torch.autograd.grad(sum(_sum(each) for each in out), [x])
    assert [str(each.placements) for each in program(x, torch.ones(3))] == [
        str(each.placements) for each in out
    ]
    return [*map(_whole, out), _whole(grad)]


def _sum(value):
    return value.full_tensor().sum()


def _losses(compiled, mesh):
    scores = torch.arange(24.0).view(4, 6).sin()
    x = distribute_tensor(scores, mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        loss = compiled(lambda x, y: F.cross_entropy(x, y))(x, torch.arange(4))
        loss.backward()
    return [_whole(loss), _whole(x.grad)]


def _writes(compiled, mesh):
    x = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    run = compiled(lambda x: x.mul_(2).sin())
    return [_whole(run(x)), _whole(x)]


def _step(model, optimizer, x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _sharded(compiled, mesh):
    """Whole steps of a model whose parameters the graph gathers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    for each in (model[0], model[2], model):
        fully_shard(each, mesh=mesh)
    optimizer, run = torch.optim.SGD(model.parameters(), lr=0.1), compiled(_step)
    losses = [run(model, optimizer, torch.full((2, 4), 0.5 + step)) for step in range(2)]
    return [*losses, *map(_whole, model.parameters())]


PROGRAMS = {
    "sharded": _sharded,
    "block": _blocks,
    "placements": _placements,
    "losses": _losses,
    "writes": _writes,
}


def _run(folder, shared, names, rank):
    """What each program gives, beside eager; whether its graphs are from the disk, or why not."""
    os.environ["FLAMBEAU_CACHE_DIR"] = os.path.join(folder, "all" if shared else f"rank{rank}")
    mesh, found = init_device_mesh("cpu", (2,)), {}
    for name in names:
        program, made = PROGRAMS[name], []

        def compiled(function, made=made):
            options = {"capture.gather_parameters": True}
            made.append(flambeau.compile(function, fullgraph=True, options=options))
            return made[-1]

        wanted, given = program(lambda function: function, mesh), program(compiled, mesh)
        torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-6, msg=name)
        records = [each for run in made for each in flambeau.report(run).records]
        found[name] = [(x.from_disk, x.not_cached, bool(x.cache_faults)) for x in records]
    return found


def test_a_second_process_compiles_nothing(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    run = functools.partial(_run, str(tmp_path), False, (*PROGRAMS,))
    for folder, warm in ((first, False), (second, True)):
        folder.mkdir()
        for found in two_ranks(run, folder):
            for name, graphs in found.items():
                assert graphs, name
                assert graphs == [(warm, "", False)] * len(graphs), (name, warm, graphs)


def _changed(folder):
    """Change what every entry says; how many there were."""
    found = [*folder.rglob("program.json")]
    for each in found:
        each.write_bytes(each.read_bytes()[:-9] + b"123456789")
    return len(found)


def test_a_shared_folder_that_is_broken_is_mended(tmp_path):
    run = functools.partial(_run, str(tmp_path), True, ("block",))
    for name, warm in (("first", False), ("broken", False), ("mended", True)):
        (tmp_path / name).mkdir()
        if name == "broken":
            assert _changed(tmp_path / "all") == 2  # an entry for each place in the mesh
        for found in two_ranks(run, tmp_path / name):
            assert [each[:2] for each in found["block"]] == [(warm, "")], name
