"""What differs on a GPU: the engine's own threads, generators of the device, its allocator.

Each of these has a form without a GPU: see test_higher_order.py and partition/test_memory.py.
"""

import flambeau_aot as aot
import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU is missing")


def network(x, w):
    for _ in range(2):
        x = F.dropout(F.gelu(F.layer_norm(x @ w, (64,))), 0.3)
    return x.square().mean()


def values():
    torch.manual_seed(0)
    x = torch.randn(32, 64, device="cuda", dtype=torch.double, requires_grad=True)
    return x, (torch.randn(64, 64, device="cuda").double() / 8).requires_grad_()


def test_second_derivatives_and_random_streams() -> None:
    found = []
    for fn in (network, aot.aot_function(network, aot.run_as_is)):
        x, w = values()
        torch.manual_seed(5)
        grads = torch.autograd.grad(fn(x, w), (x, w), create_graph=True)
        again = torch.autograd.grad(sum(g.square().sum() for g in grads), (x, w))
        found.append([*grads, *again, torch.rand(3, device="cuda")])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("budget", [None, 0.0])
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_dropout_that_is_computed_again_repeats_exactly(partition, budget) -> None:
    def block(x, w):
        return F.dropout((x @ w).relu(), 0.5).sin() @ w.t()

    def program(x, w):
        return F.dropout(checkpoint(block, x, w, use_reentrant=False), 0.3).square().mean()

    options = aot.Options(memory_budget=budget, recompute_share=1.0)
    compiled = aot.aot_function(program, aot.run_as_is, partition=partition, options=options)
    found = []
    for fn in (program, compiled):
        x, w = values()
        torch.manual_seed(5)
        grads = torch.autograd.grad(fn(x, w), (x, w))
        found.append([*grads, torch.rand(3, device="cuda")])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
    (entry,) = compiled.compiled.values()
    assert any("sin" in name or "mm" in name for name in entry.report.recomputed)


def test_what_a_branch_draws_is_drawn_again_for_its_gradient() -> None:
    cond = torch.ops.higher_order.cond

    def true(v, u):
        return F.dropout(v @ u, 0.5).sin()

    def program(x, w):
        return F.dropout(cond(x.sum() > x.sum() - 1, true, lambda v, u: v.cos(), (x, w)), 0.5).sum()

    def eager(x, w):
        return F.dropout(true(x, w), 0.5).sum()

    found = []
    for fn in (eager, aot.aot_function(program, aot.run_as_is)):
        x, w = values()
        torch.manual_seed(5)
        grads = torch.autograd.grad(fn(x, w), (x, w))
        found.append([*grads, torch.rand(3, device="cuda")])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_a_whole_step_is_traced_in_one_thread() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    module.cuda().double()
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = aot.aot_step(step, [module], [optimizer], aot.run_as_is)
    x = torch.randn(16, 8, device="cuda").double()
    losses = [float(compiled(x)) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert len(compiled.compiled) == 1


def test_saved_bytes_are_what_the_device_holds() -> None:
    x, w = values()
    compiled = aot.aot_function(network, aot.run_as_is)
    compiled(x, w)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    result = compiled(x, w)
    held = torch.cuda.memory_allocated() - before
    (entry,) = compiled.compiled.values()
    granule = 512
    most = (entry.report.saved_tensors + 1) * granule
    assert entry.report.saved_bytes <= held <= entry.report.saved_bytes + most
    del result


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_the_slope_of_a_batch_norm_is_laid_out_as_its_kernel_does(training: bool) -> None:
    norm = torch.nn.BatchNorm2d(3).cuda().train(training)
    image = torch.randn(2, 3, 4, 4, device="cuda").contiguous(memory_format=torch.channels_last)

    def slope(
        x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, mean: torch.Tensor, var: torch.Tensor
    ) -> torch.Tensor:
        y = torch.nn.functional.batch_norm(x, mean, var, w, b, training)
        return torch.autograd.grad(y.square().sum(), x)[0] * 1

    seen = []
    for call in (slope, aot.aot_function(slope, aot.run_as_is)):
        statistics = torch.zeros(3, device="cuda"), torch.ones(3, device="cuda")
        given = image.detach().requires_grad_(), norm.weight, norm.bias
        seen.append(call(*given, *statistics).stride())
    assert seen[1] == seen[0]
