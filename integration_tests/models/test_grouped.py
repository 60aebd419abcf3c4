"""Grouped products of a mixture of experts, forth and back, beside eager and float64."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau

ENDS = (3, 3, 11, 16)
WIDTH, HIDDEN = 16, 24


class Experts(nn.Module):
    """Two linear maps an expert; tokens come in the experts' order."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(len(ENDS), HIDDEN, WIDTH) / 4)
        self.down = nn.Parameter(torch.randn(len(ENDS), WIDTH, HIDDEN) / 4)

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        hidden = F.silu(F.grouped_mm(x, self.up.mT, offs=ends))
        return F.grouped_mm(hidden, self.down.mT, offs=ends) + x


def exact(module: Experts, x: Tensor) -> Tensor:
    """The same in float64, expert by expert."""
    parts = []
    for number, (first, last) in enumerate(zip((0, *ENDS), ENDS, strict=False)):
        part = x[first:last].double()
        hidden = F.silu(part @ module.up[number].double().T)
        parts.append(hidden @ module.down[number].double().T + part)
    return torch.cat(parts)


def test_experts_and_their_gradients() -> None:
    module = Experts().bfloat16()
    ends = torch.tensor(ENDS, dtype=torch.int32)
    compiled = flambeau.compile(module, fullgraph=True)
    results: list[list[Tensor]] = []
    for run in (compiled, module, lambda x, _: exact(module, x)):
        x = torch.linspace(-2, 2, ENDS[-1] * WIDTH).view(-1, WIDTH).bfloat16().requires_grad_()
        module.zero_grad()
        out = run(x, ends)
        out.square().sum().backward()
        grads = [x.grad, module.up.grad, module.down.grad]
        assert all(grad is not None for grad in grads)
        results.append([t.detach().double().clone() for t in (out, *grads) if t is not None])
    for got, eager, wanted in zip(*results, strict=True):
        length = wanted.norm()
        assert (got - wanted).norm() <= 2 * (eager - wanted).norm() + 1e-3 * length
