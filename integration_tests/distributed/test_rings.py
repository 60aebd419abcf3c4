"""Attention over a sequence that is spread over ranks: context parallelism of torch, and rings
that a program writes out, compiled beside eager."""

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.two_ranks import two_ranks

BATCH, HEADS, LENGTH, WIDTH = 2, 2, 8, 4


def _step(run, given):
    given = [each.detach().clone().requires_grad_() for each in given]
    out = run(*given)
    out.square().sum().backward()
    return [out.detach(), *(each.grad for each in given)]


def _drawn(rank, seed=0):
    """This rank's part of the queries, keys and values."""
    made = torch.Generator().manual_seed(seed)
    whole = [torch.randn(BATCH, HEADS, LENGTH, WIDTH, generator=made) for _ in range(3)]
    return [each.chunk(dist.get_world_size(), 2)[rank] for each in whole]


def _in_turn(keys):
    """The keys of the rank before, by a collective that autograd knows."""
    world, rank = dist.get_world_size(), dist.get_rank()
    splits = [keys.shape[0] if other == (rank + 1) % world else 0 for other in range(world)]
    taken = [keys.shape[0] if other == (rank - 1) % world else 0 for other in range(world)]
    return functional.all_to_all_single_autograd(keys, taken, splits, dist.group.WORLD)


def _ring(query, key, value):
    """Ring attention: each step attends to another rank's keys, and the parts are weighted by their
    sums of exponentials (Liu et al., 2023)."""
    total, most, weight = 0.0, None, 0.0
    both = torch.stack([key, value])
    for step in range(dist.get_world_size()):
        if step:
            both = _in_turn(both)
        scores = query @ both[0].mT / WIDTH**0.5
        top = scores.amax(-1, keepdim=True)
        new = top if most is None else torch.maximum(most, top)
        scale = 1.0 if most is None else (most - new).exp()
        part = (scores - new).exp()
        total = total * scale + part @ both[1]
        weight = weight * scale + part.sum(-1, keepdim=True)
        most = new
    return total / weight


def _by_messages(query, key, value):
    """The same without gradients, by messages between neighbours."""
    world, rank = dist.get_world_size(), dist.get_rank()
    out, both = [], torch.stack([key, value])
    for step in range(world):
        if step:
            taken = torch.empty_like(both)
            sent = dist.isend(both, (rank + 1) % world)
            got = dist.irecv(taken, (rank - 1) % world)
            sent.wait()
            got.wait()
            both = taken
        out.append((query @ both[0].mT / WIDTH**0.5, both[1]))
    scores = torch.cat([each for each, _ in out], -1).softmax(-1)
    return scores @ torch.cat([each for _, each in out], -2)


def _attended(rank):
    """Each program, eager and compiled twice, and the whole sequence's attention on this rank."""
    found = {}
    for name, program in {"ring": _ring, "messages": _by_messages}.items():
        flambeau.reset()
        run = flambeau.compile(program, backend="aot_eager")
        given = _drawn(rank)
        if name == "ring":
            both = [_step(each, given) for each in (program, run, run)]
        else:
            with torch.no_grad():
                both = [[each(*given)] for each in (program, run, run)]
        report = flambeau.report(run)
        said = [str(each) for each in (*report.breaks, *report.fallbacks)]
        query, key, value = given
        every = [functional.all_gather_tensor(each, 2, dist.group.WORLD) for each in (key, value)]
        whole = F.scaled_dot_product_attention(query, *every)
        found[name] = both, len(report.records), said, report.faults, whole
    return found


def test_rings_that_are_written_out_are_right(tmp_path):
    for found in two_ranks(_attended, tmp_path):
        for name, (both, _, _, faults, whole) in found.items():
            assert faults == (), name
            torch.testing.assert_close(both[0][0], whole, msg=name)
            for each in both[1:]:
                torch.testing.assert_close(each, both[0], rtol=0, atol=0, msg=name)
        assert found["ring"][1:3] == (1, [])
        assert found["messages"][1] >= 1


class _Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.out = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, query, key, value):
        return self.out(F.scaled_dot_product_attention(query, key, value, is_causal=True)) * 2


def _of_torch(rank):
    """A layer under `context_parallel`, and after it: eager, compiled."""
    mesh, layer, found = init_device_mesh("cpu", (2,)), _Layer(), []
    run = flambeau.compile(layer, backend="aot_eager")
    for each in (layer, run):
        buffers = [x.contiguous() for x in _whole()]
        outside = _said(each, [x.clone() for x in _whole()])
        with context_parallel(mesh, buffers=buffers, buffer_seq_dims=[2] * 3):
            inside = _said(each, buffers)
        found.append((outside, inside, _said(each, [x.clone() for x in _whole()])))
    report = flambeau.report(run)
    return found, [str(x) for x in (*report.breaks, *report.fallbacks)], report.faults


def _said(run, given):
    try:
        with torch.no_grad():
            return run(*given)
    except Exception as error:  # what torch has no kernels for is refused alike
        return f"{type(error).__name__}: {error}".partition("\n")[0][:200]


def _whole():
    made = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH, generator=made) for _ in range(3)]


def test_context_parallel_is_right_within_and_without(tmp_path):
    for found, said, faults in two_ranks(_of_torch, tmp_path):
        eager, compiled = found
        assert faults == (), said
        assert any("FB0017" in each for each in said)  # torch's own wrapper is not looked into
        for one, other in zip(compiled, eager, strict=True):
            if isinstance(other, str):
                assert one == other, said
            else:
                torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, msg=str(said))
