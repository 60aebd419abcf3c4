"""Casts of autocast: as many as in eager, so that gradients are summed in the same precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch


def twice(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return ((x @ w).float().sin() + torch.mm(x, w)).float()


def with_itself(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (w @ w).float() * 1.5


def left_between(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        first = torch.nn.functional.linear(x, w)
    with torch.autocast("cpu", torch.bfloat16):
        return first.float() + torch.nn.functional.linear(x.cos(), w).float()


def not_remembered(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        return (x @ w).float().exp() + (x.cos() @ w).float()


def written(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        x.mul_(2)
        return (x @ w).float() + (x.t() @ w.t()).float() + (w @ x).float()


CASTS = {twice: 1, with_itself: 1, left_between: 2, not_remembered: 2, written: 2}


@pytest.mark.parametrize("program", list(CASTS), ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("kind", ["leaf", "not a leaf"])
def test_a_leaf_is_cast_as_often_as_in_eager(program: Callable[..., Any], kind: str) -> None:
    seen = []
    compiled = aot.aot_function(program, aot.run_as_is)
    for call in (program, compiled):
        torch.manual_seed(0)
        leaf, x = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
        w = leaf if kind == "leaf" else leaf * 1
        value = call(w, x)
        weights = torch.linspace(-1, 1, 64).view(8, 8)
        seen.append((value, *torch.autograd.grad((value * weights).sum(), leaf)))
    assert torch.equal(seen[0][0], seen[1][0])
    assert torch.equal(seen[0][1], seen[1][1])


@pytest.mark.parametrize("program", list(CASTS), ids=lambda fn: fn.__name__)
def test_how_often(program: Callable[..., Any]) -> None:
    """Casts back to float32 of a gradient with respect to the weight."""
    compiled: Any = aot.aot_function(program, aot.run_as_is)
    w = torch.randn(8, 8, requires_grad=True)
    compiled(w, torch.randn(8, 8)).sum().backward()
    (entry,) = compiled.compiled.values()
    (grad,) = [node for node in entry.halves.backward.graph.nodes if node.op == "output"]
    found, stack = 0, [item for item in grad.args[0] if item is not None]
    while stack:
        node = stack.pop()
        if node.target in (torch.ops.aten.add.Tensor, torch.ops.aten.t.default):
            stack.extend(node.all_input_nodes)
        else:
            found += node.target is torch.ops.aten._to_copy.default
    assert found == CASTS[program]
