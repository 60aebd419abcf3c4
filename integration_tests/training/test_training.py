"""Training as people write it: every part of a step compiled, the numbers those of eager."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import flambeau

STEPS = 5


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 24)
        self.norm = nn.LayerNorm(24)
        self.second = nn.Linear(24, 24)
        self.head = nn.Linear(24, 4)

    def block(self, x):
        return x + F.gelu(self.second(self.norm(x)))

    def forward(self, x, recompute=False):
        x = torch.tanh(self.first(x))
        x = checkpoint(self.block, x, use_reentrant=False) if recompute else self.block(x)
        return self.head(x)


def model():
    torch.manual_seed(0)
    return Model()


def batches(count=STEPS):
    made = torch.Generator().manual_seed(3)
    for _ in range(count):
        yield torch.randn(8, 12, generator=made), torch.randint(0, 4, (8,), generator=made)


def same(found, wanted, rtol=2e-4, atol=2e-5):
    torch.testing.assert_close(torch.tensor(found), torch.tensor(wanted), rtol=rtol, atol=atol)


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "foreach sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "foreach adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "two groups": lambda p: _two_groups(list(p)),
}


def _two_groups(parameters):
    groups = [{"params": parameters[:3], "lr": 0.02}, {"params": parameters[3:]}]
    return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)


def losses(make, compiled, schedule=None, steps=STEPS):
    """The losses of a run, and what compiled the optimizer's step."""
    trained = model()
    optimizer = make(trained.parameters())
    scheduler = schedule(optimizer) if schedule else None
    step = flambeau.compile(lambda: optimizer.step()) if compiled else optimizer.step
    seen = []
    for x, y in batches(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(trained(x), y)
        loss.backward()
        step()
        if scheduler is not None:
            scheduler.step()
        seen.append(loss.item())
    return seen, step


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_step_of_an_optimizer_is_compiled(name):
    found, step = losses(OPTIMIZERS[name], compiled=True)
    same(found, losses(OPTIMIZERS[name], compiled=False)[0])
    report = flambeau.report(step)
    assert report.kernels > 0
    assert report.fallbacks == ()
    assert report.graphs <= 2  # the first step makes the state


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_a_learning_rate_that_changes_does_not_compile_anew(name):
    def schedule(optimizer):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)

    found, step = losses(OPTIMIZERS[name], True, schedule, steps=20)
    same(found, losses(OPTIMIZERS[name], False, schedule, steps=20)[0])
    assert flambeau.report(step).graphs <= 3


def test_a_step_with_accumulation_clipping_and_a_moving_average():
    def run(compiled):
        trained = model()
        average = copy.deepcopy(trained)
        optimizer = torch.optim.AdamW(trained.parameters(), lr=0.01)

        def forward_loss(x, y):
            return F.cross_entropy(trained(x), y) / 2

        def update():
            norm = nn.utils.clip_grad_norm_(trained.parameters(), 0.5)
            optimizer.step()
            with torch.no_grad():
                for kept, new in zip(average.parameters(), trained.parameters(), strict=True):
                    kept.lerp_(new, 0.1)
            return norm

        if compiled:
            forward_loss, update = flambeau.compile(forward_loss), flambeau.compile(update)
        seen = []
        for turn, (x, y) in enumerate(batches(8)):
            loss = forward_loss(x, y)
            loss.backward()
            seen.append(loss.item())
            if turn % 2:
                seen.append(update().item())
                optimizer.zero_grad()
        return seen + [p.sum().item() for p in average.parameters()]

    same(run(True), run(False), rtol=1e-3, atol=1e-4)


def test_half_precision_with_a_scaler():
    def run(compiled):
        trained = model()
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)

        def forward_loss(x, y):
            with torch.autocast("cpu", torch.bfloat16):
                return F.cross_entropy(trained(x), y)

        if compiled:
            forward_loss = flambeau.compile(forward_loss, fullgraph=True)
        seen = []
        for x, y in batches():
            optimizer.zero_grad()
            loss = forward_loss(x, y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            seen += [loss.item(), scaler.get_scale()]
        return seen

    same(run(True), run(False), rtol=2e-2, atol=2e-2)


def test_regions_that_are_recomputed():
    def run(compiled):
        trained = model()
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        forward = flambeau.compile(trained, fullgraph=True) if compiled else trained
        seen = []
        for x, y in batches():
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(x, recompute=True), y)
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    same(run(True), run(False))


def test_gradients_of_single_samples():
    trained = model()
    parameters = {name: p.detach() for name, p in trained.named_parameters()}

    def loss(values, x, y):
        return F.cross_entropy(functional_call(trained, values, (x[None],)), y[None])

    def per_sample(values, x, y):
        return vmap(grad(loss), in_dims=(None, 0, 0))(values, x, y)

    x, y = next(batches())
    found = flambeau.compile(per_sample)(parameters, x, y)
    wanted = per_sample(parameters, x, y)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_whole_step_by_autograd_grad():
    def run(compiled):
        trained = model()
        parameters = list(trained.parameters())
        momentum = [torch.zeros_like(p) for p in parameters]

        def step(x, y):
            loss = F.cross_entropy(trained(x), y)
            grads = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for p, g, m in zip(parameters, grads, momentum, strict=True):
                    m.mul_(0.9).add_(g)
                    p.sub_(m, alpha=0.1)
            return loss.detach()

        if compiled:
            step = flambeau.compile(step)
        return [step(x, y).item() for x, y in batches()]

    same(run(True), run(False))
