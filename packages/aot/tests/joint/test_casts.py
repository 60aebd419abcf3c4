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


@pytest.mark.sweep(3)
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


@pytest.mark.sweep(2)
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


F = torch.nn.functional

# What each reads of a weight of 4 x 4, a bias of 4 and an argument of 4 x 4.
CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "linear": lambda w, b, x: F.linear(x, w, b),
    "matmul": lambda w, b, x: x @ w + b,
    "mm": lambda w, b, x: torch.mm(x, w).relu() @ w.t() + b,
    "addmm": lambda w, b, x: torch.addmm(b, x, w),
    "bmm": lambda w, b, x: torch.bmm(x[None], w[None]) * b,
    "baddbmm": lambda w, b, x: torch.baddbmm(b[None, None], x[None], w[None]),
    "conv2d": lambda w, b, x: F.conv2d(x[:, :, None, None], w[:, :, None, None], b),
    "attention": lambda w, b, x: F.scaled_dot_product_attention(x[None], w[None], w[None] + b),
    "lstm cell": lambda w, b, x: torch.lstm_cell(
        x, (x, x), w.repeat(4, 1), w.repeat(4, 1), b.repeat(4), b.repeat(4)
    )[0],
    "rnn cell": lambda w, b, x: torch.rnn_tanh_cell(x, x, w, w, b, b),
    "twice": lambda w, b, x: F.linear(F.linear(x, w, b), w, b),
    "with itself": lambda w, b, x: x + w @ w * b,
    "as is": lambda w, b, x: x * w + b,
}


def _inside(call: Callable[..., Any], dtype: torch.dtype, ask: Callable[..., Any]) -> Any:
    with torch.autocast("cpu", dtype):
        return ask(call().float().square().sum())


def _outside(call: Callable[..., Any], dtype: torch.dtype, ask: Callable[..., Any]) -> Any:
    with torch.autocast("cpu", dtype):
        loss = call().float().square().sum()
    return ask(loss)


def _nested(call: Callable[..., Any], dtype: torch.dtype, ask: Callable[..., Any]) -> Any:
    with torch.autocast("cpu", dtype):
        with torch.autocast("cpu", enabled=False):
            loss = call().square().sum()
        loss = loss + call().float().sum()
    return ask(loss + call().sum())


def _uncached(call: Callable[..., Any], dtype: torch.dtype, ask: Callable[..., Any]) -> Any:
    with torch.autocast("cpu", dtype, cache_enabled=False):
        return ask(call().float().square().sum() + call().float().sum())


def _in_two(call: Callable[..., Any], dtype: torch.dtype, ask: Callable[..., Any]) -> Any:
    with torch.autocast("cpu", dtype):
        first = ask(call().float().sum(), retain_graph=True)
        return first, ask(call().float().square().sum())


@pytest.mark.sweep(2)
@pytest.mark.parametrize("region", [_inside, _outside, _nested, _uncached, _in_two])
@pytest.mark.parametrize("call", list(CALLS))
def test_gradients_asked_for_inside_the_program(call: str, region: Callable[..., Any]) -> None:
    """A step of training in one graph: what autocast has cast is part of the gradient."""
    dtype = torch.float16 if "m" in call else torch.bfloat16

    def program(w: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> Any:
        def ask(loss: torch.Tensor, **options: Any) -> Any:
            return torch.autograd.grad(loss, [w, b], **options)

        return region(lambda: CALLS[call](w, b, x), dtype, ask)

    torch.manual_seed(0)
    w, b = torch.randn(4, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    given = w, b, torch.randn(4, 4)
    expected = program(*given)
    found = aot.aot_function(program, aot.run_as_is)(*given)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-2)
