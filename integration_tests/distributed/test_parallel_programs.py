"""Tensor, sequence, expert and pipeline parallelism, and two of them on one mesh: compiled beside
eager, the same losses and gradients, in as many graphs as are named here."""

import functools

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed import pipelining
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.collective_programs import ResidualBlock
from integration_tests.distributed.two_ranks import ranks

WIDTH, WORDS, CLASSES, STEPS = 8, 16, 6, 2
ONE, SPLIT = Replicate(), Shard(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length = x.shape[:2]
        heads = [each(x).view(batch, length, -1, 2).transpose(1, 2) for each in self.queries()]
        found = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, -1))

    def queries(self):
        return self.q, self.k, self.v


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.attention, self.block = Attention(), ResidualBlock(WIDTH, 4 * WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, text):
        x = self.words(text)
        return self.head(self.block(x + self.attention(x)))


COLUMNS = {
    "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(),
    "attention.v": ColwiseParallel(), "attention.out": RowwiseParallel(),
    "block.up": ColwiseParallel(), "block.down": RowwiseParallel(),
}  # fmt: skip
PLANS = {
    "columns and rows": COLUMNS,
    "words by rows": {
        **COLUMNS,
        "words": RowwiseParallel(input_layouts=ONE),
        "head": ColwiseParallel(output_layouts=ONE),
    },
    "words by columns": {
        **COLUMNS,
        "words": ColwiseParallel(output_layouts=ONE),
        "head": RowwiseParallel(input_layouts=ONE),
    },
    "sequences": {
        "words": RowwiseParallel(input_layouts=ONE, output_layouts=ONE),
        "block": PrepareModuleInput(input_layouts=(ONE,), desired_input_layouts=(SPLIT,)),
        "block.norm": SequenceParallel(),
        "block.up": ColwiseParallel(input_layouts=SPLIT),
        "block.down": RowwiseParallel(output_layouts=SPLIT, use_local_output=False),
        "head": PrepareModuleInput(
            input_layouts=(SPLIT,), desired_input_layouts=(ONE,), use_local_output=True
        ),
    },
}


def _whole(value):
    value = value.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value.clone()


def _loss(scores, labels):
    return F.cross_entropy(scores.flatten(0, 1), labels.flatten())


def _trained(model, run, seed):
    """Losses, then gradients, of each step."""
    optimizer, found = torch.optim.SGD(model.parameters(), lr=0.1), []
    made = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        text = torch.randint(0, WORDS, (2, 4), generator=made)
        labels = torch.randint(0, CLASSES, (2, 4), generator=made)
        optimizer.zero_grad()
        loss = run(text, labels)
        loss.backward()
        found += [_whole(loss), *(_whole(each.grad) for each in model.parameters())]
        optimizer.step()
    return found


