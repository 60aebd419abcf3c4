"""Hooks that a program puts on the gradients of its inputs, on the inputs themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau_aot as aot
import pytest
import torch

SEEN: list[torch.Tensor] = []


def scaled(x: torch.Tensor) -> Any:
    x.register_hook(lambda grad: grad * 2)
    return x.sin()


def shifted(x: torch.Tensor) -> Any:
    x.register_hook(partial(torch.add, 1.0))
    x.register_hook(lambda grad: grad * 3)
    return x.sin(), x.exp()


def noted(x: torch.Tensor) -> Any:
    y = x.cos()
    x.register_hook(SEEN.append)
    return y


def written_after(x: torch.Tensor) -> Any:
    x.register_hook(lambda grad: grad + 1)
    if not x.is_leaf:
        x.mul_(3)
    return x.sin(), x


def detached_after(x: torch.Tensor) -> Any:
    y = x.exp()
    x.register_hook(lambda grad: grad + 1)
    x.detach_()
    return y


def without_need(x: torch.Tensor) -> Any:
    x.register_hook(lambda grad: grad + 1)
    return x.detach() * 2, (x * 2).detach()


PROGRAMS: list[Callable[..., Any]] = [
    scaled,
    shifted,
    noted,
    written_after,
    detached_after,
    without_need,
]


def outcome(call: Callable[..., Any], leaf: bool, asked: int) -> list[Any]:
    SEEN.clear()
    base = torch.arange(1.0, 4.0).requires_grad_()
    x = base if leaf else base * 2
    outside = 2 * x.sum()  # the hook sees what comes from outside of the region, too
    results = call(x)
    results = results if isinstance(results, tuple) else (results,)
    ends = [results[asked % len(results)], outside]
    sum(end.sum() for end in ends if end.requires_grad).backward()  # type: ignore[attr-defined]
    return [base.grad, [item.detach() for item in results], list(SEEN)]


@pytest.mark.parametrize("leaf", [True, False], ids=["leaf", "of a history"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_a_hook_on_an_input(fn: Callable[..., Any], leaf: bool) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    for asked in (0, 1):
        torch.testing.assert_close(outcome(compiled, leaf, asked), outcome(fn, leaf, asked))


def test_a_hook_is_not_called_for_a_gradient_that_nobody_asks_for() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.register_hook(SEEN.append)
        return x.sin(), y.sin()

    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        SEEN.clear()
        leaf = torch.ones(3, requires_grad=True)
        call(leaf * 1, leaf * 2)[1].sum().backward()
        assert SEEN == []


def test_results_of_a_leaf_made_inside_require_grad_beside_a_hook() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.register_hook(SEEN.append)
        leaf = y.detach().clone().requires_grad_()
        return leaf * 2

    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        assert call(torch.ones(3, requires_grad=True) * 2, torch.ones(3)).requires_grad


def reads_a_value(x: torch.Tensor) -> Any:
    y = x.sin()
    x.register_hook(lambda grad: grad * y)
    return y


def reads_a_value_far_away(x: torch.Tensor) -> Any:
    kept = {"values": [x.sin()]}
    x.register_hook(partial(lambda known, grad: grad * known["values"][0], kept))
    return kept["values"][0]


def of_a_written_one(x: torch.Tensor) -> Any:
    x.mul_(2)
    x.register_hook(SEEN.append)
    return x.sin()


def differentiates(x: torch.Tensor) -> Any:
    x.register_hook(lambda grad: grad * 2)
    return torch.autograd.grad(x.sin().sum(), x)[0]


def removes(x: torch.Tensor) -> Any:
    x.register_hook(SEEN.append).remove()
    return x.sin()


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (reads_a_value, "reads a tensor of the program"),
        (reads_a_value_far_away, "reads a tensor of the program"),
        (of_a_written_one, "that was written to"),
        (differentiates, "differentiates after it has put a hook"),
        (removes, "remove the hook outside"),
    ],
)
def test_what_is_refused(fn: Callable[..., Any], words: str) -> None:
    with pytest.raises(aot.Unsupported, match=words):
        aot.aot_function(fn, aot.run_as_is)(torch.ones(3, requires_grad=True) * 2)


def test_a_hook_on_a_view_that_is_written_to_is_refused() -> None:
    def fn(x: torch.Tensor) -> Any:
        x.register_hook(lambda grad: grad * 0.5)
        x[0] = 2.0
        return x

    view = (torch.ones(3, 3, requires_grad=True) * 2).t()
    with pytest.raises(aot.Unsupported, match="is a view and is written to"):
        aot.aot_function(fn, aot.run_as_is)(view)


def test_a_hook_on_a_part_of_written_memory_is_refused() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        y.register_hook(SEEN.append)
        y.mul_(2)
        return x.sin()

    base = torch.ones(3, 3, requires_grad=True) * 2
    with pytest.raises(aot.Unsupported, match="shares memory with another one"):
        aot.aot_function(fn, aot.run_as_is)(base, base[1:])
