"""Checkpoints of compiled sharded training, resumed by another number of ranks; replicas that are
not what they are on the others."""

import json
import os
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import flambeau
from flambeau.distributed import verify_ranks
from integration_tests.distributed.two_ranks import ranks, server, two_ranks


def step(model, optimizer, x, y):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _made(world):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3))
    mesh = init_device_mesh("cpu", (world,))
    for each in (model[0], model[2], model):
        fully_shard(each, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def _save(model, optimizer, folder):
    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    checkpoint.save(parts, checkpoint_id=folder)


def _load(model, optimizer, folder):
    parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    checkpoint.load(parts, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=parts["model"], optim_state_dict=parts["optimizer"]
    )


STEPS, KEPT_AT, KILLED_AT = 60, 30, 33


def _long(world, rank, folder, compiled=True):
    """Losses on the same batches whatever the number of ranks: the first ranks are killed after a
    checkpoint, later ones go on from it."""
    model, optimizer = _made(world)
    options = {"capture.gather_parameters": True}
    run = flambeau.compile(step, backend="aot_eager", options=options) if compiled else step
    begin, losses = 0, []
    if os.path.exists(folder) and compiled:
        _load(model, optimizer, folder)
        begin = KEPT_AT
    for at in range(begin, STEPS):
        if compiled and begin == 0 and at == KEPT_AT:
            _save(model, optimizer, folder)
        if compiled and begin == 0 and at == KILLED_AT:
            with open(f"{folder}.losses{rank}", "w") as file:
                json.dump(losses[:KEPT_AT], file)
            os._exit(9)
        batch = torch.Generator().manual_seed(at)
        x, y = torch.randn(4, 6, generator=batch), torch.randn(4, 3, generator=batch)
        rows = slice(rank * 4 // world, (rank + 1) * 4 // world)
        losses.append(run(model, optimizer, x[rows], y[rows]).item())
    if compiled:
        report = flambeau.report(run)
        assert (report.breaks, report.fallbacks, len(report.records)) == ((), (), 1)
    return losses


def _alone(rank, folder):
    """Eager's losses from the beginning, and those of one rank that goes on."""
    return _long(1, rank, folder, compiled=False), _long(1, rank, folder)


def _begun(rank, folder):
    """A rank that ends without a word."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}.meeting", rank=rank, world_size=2)
    _long(2, rank, folder)


def test_a_training_that_is_killed_goes_on_as_eager_with_other_ranks(tmp_path):
    folder = str(tmp_path / "checkpoint")
    context = server()
    started = [context.Process(target=_begun, args=(rank, folder)) for rank in range(2)]
    for each in started:
        each.start()
    for each in started:
        each.join(300)
        assert each.exitcode == 9
    for name in ("four", "one"):
        (tmp_path / name).mkdir()
    late = ranks(partial(_long, 4, folder=folder), tmp_path / "four", 4)
    ((wanted, alone),) = ranks(partial(_alone, folder=folder), tmp_path / "one", 1)
    early = [json.loads(Path(f"{folder}.losses{rank}").read_text()) for rank in range(2)]
    given = [sum(x) / 2 for x in zip(*early)] + [sum(x) / 4 for x in zip(*late)]
    assert len(given) == STEPS
    torch.testing.assert_close(alone, wanted[KEPT_AT:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


def _differing(rank):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    said = [verify_ranks(model)]
    with torch.no_grad():
        if rank == 1:
            model[1].weight[0, 0] += 1
        said.append(verify_ranks(model))
        if rank == 0:
            model[0].bias[1] = float("nan")
        said.append(verify_ranks(model))
    said.append(verify_ranks({"x": torch.ones(2 + rank)}))
    sharded = fully_shard(nn.Linear(4, 4))
    said.append(verify_ranks(sharded))
    return said


def test_the_first_tensor_that_differs_is_named(tmp_path):
    one, other = two_ranks(_differing, tmp_path)
    assert one == other
    fine, differs, nan, sizes, sharded = one
    assert fine == sharded == ""
    assert differs == "1.weight differs on rank 1 from rank 0's"
    assert "0.bias has 1 NaN and 0 infinities on rank 0" in nan
    assert "x differs on rank 1" in sizes and "[3] for torch.float32 [2]" in sizes
