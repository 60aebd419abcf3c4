"""Graphs inside DistributedDataParallel: the parts, their gradients, and when buckets are sent."""

import pytest
import torch
import torch.distributed as dist
from flambeau_aot import compile as aot_compile
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import flambeau
from flambeau.distributed import BucketLimits, by_buckets, split
from integration_tests.distributed.two_ranks import two_ranks

WIDTH = 32


class Block(nn.Module):
    """A pre-norm residual block with dropout left out, for equal answers."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        first, second = self.up(self.norm(x)).chunk(2, -1)
        with torch.no_grad():
            scale = first.abs().mean() + 1
        with torch.autocast("cpu", torch.bfloat16):
            y = self.down(torch.cat([first.sigmoid() * second, first], -1))
        return x + y.float() / scale


class Model(nn.Module):
    """Blocks, of which the first and the last share a weight; a head; a statistic kept."""

    def __init__(self, blocks=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.blocks[-1].up.weight = self.blocks[0].up.weight
        self.bn = nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(self.bn(x).relu_()), x.detach()


def captured(model, x):
    graphs = []

    def keep(gm, example_inputs):
        graphs.append((gm, example_inputs))
        return gm.forward

    flambeau.compile(model, backend=keep, fullgraph=True)(x)
    (found,) = graphs
    return found


def trained(model, batches, lr=0.1):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        logits, _ = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def batches(rank, count=5):
    made = torch.Generator().manual_seed(rank)
    return [
        (torch.randn(8, WIDTH, generator=made), torch.randint(0, 4, (8,), generator=made))
        for _ in range(count)
    ]


@pytest.mark.parametrize("kilobytes", [1, 4, 20])
def test_parts_say_what_the_whole_says(kilobytes):
    model, x = Model(), torch.randn(8, WIDTH)
    gm, inputs = captured(model, x)
    seen = []

    def backend(part, given):
        seen.append(part)
        return part.forward

    parts = split(gm, BucketLimits(kilobytes * 1024, kilobytes * 1024), backend)
    sizes = [sum(p.numel() * 4 for p in part.parameters()) for part in parts.children()]
    assert len(sizes) == {1: 6, 4: 5, 20: 2}[kilobytes] or len(sizes) > 1
    assert all(sizes)
    whole = gm.forward(*inputs)
    grads = torch.autograd.grad(whole[0].sum(), [*model.parameters()])
    model.bn.reset_running_stats()
    divided = parts(*inputs)
    assert len(seen) == len(sizes)
    again = torch.autograd.grad(divided[0].sum(), [*model.parameters()])
    torch.testing.assert_close(divided, whole)
    torch.testing.assert_close(again, grads)


def test_what_fits_one_bucket_stays_whole():
    gm, _ = captured(Model(1), torch.randn(8, WIDTH))
    assert split(gm, BucketLimits(1 << 20, 1 << 20), None) is None


def test_outside_of_a_wrapped_forward_nothing_is_cut():
    met = []

    def backend(gm, example_inputs):
        met.append(gm)
        return gm.forward

    x = torch.randn(8, WIDTH)
    flambeau.compile(Model(), backend=by_buckets(backend))(x)
    assert len(met) == 1


def _wrapped(model, **options):
    return DistributedDataParallel(model, bucket_cap_mb=4 / 1024, **options)


def _losses(rank):
    found = {}
    for backend in (None, "aot_eager", "inductor"):
        torch.manual_seed(0)
        model = _wrapped(Model())
        if backend is not None:
            model = flambeau.compile(model, backend=backend)
        found[backend] = trained(model, batches(rank))
        if backend is not None:
            report = flambeau.report(model)
            found[backend, "graphs"] = len(report.records)
            found[backend, "fallbacks"] = [str(each) for each in report.fallbacks]
    torch.manual_seed(0)
    inner = _wrapped(flambeau.compile(Model(), backend="inductor"))
    found["inner"] = trained(inner, batches(rank))
    return found


def test_losses_are_those_of_eager(tmp_path):
    for found in two_ranks(_losses, tmp_path):
        for backend in ("aot_eager", "inductor", "inner"):
            torch.testing.assert_close(found[backend], found[None], rtol=2e-2, atol=1e-2)
        assert found["aot_eager", "graphs"] == found["inductor", "graphs"] >= 3
        assert found["inductor", "fallbacks"] == []


def _order(rank):
    """What happened in the last backward: 'send' per bucket, 'part' per part that has computed."""
    events = []

    def compiler(gm, example_inputs, info):
        def run(args):
            given = list(args)
            args.clear()
            if info.kind == "backward":
                events.append("part")
            return gm(*given)

        return run

    def backend(gm, example_inputs):
        return aot_compile(gm, example_inputs, compiler)

    def send(state, bucket):
        events.append("send")
        return (
            dist.all_reduce(bucket.buffer().div_(2), async_op=True)
            .get_future()
            .then(lambda future: future.value()[0])
        )

    found = {}
    for name, chosen in (("whole", backend), ("divided", by_buckets(backend))):
        torch.manual_seed(0)
        model = _wrapped(Model())
        model.register_comm_hook(None, send)
        compiled = flambeau.compile(model, backend=chosen)
        trained(compiled, batches(rank, 2))
        events.clear()
        trained(compiled, batches(rank, 1))
        found[name] = list(events)
    return found


def test_buckets_are_sent_while_earlier_parts_still_compute(tmp_path):
    for found in two_ranks(_order, tmp_path):
        whole, divided = found["whole"], found["divided"]
        assert whole.count("part") == 1
        assert whole.index("part") < whole.index("send")
        assert divided.count("part") >= 3
        last = len(divided) - divided[::-1].index("part") - 1
        assert divided[:last].count("send") >= 2
