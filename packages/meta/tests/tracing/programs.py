"""A small program with a break, a recompile, a backward pass and something that runs eagerly."""

import torch

import flambeau


def toy(a, b, w):
    x = torch.softmax((a / (torch.abs(a) + 1)) @ w, -1)
    if b.sum() < 0:
        b = b * -1
    return torch.cumsum(x * b, 0)


def refused(x):
    return torch.sin(x)


def run(**choices):
    compiled = flambeau.compile(toy, **choices)
    for rows in (30, 20):
        w = torch.randn(10, 4, requires_grad=True)
        compiled(torch.randn(rows, 10), torch.ones(rows, 4), w).sum().backward()
    return compiled
