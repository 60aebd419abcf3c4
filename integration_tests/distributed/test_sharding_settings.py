"""FSDP2 with gathers in the graph, told otherwise in the middle of a training: eager's losses and
shards, whatever is said, and whenever."""

import functools
import itertools
import os

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.two_ranks import two_ranks

STEPS, CHANGED, BACK = 4, 1, 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.block, self.head = nn.Sequential(nn.Linear(4, 6), nn.Tanh()), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.block(x))


def _double(gradient):
    gradient.mul_(2)


SETTINGS = {
    "sync": lambda model, on: model.set_requires_gradient_sync(not on),
    "sync of a block": lambda model, on: model.block.set_requires_gradient_sync(not on),
    "reshard after backward": lambda model, on: model.set_reshard_after_backward(not on),
    "reshard after backward of a block": (
        lambda model, on: model.block.set_reshard_after_backward(not on)
    ),
    "reshard after forward": lambda model, on: model.set_reshard_after_forward(not on),
    "all-reduce": lambda model, on: model.set_requires_all_reduce(not on),
    "last backward": lambda model, on: model.set_is_last_backward(not on),
    "unshard in backward": lambda model, on: model.block.set_unshard_in_backward(not on),
    "sums": lambda model, on: model.set_force_sum_reduction_for_comms(on),
    "unused": lambda model, on: model.set_reduce_scatter_unused_params(on),
    "hook": lambda model, on: model.block.set_all_reduce_hook(_double if on else None),
    "unshard": lambda model, on: model.unshard() if on else model.reshard(),
    "unshard of a block": lambda model, on: model.block.unshard() if on else model.block.reshard(),
    "prefetch": (
        lambda model, on: model.set_modules_to_forward_prefetch([model.block] if on else [])
    ),
    "factor": lambda model, on: model.set_gradient_divide_factor(3.0 if on else None),
}
"""What is said of a sharded model, and taken back."""
REPLICATED = ("sync", "all-reduce", "factor", "reshard after backward")
"""Those that are said of replicas, too: (2, 1) ranks."""


def _step(model, optimizer, x, y, change, on):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _first(model, optimizer, x, y, change, on):
    change(model, on)
    return _step(model, optimizer, x, y, change, on)


def _middle(model, optimizer, x, y, change, on):
    loss = F.cross_entropy(model(x), y)
    change(model, on)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def _last(model, optimizer, x, y, change, on):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    change(model, on)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


INSIDE = {"first": _first, "middle": _middle, "last": _last}
MOMENTS = ("between steps", "before the backward pass", *INSIDE)


def _built(mesh, kept):
    names = ("replicas", "shards")[-len(mesh) :]
    mesh = init_device_mesh("cpu", mesh, mesh_dim_names=names)
    model = Net()
    fully_shard(model.block, mesh=mesh, reshard_after_forward=not kept)
    return fully_shard(model, mesh=mesh)


def _trained(setting, moment, mesh, backend, rank):
    model, change = _built(mesh, setting == "unshard in backward"), SETTINGS[setting]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"capture.gather_parameters": True}

    def compiled(function):
        return flambeau.compile(function, backend=backend, options=options) if backend else function

    usual, inside = compiled(_step), compiled(INSIDE.get(moment, _step))
    forward = compiled(model) if moment == "before the backward pass" else None
    made, found = torch.Generator().manual_seed(rank), []
    for at in range(STEPS):
        x = torch.randn(4, 4, generator=made)
        y = torch.randint(0, 3, (4,), generator=made)
        now, on = at in (CHANGED, BACK), at == CHANGED
        if forward is not None:
            loss = F.cross_entropy(forward(x), y)
            if now:
                change(model, on)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        elif now and moment in INSIDE:
            loss = inside(model, optimizer, x, y, change, on)
        else:
            if now:
                change(model, on)
            loss = usual(model, optimizer, x, y, change, on)
        owned = [each.detach().to_local() for each in optimizer.param_groups[0]["params"]]
        found.append((loss.detach(), [*map(torch.clone, owned)]))
    return found


SETTINGS_BY_RANKS = [*((name, (2,)) for name in SETTINGS if name != "factor")]
SETTINGS_BY_RANKS += [(name, (2, 1)) for name in REPLICATED]
CASES = [
    (setting, moment, ranks, ("eager", "aot_eager")[place % 2])
    for place, ((setting, ranks), moment) in enumerate(
        itertools.product(SETTINGS_BY_RANKS, MOMENTS)
    )
]
PIECES = 9
CHOSEN = range(PIECES) if os.environ.get("FLAMBEAU_SWEEPS") == "1" else [1]


def _all(piece, rank):
    found = {}
    for setting, moment, mesh, backend in CASES[piece::PIECES]:
        flambeau.reset()
        wanted = _trained(setting, moment, mesh, None, rank)
        given = _trained(setting, moment, mesh, backend, rank)
        found[setting, moment, mesh, backend] = wanted, given
    return found


@pytest.mark.parametrize("piece", CHOSEN)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_said_of_a_sharded_model_holds_from_then_on(piece, tmp_path):
    for found in two_ranks(functools.partial(_all, piece), tmp_path):
        assert len(found) >= 9
        for case, (wanted, given) in found.items():
            torch.testing.assert_close(given, wanted, rtol=1e-5, atol=1e-6, msg=str(case))
