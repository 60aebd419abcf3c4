"""Derivatives of programs that ask for derivatives themselves, up to the third order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau

INNER = ("a * a * b", "a.sin() * b", "a.exp() + b")


def program(inner: str, hooked: bool) -> Callable[..., tuple[torch.Tensor, ...]]:
    """One with a result that depends on another, so that gradients of it are made by a run. A hook
    with an effect ends the graph behind the derivative."""
    hook = "    shifted.register_hook(lambda gradient: seen.append(1))\n" * hooked
    space: dict[str, Any] = {"torch": torch, "seen": []}
    exec(
        f"def f(a, b):\n    g, = torch.autograd.grad(({inner}).sum(), a, create_graph=True)\n"
        f"    total = g + a\n    shifted = total + 1\n{hook}"
        "    first = total.abs()\n    return first, first.t() + 1\n",
        space,
    )
    made: Callable[..., tuple[torch.Tensor, ...]] = space["f"]
    return made


def orders(call: Callable[..., Any], wanted: tuple[bool, bool]) -> list[Any]:
    """The gradients of all orders, of the inputs that require grad."""
    inputs = [torch.linspace(k, k + 2, 6).reshape(2, 3) - 0.7 for k in (0, 1)]
    leaves = [x.requires_grad_() for x, grad in zip(inputs, wanted, strict=True) if grad]
    total: Any = sum(out.sum() * (k + 1) for k, out in enumerate(call(*inputs)))
    seen = list[Any]()
    for _ in range(3):
        if not (isinstance(total, torch.Tensor) and total.requires_grad):
            break
        found = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
        seen += found
        total = sum(g.square().sum() for g in found if g is not None and g.requires_grad)
    return seen


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("inner", "hooked"), [*itertools.product(INNER, (True, False))])
def test_they_are_eagers_whichever_inputs_require_grad(inner: str, hooked: bool) -> None:
    f = program(inner, hooked)
    compiled = flambeau.compile(f, backend="aot_eager")
    for wanted in ((True, True), (True, False)):
        torch.testing.assert_close(orders(compiled, wanted), orders(f, wanted))
