"""Whole steps of DistributedDataParallel: one graph that sums gradients by buckets, or eager's."""

import contextlib

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import flambeau
from integration_tests.distributed.collective_programs import ResidualBlock
from integration_tests.distributed.two_ranks import ranks

WIDTH = 8
STEPS = 3


class Net(nn.Module):
    """Blocks of which two share a weight; a frozen bias; perhaps a statistic, perhaps a layer that
    no output depends on."""

    def __init__(self, statistic=False, unread=False):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(ResidualBlock(WIDTH, 2 * WIDTH) for _ in range(3))
        self.blocks[2].up.weight = self.blocks[0].up.weight
        self.blocks[1].up.bias.requires_grad_(False)
        self.norm = nn.BatchNorm1d(WIDTH) if statistic else nn.Identity()
        self.head = nn.Linear(WIDTH, 4)
        self.unread = nn.Linear(WIDTH, WIDTH) if unread else None

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def simple(model, optimizer, x, y):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def clipped(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return loss.detach() + norm


def accumulated(model, optimizer, x, y):
    optimizer.zero_grad()
    for part, target in zip(x.chunk(2), y.chunk(2)):
        loss = F.cross_entropy(model(part), target)
        loss.backward()
    optimizer.step()
    return loss.detach()


def not_synchronized(model, optimizer, x, y):
    optimizer.zero_grad()
    with model.no_sync():
        F.cross_entropy(model(x), y).backward()
    F.cross_entropy(model(x.cos()), y).backward()
    optimizer.step()
    return x.new_zeros(())


def handed_on(model, optimizer, x, y):
    return F.cross_entropy(model(x), y)


def evaluated(model, optimizer, x, y):
    with torch.no_grad():
        return F.cross_entropy(model(x), y)


ONE, CUT = True, False
PROGRAMS = {
    "simple": (simple, {}, {}, ONE),
    "clipped": (clipped, {}, {}, ONE),
    "accumulated": (accumulated, {}, {}, ONE),
    "one bucket": (simple, {}, {"bucket_cap_mb": 25}, ONE),
    "default": (simple, {}, {}, CUT),
    "not synchronized": (not_synchronized, {}, {}, CUT),
    "handed on": (handed_on, {}, {}, CUT),
    "statistic": (simple, {"statistic": True}, {}, CUT),
    "unused found": (simple, {"unread": True}, {"find_unused_parameters": True}, CUT),
    "static": (simple, {}, {"static_graph": True}, CUT),
    "views": (simple, {}, {"gradient_as_bucket_view": True}, CUT),
    "hook": (simple, {}, {}, CUT),
    "torch's hook": (simple, {}, {}, CUT),
    "evaluated": (evaluated, {}, {}, ONE),
}
"""A step, what its model and its wrapper are given, whether it is one graph."""


def _trained(name, compiled, rank, backend):
    step, made, wrapped, _ = PROGRAMS[name]
    model = DistributedDataParallel(Net(**made), **{"bucket_cap_mb": 1e-3, **wrapped})
    if name == "hook":
        model.register_comm_hook(None, fp16_compress_hook)
    if name == "torch's hook":
        model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options = {"capture.sum_gradients": name != "default"}
    run = flambeau.compile(step, backend=backend, options=options) if compiled else step
    batches = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(STEPS):
        x = torch.randn(4, WIDTH, generator=batches)
        loss = run(model, optimizer, x, torch.randint(0, 4, (4,), generator=batches))
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    report = flambeau.report(run) if compiled else None
    found = [losses, [each.detach() for each in model.parameters()]]
    return found, report and (report.breaks, report.fallbacks)


def _all(rank):
    found = {}
    for name in PROGRAMS:
        backends = ("aot_eager", "flambeau") if name == "simple" else ("aot_eager",)
        wanted, _ = _trained(name, False, rank, None)
        for backend in backends:
            flambeau.reset()
            found[name, backend] = wanted, *_trained(name, True, rank, backend)
    return found


def _lacking(rank):
    """A parameter that no loss depends on: eager's error in the second step, from both."""
    said = []
    for compiled in (False, True):
        model = DistributedDataParallel(Net(unread=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        options = {"capture.sum_gradients": True}
        run = flambeau.compile(simple, backend="aot_eager", options=options) if compiled else simple
        with contextlib.suppress(RuntimeError):
            for step in range(2):
                run(model, optimizer, torch.ones(4, WIDTH), torch.zeros(4, dtype=torch.int64))
                said.append(step)
    dist.barrier()
    return said


def differing(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y)
    if dist.get_rank():
        str(loss.item())
    loss.backward()
    optimizer.step()
    return loss.detach()


def _differing(rank):
    """One rank breaks its step: by default that is right; where graphs sum, the others say so, and
    nobody has started anything."""
    model = DistributedDataParallel(Net(), bucket_cap_mb=1e-3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.full((4, WIDTH), rank + 1.0), torch.zeros(4, dtype=torch.int64)
    flambeau.compile(differing, backend="aot_eager")(model, optimizer, x, y)
    said, flambeau.distributed.collective_order.SECONDS = None, 2.0
    if rank == 0:
        options = {"capture.sum_gradients": True}
        run = flambeau.compile(differing, backend="aot_eager", options=options)
        try:
            run(model, optimizer, x, y)
        except flambeau.distributed.CollectivesDiffer as error:
            said = str(error)
    dist.barrier()
    return [each.detach() for each in model.parameters()], said


def _both(rank):
    return _all(rank), _lacking(rank), _differing(rank)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks(_both, tmp_path_factory.mktemp("steps"), 2)


def test_steps_train_as_in_eager(found):
    for each, *_ in found:
        for (name, backend), (wanted, given, (breaks, fallbacks)) in each.items():
            exact = {"rtol": 0, "atol": 0} if backend == "aot_eager" else {}
            torch.testing.assert_close(given, wanted, msg=f"{name}, {backend}", **exact)
            assert fallbacks == (), name
            assert (breaks == ()) is PROGRAMS[name][-1], (name, breaks)


def test_ranks_end_with_the_same_parameters(found):
    (one, *_), (other, *_) = found
    for case, (_, (_, parameters), _) in one.items():
        torch.testing.assert_close(other[case][1][1], parameters, rtol=0, atol=0)


def test_a_parameter_without_gradient_is_eagers_error(found):
    assert [said for _, said, _ in found] == [[0, 0], [0, 0]]


def test_a_rank_with_another_graph(found):
    (parameters, said), (others, nothing) = [differing for *_, differing in found]
    torch.testing.assert_close(parameters, others, rtol=0, atol=0)
    assert nothing is None
    assert "all ranks must have the same graphs" in said
