"""Optimizers written by hand, with counters of every kind and rates that change: they settle in few
graphs, and give what eager does."""

import math
from itertools import product

import pytest
import torch
from flambeau_capture.api import compiler_of
from torch import nn
from torch.optim import lr_scheduler

COUNTERS = {
    "int": lambda: 0,
    "float": lambda: 0.0,
    "tensor": lambda: torch.tensor(0.0),
    "int tensor": lambda: torch.tensor(0),
}


class Base(torch.optim.Optimizer):
    def __init__(self, params, kind, **kw):
        super().__init__(params, kw)
        self.kind = kind

    def begin(self, s):
        if "step" not in s:
            s["step"] = COUNTERS[self.kind]()

    def advance(self, s):
        if isinstance(s["step"], torch.Tensor):
            s["step"] += 1
            return s["step"].item()
        s["step"] += 1
        return s["step"]


class Lion(Base):
    def __init__(self, p, kind):
        super().__init__(p, kind, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["m"] = torch.zeros_like(p)
                self.begin(s)
                n = self.advance(s)
                warm = min(1.0, n / 5)
                p.mul_(1 - g["lr"] * g["weight_decay"])
                u = s["m"].mul(b1).add_(p.grad, alpha=1 - b1).sign_()
                p.add_(u, alpha=-g["lr"] * warm)
                s["m"].mul_(b2).add_(p.grad, alpha=1 - b2)


class Sophia(Base):
    def __init__(self, p, kind):
        super().__init__(p, kind, lr=1e-2, betas=(0.965, 0.99), rho=0.04)

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            b1, b2 = g["betas"]
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    s["m"] = torch.zeros_like(p)
                    s["h"] = torch.zeros_like(p)
                self.begin(s)
                n = self.advance(s)
                if n % 4 == 1:
                    s["h"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                s["m"].mul_(b1).add_(p.grad, alpha=1 - b1)
                c = 1 - b1**n
                r = (s["m"].abs() / (g["rho"] * s["h"] + 1e-15)).clamp(None, 1)
                p.addcmul_(s["m"].sign(), r, value=-g["lr"] / c)


class AdEMAMix(Base):
    def __init__(self, p, kind):
        super().__init__(p, kind, lr=1e-2, betas=(0.9, 0.999, 0.9999), alpha=5.0, T=20, eps=1e-8)

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            b1, b2, b3f = g["betas"]
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    for k in ("f", "s", "v"):
                        s[k] = torch.zeros_like(p)
                self.begin(s)
                n = self.advance(s)
                a = min(n * g["alpha"] / g["T"], g["alpha"])
                l1, l3 = math.log(b1), math.log(b3f)
                b3 = min(math.exp(l1 * l3 / ((1 - n / g["T"]) * l3 + (n / g["T"]) * l1)), b3f)
                s["f"].lerp_(p.grad, 1 - b1)
                s["s"].mul_(b3).add_(p.grad, alpha=1 - b3)
                s["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                d = (s["v"].sqrt() / math.sqrt(1 - b2**n)).add_(g["eps"])
                p.addcdiv_(s["f"] / (1 - b1**n) + a * s["s"], d, value=-g["lr"])


class MyAdafactor(Base):
    def __init__(self, p, kind):
        super().__init__(p, kind, lr=1e-2, d=1.0, eps=1e-30, eps2=1e-3)

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                s = self.state[p]
                fact = p.dim() >= 2
                if not s:
                    if fact:
                        s["r"] = p.new_zeros(p.shape[:-1])
                        s["c"] = p.new_zeros(p.shape[:-2] + p.shape[-1:])
                    else:
                        s["v"] = torch.zeros_like(p)
                self.begin(s)
                n = self.advance(s)
                rms = p.norm(2).item() / (p.numel() ** 0.5)
                lr = max(g["eps2"], rms) * min(g["lr"], 1 / math.sqrt(n))
                b2 = 1.0 - math.pow(n, -0.8)
                u = p.grad**2 + g["eps"]
                if fact:
                    s["r"].mul_(b2).add_(u.mean(-1), alpha=1 - b2)
                    s["c"].mul_(b2).add_(u.mean(-2), alpha=1 - b2)
                    rf = (s["r"] / s["r"].mean(-1, keepdim=True)).rsqrt_().unsqueeze(-1)
                    cf = s["c"].unsqueeze(-2).rsqrt()
                    u = rf * cf * p.grad
                else:
                    s["v"].mul_(b2).add_(u, alpha=1 - b2)
                    u = s["v"].rsqrt().mul_(p.grad)
                u.div_((u.norm(2) / (u.numel() ** 0.5) / g["d"]).clamp_(min=1.0))
                p.add_(u, alpha=-lr)


class Prodigyish(Base):  # python floats kept in the group
    def __init__(self, p, kind):
        super().__init__(p, kind, lr=1e-1, d=1e-3, k=0, best=0.0)

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            g["k"] += 1
            g["d"] = g["d"] * 1.05 + 1e-5
            g["best"] = max(g["best"], g["d"])
            for p in g["params"]:
                s = self.state[p]
                if not s:
                    s["m"] = torch.zeros_like(p)
                self.begin(s)
                n = self.advance(s)
                s["m"].mul_(0.9).add_(p.grad, alpha=0.1 * g["d"])
                p.add_(s["m"], alpha=-g["lr"] * g["best"] / (1 - 0.9**n) * math.sqrt(g["k"]))


OPTIMIZERS = [Lion, Sophia, AdEMAMix, MyAdafactor, Prodigyish]
SCHEDULERS = {
    "none": lambda o: None,
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.95),
    "steps": lambda o: lr_scheduler.StepLR(o, 4, 0.5),
}


def trained(kind, counter, scheduler, wrap):
    """What each of some steps leaves."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))
    optimizer = kind(module.parameters(), counter)
    rate, step, rows = SCHEDULERS[scheduler](optimizer), wrap(optimizer.step), []
    for number in range(16):
        torch.manual_seed(number)
        optimizer.zero_grad()
        module(torch.randn(4, 3)).square().sum().backward()
        step()
        if rate is not None:
            rate.step()
        groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]
        rows.append((optimizer.state_dict()["state"], groups, list(module.parameters())))
        rows[-1] = repr(rows[-1])
    return rows


@pytest.mark.sweep(10)
@pytest.mark.parametrize(("kind", "counter", "scheduler"),
                         list(product(OPTIMIZERS, COUNTERS, SCHEDULERS)))  # fmt: skip
def test_they_settle(capture, backend, kind, counter, scheduler):
    made = []

    def wrap(step):
        made.append(capture(step, never_slower=False))
        return made[0]

    torch.set_printoptions(precision=10)
    try:
        ours = trained(kind, counter, scheduler, wrap)
        assert ours == trained(kind, counter, scheduler, lambda step: step)
    finally:
        torch.set_printoptions(profile="default")
    branches = kind is Sophia  # one in four of its steps is another program
    assert len(backend) <= 3 + (branches and scheduler == "steps")
    assert compiler_of(made[0]).cache.counters()["limit_reached"] == 0
