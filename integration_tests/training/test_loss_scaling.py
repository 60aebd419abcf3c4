"""Training with `torch.amp.GradScaler` inside of the compiled step: parameters, losses, the scale
and what it has counted are eager's, by each way to use one; a gradient that is not finite skips a
step. No stage falls back, and no fault is met: what ends a graph does so by name.
"""

import pytest
import torch
from torch import nn

import flambeau

BACKENDS = ("eager", "aot_eager", "aot_eager_prims", "inductor")


def _plain(model, scaler, optimizers, loss):
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)


def _clipped(model, scaler, optimizers, loss):
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        scaler.step(optimizer)


def _accumulated(model, scaler, optimizers, loss):
    scaler.scale(loss / 2).backward(retain_graph=True)
    scaler.scale(loss / 2).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)


WAYS = {"plain": _plain, "clipped": _clipped, "accumulated": _accumulated}
OPTIMIZERS = {
    "sgd": lambda m: [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)],
    "adam": lambda m: [torch.optim.Adam(m.parameters(), 0.01)],
    "fused": lambda m: [torch.optim.AdamW(m.parameters(), 0.01, fused=True)],
    "two": lambda m: [torch.optim.SGD(part.parameters(), 0.1) for part in (m[0], m[2])],
}
CASES = [("plain", each) for each in OPTIMIZERS] + [(way, "sgd") for way in list(WAYS)[1:]]


def _trained(way, optimizer, compile):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizers = OPTIMIZERS[optimizer](model)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).square().mean()
        WAYS[way](model, scaler, optimizers, loss)
        scaler.update()
        for each in optimizers:
            each.zero_grad()
        return loss.detach()

    step, seen = compile(step), []
    for number in range(4):
        x = torch.randn(5, 3)
        if number == 2:
            x[0, 0] = float("inf")
        seen += [step(x).clone(), torch.tensor(scaler.get_scale())]
    return step, [*seen, *model.parameters()], scaler.state_dict()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_training(case, backend):
    if backend == "inductor" and case not in CASES[::4]:
        pytest.skip("one of each is compiled to kernels: the operators are the same")
    _, expected, state = _trained(*case, lambda f: f)
    step, found, ours = _trained(*case, lambda f: flambeau.compile(f, backend=backend))
    assert ours == state
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4, equal_nan=True)
    report = flambeau.report(step)
    assert not report.faults and not report.fallbacks and not report.skipped
