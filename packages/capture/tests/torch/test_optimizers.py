"""Optimizers: `step` is a graph, its state begins in the first call and goes on in the next."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "sgd foreach": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1, "foreach": True}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "foreach": False}),
    "adam amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "maximize": True}),
    "adam foreach": (torch.optim.Adam, {"lr": 0.01, "foreach": True}),
    "adam fused": (torch.optim.Adam, {"lr": 0.01, "fused": True}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01}),
    "adamw foreach": (torch.optim.AdamW, {"lr": 0.01, "foreach": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "adagrad foreach": (torch.optim.Adagrad, {"lr": 0.1, "foreach": True}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.9, "centered": True}),
    "rmsprop foreach": (torch.optim.RMSprop, {"lr": 0.01, "foreach": True}),
    "adadelta": (torch.optim.Adadelta, {}),
    "adamax": (torch.optim.Adamax, {}),
    "nadam": (torch.optim.NAdam, {}),
    "radam": (torch.optim.RAdam, {}),
    "rprop": (torch.optim.Rprop, {}),
    "asgd": (torch.optim.ASGD, {}),
}
WHOLE = [name for name in OPTIMIZERS]


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def train(make_step, name, steps=3):
    """Parameters and state after some steps, and the optimizer."""
    kind, options = OPTIMIZERS[name]
    module = net()
    optimizer = kind(module.parameters(), **options)
    step = make_step(optimizer)
    for number in range(steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        module(torch.randn(3, 4)).square().mean().backward()
        step()
    state = [{key: value for key, value in optimizer.state[p].items()} for p in module.parameters()]
    return [p.detach() for p in module.parameters()], state


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_agree(capture, backend, name):
    ours, our_state = train(lambda o: capture(lambda: o.step(), cache_size_limit=16), name)
    theirs, their_state = train(lambda o: o.step, name)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert [list(one) for one in our_state] == [list(one) for one in their_state]
    torch.testing.assert_close(our_state, their_state, rtol=1e-5, atol=1e-6)
    assert len(backend) >= 1
