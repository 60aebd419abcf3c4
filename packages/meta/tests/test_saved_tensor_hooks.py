"""Hooks on saved tensors see the packs and unpacks that they see in eager, wherever they are put in
force, and whatever autograd saves: also what no result leads to, and what raises."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import checkpoint as checkpoints

import flambeau


class Seen:
    """Hooks that note what they are called with, and change it."""

    def __init__(self):
        self.calls = []

    def pack(self, t):
        self.calls.append((tuple(t.shape), t.dtype, round(float(t.detach().double().sum()), 3)))
        return t.detach() * (1 + len(self.calls) / 8)

    def unpack(self, t):
        self.calls.append(tuple(t.shape))
        return t


SEEN: list[Seen] = [Seen()]


def hooks():
    return saved_tensors_hooks(lambda t: SEEN[0].pack(t), lambda t: SEEN[0].unpack(t))


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


def differentiable(x, y):
    return torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)


BODIES = {
    "operators": lambda x, y: (x * y).sin(),
    "unused": lambda x, y: ((x * y).exp(), x + 1)[1],
    "grad_disabled": lambda x, y: torch.no_grad()(lambda: x * y)().sin(),
    "grad_enabled": lambda x, y: torch.enable_grad()(lambda: x * y)().detach(),
    "detached": lambda x, y: (x * y).exp().detach(),
    "leaf_inside": lambda x, y: (x.detach().requires_grad_() * 2).exp().detach() + 1,
    "new_leaf": lambda x, y: torch.ones(3, requires_grad=True).exp(),
    "checkpoint": lambda x, y: checkpoints.checkpoint(
        lambda u, w: (u * w).sin(), x, y, use_reentrant=False
    ),
    "checkpoint_twice": lambda x, y: checkpoints.checkpoint(
        lambda u, w: (u * w).sin(), x, x, use_reentrant=False
    ),
    "checkpoint_unread": lambda x, y: checkpoints.checkpoint(
        lambda u, w: u.sin(), x, y, use_reentrant=False
    ),
    "function": lambda x, y: Product.apply(x, y).cos(),
    "backward": lambda x, y: (x * y).exp().sum().backward() if differentiable(x, y) else None,
    "raises_in_backward": lambda x, y: (
        torch.where(x > 1, x, y).exp().sum().backward() if differentiable(x, y) else None
    ),
    "gradients": lambda x, y: (
        torch.autograd.grad((x * y).exp().sum(), x, create_graph=True)
        if differentiable(x, x)
        else x
    ),
    "written": lambda x, y: (x * 2)[1:].mul_(y[1:]).exp(),
    "loss": lambda x, y: torch.nn.functional.cross_entropy(
        (x * y).expand(2, 3), torch.tensor([0, 2])
    ),
}


def inside(body):
    def program(x, y):
        with hooks():
            made = body(x, y)
        return made

    return program


def pushed(body):
    def program(x, y):
        entered = hooks()
        entered.__enter__()
        try:
            return body(x, y)
        finally:
            entered.__exit__(None, None, None)

    return program


def called(function, around, wanting, grad):
    """What the hooks see, and what the call and a backward pass give."""
    SEEN[0] = Seen()
    x = torch.arange(1.0, 4).requires_grad_(wanting[0])
    y = torch.arange(2.0, 5).requires_grad_(wanting[1])
    result: Any
    try:
        with torch.set_grad_enabled(grad), around():
            found = torch.utils._pytree.tree_leaves(function(x, y))
        outs = [out for out in found if isinstance(out, torch.Tensor)]
        ends = [out for out in outs if out.requires_grad]
        if ends:
            sum(end.sum() for end in ends).backward()
        result = [out.detach() for out in outs] + [x.grad, y.grad]
    except Exception as error:
        result = type(error), str(error)
    return SEEN[0].calls, result


STATES = [
    ((True, False), True),
    ((True, True), True),
    ((False, False), True),
    ((True, True), False),
]


@pytest.mark.parametrize("place", ["inside", "pushed", "around", "around_later"])
@pytest.mark.parametrize("body", BODIES)
def test_hooks_on_saved_tensors_see_what_they_see_in_eager(place, body):
    program = {"inside": inside, "pushed": pushed}.get(place, lambda it: it)(BODIES[body])
    around = hooks if place.startswith("around") else nullcontext
    with warnings.catch_warnings(action="ignore"):
        for state in STATES:
            compiled = flambeau.compile(program, backend="aot_eager")
            if place == "around_later":  # what is compiled knows of none
                called(compiled, nullcontext, *state)
            for _ in range(2):
                expected, given = called(program, around, *state), called(compiled, around, *state)
                assert given[0] == expected[0], state
                if isinstance(expected[1], tuple):
                    assert given[1] == expected[1]
                else:
                    torch.testing.assert_close(given[1], expected[1])
                assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
