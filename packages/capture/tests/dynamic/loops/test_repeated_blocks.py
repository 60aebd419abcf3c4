"""Loops with a break inside: the code that goes on is made for what the iterations have in common,
not for each expert, block or step."""

import warnings

import pytest
import torch
from flambeau_capture import CaptureWarning
from flambeau_capture.api import compiler_of
from torch import nn

EXPERTS, STEPS, WIDTH = 16, 32, 8


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(EXPERTS)
        )


class ByEnumeration(Experts):
    def forward(self, x):
        top, where = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(where == number)
            if rows.numel() == 0:
                continue
            out[rows] += top[rows, slot, None] * expert(x[rows])
        return out


class ByIndex(Experts):
    def forward(self, x):
        where = self.gate(x).topk(2).indices
        out = torch.zeros_like(x)
        for number in range(EXPERTS):
            mask = (where == number).any(-1)
            if mask.any():
                out = out + self.experts[number](x) * mask[:, None]
        return out


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.step = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        for number in range(STEPS):
            x = torch.tanh(self.step(x))
            if x.sum() > 1e6:
                break
            x = x + number
        return x


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", [ByEnumeration, ByIndex, Steps])
@pytest.mark.parametrize("grad", [False, True])
def test_entries_do_not_grow_with_the_iterations(capture, kind, grad):
    torch.manual_seed(0)
    module = kind()
    compiled = capture(module)
    with warnings.catch_warnings(), torch.set_grad_enabled(grad):
        warnings.simplefilter("error", CaptureWarning)
        for _ in range(4):
            for _ in range(3):
                x = torch.randn(6, WIDTH)
                torch.testing.assert_close(compiled(x), module(x))
    records = compiler_of(compiled).records
    made = len(records.graphs)
    assert made <= 16, "one graph or two for each way through an iteration"
    assert not records.internal_errors
    with torch.no_grad():  # training changes what a block computes with, not what was made
        for parameter in module.parameters():
            parameter.mul_(1.5)
    with torch.set_grad_enabled(grad):
        x = torch.randn(6, WIDTH)
        torch.testing.assert_close(compiled(x), module(x))


def test_an_expert_that_is_replaced_or_differs_is_noticed(capture):
    torch.manual_seed(1)
    module = ByIndex()
    compiled = capture(module)
    x = torch.randn(6, WIDTH)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), module(x))
        for number in range(EXPERTS):
            module.experts[number] = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
            torch.testing.assert_close(compiled(x), module(x))
        module.experts[3][0].register_forward_hook(lambda module, args, out: out * 3)
        torch.testing.assert_close(compiled(x), module(x))
        shared = module.experts[5]
        for number in range(EXPERTS):
            module.experts[number] = shared
        torch.testing.assert_close(compiled(x), module(x))
        for number in range(EXPERTS):
            module.experts[number][0].bias = None
        torch.testing.assert_close(compiled(x), module(x))


def test_gradients_of_blocks_that_share_their_code(capture):
    torch.manual_seed(2)
    module = ByIndex()
    compiled = capture(module)
    for _ in range(3):
        x = torch.randn(6, WIDTH)
        found = []
        for fn in (module, compiled):
            module.zero_grad()
            fn(x).square().sum().backward()
            found.append({n: p.grad for n, p in module.named_parameters()})
        for name, grad in found[0].items():
            torch.testing.assert_close(found[1][name], grad, msg=name)


class Block(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale = scale

    def forward(self, x):
        x = self.linear(x)
        if x.sum() > 1e9:
            return x
        return torch.tanh(x) * self.scale


def test_blocks_that_break_share_their_code(capture, backend):
    blocks = nn.Sequential(*(Block(2.0) for _ in range(12)))
    compiled = capture(blocks)
    x = torch.randn(4, WIDTH)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error", CaptureWarning)
        for _ in range(3):
            torch.testing.assert_close(compiled(x), blocks(x))
        assert len(backend) <= 26, len(backend)
        blocks[7].scale = 3.0
        torch.testing.assert_close(compiled(x), blocks(x))


def test_the_next_number_of_an_iterator_is_open(capture, backend):
    def f(x, numbers):
        return x + next(numbers)

    compiled = capture(f)
    numbers, theirs = iter(range(2, 40)), iter(range(2, 40))
    x = torch.ones(3)
    for _ in range(10):
        torch.testing.assert_close(compiled(x, numbers), f(x, theirs))
    assert len(backend) == 1
