"""Checkpoints of compiled sharded training, resumed by another number of ranks; replicas that are
not what they are on the others."""

from functools import partial

import torch
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import flambeau
from flambeau.distributed import verify_ranks
from integration_tests.distributed.two_ranks import ranks, two_ranks


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


def _trained(world, rank, folder, compiled, steps):
    """Steps on the same batches whatever the number of ranks, each of which takes its rows."""
    model, optimizer = _made(world)
    options = {"capture.gather_parameters": True}
    run = flambeau.compile(step, backend="aot_eager", options=options) if compiled else step
    losses = []
    for at in steps:
        if at and not losses:
            parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
            checkpoint.load(parts, checkpoint_id=folder)
            set_state_dict(
                model, optimizer, model_state_dict=parts["model"],
                optim_state_dict=parts["optimizer"],
            )  # fmt: skip
        batch = torch.Generator().manual_seed(at)
        x, y = torch.randn(4, 6, generator=batch), torch.randn(4, 3, generator=batch)
        rows = slice(rank * 4 // world, (rank + 1) * 4 // world)
        losses.append(run(model, optimizer, x[rows], y[rows]).item())
    if compiled:
        report = flambeau.report(run)
        assert (report.breaks, report.fallbacks) == ((), ())
    if steps[0] == 0:
        parts = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
        checkpoint.save(parts, checkpoint_id=folder)
    return losses, [each.full_tensor().detach() for each in model.parameters()]


def test_a_compiled_step_resumes_with_another_number_of_ranks(tmp_path):
    folder = str(tmp_path / "checkpoint")
    for name in ("two", "one", "eager"):
        (tmp_path / name).mkdir()
    two_ranks(partial(_trained, 2, folder=folder, compiled=True, steps=(0, 1)), tmp_path / "two")
    resume = partial(_trained, 1, folder=folder, steps=(2, 3))
    ((_, given),) = ranks(partial(resume, compiled=True), tmp_path / "one", 1)
    ((_, wanted),) = ranks(partial(resume, compiled=False), tmp_path / "eager", 1)
    torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-7)


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