def _planned(plan, compiled, rank, half=False):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = parallelize_module(Net(), mesh, PLANS[plan])
    run = compiled(model)

    def loss(text, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            return _loss(run(text), labels)

    return _trained(model, loss, 0)


def _fused_updates(compiled, rank):
    """Of parameters whose gradients lie otherwise than they do: those of words, whole on each."""
    mesh, found = init_device_mesh("cpu", (dist.get_world_size(),)), []
    model = parallelize_module(Net(), mesh, PLANS["words by rows"])
    kinds = {}
    for each in model.parameters():
        kinds.setdefault(type(each.data), []).append(each)
    groups = [{"params": each} for each in kinds.values()]
    optimizer = torch.optim.AdamW(groups, lr=0.1, fused=True)
    update = compiled(lambda: optimizer.step())
    for step in range(STEPS):
        text = torch.arange(8).view(2, 4) + step
        _loss(model(text), text % CLASSES).backward()
        update()
        found += [_whole(each) for each in (*model.parameters(), model.words.weight.grad)]
        optimizer.zero_grad()
    return found


def _parallel_loss(compiled, rank):
    mesh = init_device_mesh("cpu", (2,))
    head = {"head": ColwiseParallel(use_local_output=False)}
    model = parallelize_module(Net(), mesh, COLUMNS | head)
    run = compiled(lambda text, labels: _loss(model(text), labels))
    with loss_parallel():
        return _trained(model, run, 0)


def _two_meshes(sizes, whole, compiled, rank):
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("data", "tensor"))
    model = parallelize_module(Net(), mesh["tensor"], COLUMNS)
    if not whole:
        model.block = compiled(model.block)
    fully_shard(model.block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    run = compiled(model) if whole else model
    return _trained(model, lambda text, labels: _loss(run(text), labels), rank // sizes[1])


def _experts(route, compiled, rank):
    """What is sent to the expert of another rank comes back to its place."""
    world = dist.get_world_size()
    torch.manual_seed(0)
    gate = nn.Linear(WIDTH, world, bias=False)
    torch.manual_seed(rank)
    expert, found = nn.Linear(WIDTH, WIDTH), []
    run = compiled(functools.partial(route, gate, expert, world))
    for step in range(STEPS + 1):
        made = torch.Generator().manual_seed(2 * step + rank)
        x = torch.randn(4 * world, WIDTH, generator=made).requires_grad_()
        out = run(x)
        gradients = torch.autograd.grad(out.square().sum(), [x, *expert.parameters()])
        found += [out.detach(), *gradients]
    return found


def _by_counts(gate, expert, world, x):
    scores = gate(x).softmax(-1)
    chosen = scores.argmax(-1)
    order = chosen.argsort(stable=True)
    sent = torch.bincount(chosen, minlength=world)
    got = torch.empty_like(sent)
    dist.all_to_all_single(got, sent)
    given, taken, group = sent.tolist(), got.tolist(), dist.group.WORLD
    there = functional.all_to_all_single_autograd(x[order], taken, given, group)
    back = functional.all_to_all_single_autograd(expert(there), given, taken, group)
    weighted = back * scores.gather(1, chosen[:, None])[order]
    return torch.zeros_like(x).index_put((order,), weighted)


def _equally(gate, expert, world, x):
    there = functional.all_to_all_single_autograd(x, None, None, dist.group.WORLD)
    made = expert(there).relu()
    return functional.all_to_all_single_autograd(made, None, None, dist.group.WORLD) + x


def _pipeline(schedule, compiled, rank):
    world = dist.get_world_size()
    torch.manual_seed(0)
    several = schedule.__name__.startswith("ScheduleInterleaved")
    blocks = [ResidualBlock(WIDTH, 4 * WIDTH) for _ in range(world * (1 + several))]
    own = {place: each for place, each in enumerate(blocks) if place % world == rank}
    stages = [
        pipelining.PipelineStage(compiled(each), place, len(blocks), torch.device("cpu"))
        for place, each in own.items()
    ]
    run = schedule(stages if several else stages[0], n_microbatches=4, loss_fn=F.mse_loss)
    found = []
    for step in range(STEPS):
        made = torch.Generator().manual_seed(step)
        x, y = torch.randn(8, WIDTH, generator=made), torch.randn(8, WIDTH, generator=made)
        losses = []
        last = {"target": y, "losses": losses} if rank == world - 1 else {}
        run.step(*[x] * (rank == 0), **last)
        found += [_whole(each) for each in losses]
        for block in own.values():
            found += [_whole(each.grad) for each in block.parameters()]
            block.zero_grad()
    return found


PARTIAL = functools.partial
TWO = {
    **{plan: (PARTIAL(_planned, plan), [1], "") for plan in PLANS},
    "autocast, columns and rows": (PARTIAL(_planned, "words by rows", half=True), [1], ""),
    "autocast, sequences": (PARTIAL(_planned, "sequences", half=True), [1], ""),
    "fused updates": (_fused_updates, [1], ""),
    "parallel loss": (_parallel_loss, [1], ""),
    "experts by counts": (PARTIAL(_experts, _by_counts), None, "FB0002"),
    "experts": (PARTIAL(_experts, _equally), [1], ""),
    "pipeline": (PARTIAL(_pipeline, pipelining.ScheduleGPipe), [1], ""),
    "pipeline in turns": (PARTIAL(_pipeline, pipelining.Schedule1F1B), [1], ""),
    "interleaved": (PARTIAL(_pipeline, pipelining.ScheduleInterleaved1F1B), [1, 1], ""),
    "one by two, blocks": (PARTIAL(_two_meshes, (1, 2), False), [1], ""),
    "two by one, blocks": (PARTIAL(_two_meshes, (2, 1), False), [1], ""),
    "one by two": (PARTIAL(_two_meshes, (1, 2), True), None, "FB0029"),
    "one by two, gathered": (PARTIAL(_two_meshes, (1, 2), True), [1], ""),
    "two by one, gathered": (PARTIAL(_two_meshes, (2, 1), True), [1], ""),
}
FOUR = {
    "columns and rows": (PARTIAL(_planned, "words by rows"), [1], ""),
    "two by two, blocks": (PARTIAL(_two_meshes, (2, 2), False), [1], ""),
    "two by two, gathered": (PARTIAL(_two_meshes, (2, 2), True), [1], ""),
}
"""What is run, how many graphs each compiled part has (None: several), and what is said of breaks
and fallbacks."""


def _both(programs, rank):
    found = {}
    for name, (program, _, _) in programs.items():
        flambeau.reset()
        options = {"capture.gather_parameters": "gathered" in name}
        made = []

        def compiled(function, made=made, options=options):
            made.append(flambeau.compile(function, backend="aot_eager", options=options))
            return made[-1]

        wanted, given = program(lambda function: function, rank), program(compiled, rank)
        reports = [flambeau.report(each) for each in made]
        said = [str(each) for report in reports for each in (*report.breaks, *report.fallbacks)]
        faults = [each for report in reports for each in report.faults]
        found[name] = wanted, given, [len(each.records) for each in reports], said, faults
    return found


@pytest.mark.parametrize(("world", "programs"), [(2, TWO), (4, FOUR)], ids=["two", "four"])
def test_parallel_programs_train_as_in_eager(world, programs, tmp_path):
    for found in ranks(functools.partial(_both, programs), tmp_path, world):
        for name, (wanted, given, graphs, said, faults) in found.items():
            _, expected, why = programs[name]
            torch.testing.assert_close(given, wanted, rtol=0, atol=0, msg=name)
            assert faults == [], name
            assert expected is None or graphs == expected, (name, graphs)
            assert any(why in each for each in said) if why else said == [], (name, said)
