"""Attention over a sequence that is spread over ranks: context parallelism of torch, and rings
that a program writes out, compiled beside eager."""

import functools

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F

import flambeau
from integration_tests.distributed.two_ranks import ranks, two_ranks

BATCH, HEADS, LENGTH, WIDTH = 2, 2, 12, 4


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


def _ring(query, key, value, in_turn=_in_turn):
    """Ring attention: each step attends to another rank's keys, and the parts are weighted by their
    sums of exponentials (Liu et al., 2023)."""
    total, most, weight = 0.0, None, 0.0
    both = torch.stack([key, value])
    for step in range(dist.get_world_size()):
        if step:
            both = in_turn(both)
        scores = query @ both[0].mT / WIDTH**0.5
        top = scores.amax(-1, keepdim=True)
        new = top if most is None else torch.maximum(most, top)
        scale = 1.0 if most is None else (most - new).exp()
        part = (scores - new).exp()
        total = total * scale + part @ both[1]
        weight = weight * scale + part.sum(-1, keepdim=True)
        most = new
    return total / weight


def _alone(sent, taken, to):
    return [dist.isend(sent, to[0]), dist.irecv(taken, to[1], tag=0)]


def _batched(sent, taken, to):
    messages = [dist.P2POp(dist.irecv, taken, to[1]), dist.P2POp(dist.isend, sent, to[0])]
    return dist.batch_isend_irecv(messages)


def _blocking(sent, taken, to):
    """One rank after the other: rank 0 begins."""
    if dist.get_rank() == 0:
        dist.send(sent, to[0])
    assert dist.recv(taken, to[1]) == to[1]
    if dist.get_rank() != 0:
        dist.send(sent, to[0])
    return []


def _moved(start, tensor, by, looked=False):
    """The tensor of a neighbour, by messages."""
    world, rank = dist.get_world_size(), dist.get_rank()
    taken = torch.empty_like(tensor)
    works = start(tensor.contiguous(), taken, ((rank + by) % world, (rank - by) % world))
    if looked:
        assert all(not isinstance(each, int) and each.is_completed() is not None for each in works)
    for each in works:
        each.wait()
    return taken


class _Moved(torch.autograd.Function):
    """Its derivative goes the other way."""

    @staticmethod
    def forward(ctx, tensor, start):
        ctx.start = start
        return _moved(start, tensor, 1)

    @staticmethod
    def backward(ctx, gradient):
        return _moved(ctx.start, gradient, -1), None


def _by_messages(start, query, key, value):
    return _ring(query, key, value, lambda keys: _Moved.apply(keys, start))


def _kept(query, key, value):
    """A message that is looked at before it is waited for."""
    return query + _moved(_alone, key, 1, looked=True) * value


RINGS = {
    "collectives": _ring,
    "alone": functools.partial(_by_messages, _alone),
    "batched": functools.partial(_by_messages, _batched),
    "blocking": functools.partial(_by_messages, _blocking),
}


def _attended(backend, rank):
    """Each program, eager and compiled twice, and the whole sequence's attention on this rank."""
    found = {}
    for name, program in {**RINGS, "looked at": _kept}.items():
        flambeau.reset()
        run = flambeau.compile(program, backend=backend)
        given = _drawn(rank)
        both = [_step(each, given) for each in (program, run, run)]
        report = flambeau.report(run)
        said = [str(each) for each in (*report.breaks, *report.fallbacks)]
        query, key, value = given
        every = [functional.all_gather_tensor(each, 2, dist.group.WORLD) for each in (key, value)]
        whole = F.scaled_dot_product_attention(query, *every)
        found[name] = both, len(report.records), said, report.faults, whole
    return found


@pytest.mark.parametrize(("world", "backend"), [(2, "inductor"), (3, "aot_eager")])
def test_rings_are_one_graph_by_collectives_and_by_messages(world, backend, tmp_path):
    for found in ranks(functools.partial(_attended, backend), tmp_path, world):
        for name, (both, graphs, said, faults, whole) in found.items():
            assert faults == (), name
            for each in both[1:]:
                torch.testing.assert_close(each, both[0], rtol=1e-5, atol=1e-6, msg=name)
            if name in RINGS:
                torch.testing.assert_close(both[0][0], whole, msg=name)
                assert (graphs, said) == (1, []), name
            else:
                assert any("without its wait" in each for each in said), said


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
