"""Plans of meshes: memory as it is measured on one rank, and what more ranks make of it."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

import flambeau
from flambeau import Mesh, ParallelPlan

WIDTH, BLOCKS = 64, 3


class Block(nn.Module):
    """A pre-norm feed-forward block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    """Blocks and a head; gives a loss."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(BLOCKS))
        self.head = nn.Linear(width, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x).square().mean()


class Broken(Model):
    """The same in two graphs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        flambeau.graph_break()
        return self.head(x).square().mean()


def size(tensors) -> int:
    return sum(each.untyped_storage().nbytes() for each in tensors)


def measured(kind: type[Model], batch: int) -> int:
    """Bytes of all tensors at once in a training step, as the allocator counts them."""
    model, x = kind(), torch.randn(batch, WIDTH)
    run = flambeau.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        run(x).backward()
        optimizer.step()
        optimizer.zero_grad()
    states = [each for state in optimizer.state.values() for each in state.values()]
    now = most = 0
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        run(x).backward()
        optimizer.step()
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda each: each.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return size([*model.parameters(), *states, x]) + most


@pytest.mark.parametrize("kind", [Model, Broken])
@pytest.mark.parametrize("batch", [8, 1024])
def test_the_memory_of_one_rank_is_what_is_measured(kind: type[Model], batch: int) -> None:
    planned = flambeau.plan(kind(), Mesh(), torch.randn(batch, WIDTH)).memory
    assert planned.peak == pytest.approx(measured(kind, batch), rel=0.06)
    assert planned.communication == 0
    assert planned.parameters == planned.gradients == planned.optimizer // 2


def planned(**sizes: int) -> ParallelPlan:
    with torch.device("meta"):
        model, x = Model(512), torch.empty(256, 512)
    return flambeau.plan(model, Mesh(**sizes), x)


WHOLE = size(Model(512).parameters())


def test_replicas_have_the_whole_model_and_buckets() -> None:
    alone, many = planned().memory, planned(replicate=16).memory
    assert many.parameters == alone.parameters == WHOLE
    assert many.communication == WHOLE
    assert many.activations == alone.activations


@pytest.mark.parametrize("shard", [2, 64, 1024])
def test_shards_divide_what_is_kept_and_not_what_is_computed(shard: int) -> None:
    alone, found = planned().memory, planned(shard=shard).memory
    assert found.parameters == found.gradients == -(-WHOLE // shard)
    assert found.optimizer == 2 * found.parameters
    assert found.activations == pytest.approx(alone.activations, rel=0.05)  # cut elsewhere
    block = size(Block(512).parameters())
    assert found.communication == pytest.approx(2 * block, rel=0.01)


def test_tensor_parallelism_divides_weights_and_what_lies_between_columns_and_rows() -> None:
    alone, found = planned(), planned(tensor=4)
    vectors = size(p for p in Model(512).parameters() if p.ndim == 1)
    assert found.memory.parameters == vectors + (WHOLE - vectors) // 4
    assert found.memory.activations < 0.6 * alone.memory.activations
    assert found.time.tensor > 0 == alone.time.tensor
    assert found.time.computation < alone.time.computation


def test_a_mesh_of_4096_ranks_reads_well() -> None:
    found = planned(replicate=8, shard=64, tensor=8)
    text = repr(found)
    assert "4096 ranks: 8 replicas x 64 shards x 8 tensor-parallel" in text
    assert "at most at once" in text and "a step" in text
    assert max(map(len, text.splitlines())) <= 80
    said = json.loads(json.dumps(found.to_dict()))
    assert said["memory"]["peak"] == found.memory.peak
    assert found.time.step == found.time.computation + found.time.exposed


def test_what_is_no_mesh_or_no_module_is_refused() -> None:
    with pytest.raises(ValueError, match="from 1 to 4096"):
        Mesh(replicate=64, shard=128)
    with pytest.raises(ValueError, match="from 1 to 4096"):
        Mesh(shard=0)
    with pytest.raises(TypeError, match="module"):
        flambeau.plan(torch.sin, Mesh(), torch.ones(3))
