"""Hooks on saved tensors: around a compiled call, inside a program, and both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import flambeau_aot as aot
import numpy as np
import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w).tanh() * x).exp().sum()


def inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with saved_tensors_hooks(lambda t: t * 0.5, lambda t: t * 2.0):
        y = (x @ w).tanh() * x
    return y.exp().sum()


def on_cpu_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    with save_on_cpu():
        y = (x @ w).tanh() * x
    return y.exp().sum()


def wrong_inside(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Hooks that change what is saved change the gradient, here as in eager."""
    with saved_tensors_hooks(lambda t: t * 3, lambda t: t):
        y = (x @ w).tanh() * x
    return y.exp().sum()


def gradients(call: Callable[..., Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    return list(torch.autograd.grad(call(x, w), (x, w)))


@pytest.mark.parametrize(
    "program", [chain, inside, on_cpu_inside, wrong_inside], ids=lambda fn: fn.__name__
)
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_inside(program: Callable[..., Any], partition: Any) -> None:
    compiled = aot.aot_function(program, aot.run_as_is, partition=partition)
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled), gradients(program))


@contextmanager
def to_numpy(packed: list[Any]) -> Iterator[None]:
    """What is saved leaves torch altogether."""

    def pack(t: torch.Tensor) -> np.ndarray:
        packed.append(t.detach().numpy().copy())
        return packed[-1]

    with saved_tensors_hooks(pack, torch.from_numpy):
        yield


def test_around_a_call_they_see_what_the_compiled_program_saves() -> None:
    compiled: Any = aot.aot_function(chain, aot.run_as_is)
    expected = gradients(chain)
    packed: list[Any] = []

    def hooked(*args: torch.Tensor) -> torch.Tensor:
        with to_numpy(packed):
            return compiled(*args)

    for _ in range(2):
        packed.clear()
        torch.testing.assert_close(gradients(hooked), expected)
        (entry,) = compiled.compiled.values()
        assert len(packed) == len(entry.halves.saved)


def test_around_a_call_that_is_traced_under_them() -> None:
    """The trace itself saves nothing of the caller's."""
    packed: list[Any] = []
    compiled = aot.aot_function(inside, aot.run_as_is)
    with to_numpy(packed):
        x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
        loss = compiled(x, w)
    assert all(item.shape == (3, 3) for item in packed) and packed
    expected = torch.autograd.grad(inside(x, w), (x, w))
    torch.testing.assert_close(torch.autograd.grad(loss, (x, w)), expected)


def packed_by_numpy(x: torch.Tensor) -> torch.Tensor:
    with saved_tensors_hooks(lambda t: t.detach().numpy().copy(), torch.from_numpy):
        return x.sin().sum()


class Outside(torch.autograd.Function):
    """A derivative that leaves torch."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * torch.from_numpy(np.cos(x.detach().numpy()))


@pytest.mark.parametrize(
    "program",
    [
        packed_by_numpy,
        lambda x: Outside.apply(x).sum(),
        lambda x: (x * torch.from_numpy((x.detach() * 2).numpy())).sum(),
        lambda x: (x * torch.from_numpy(np.asarray(x.detach()))).sum(),
        lambda x: (x * torch.from_dlpack(x.detach())).sum(),
    ],
)
def test_memory_of_a_value_is_refused_by_name(program: Callable[..., Any]) -> None:
    """There is none while the program is traced, and torch would make an array all the same."""
    with pytest.raises(aot.AotError, match=r"has none while|Tensor\.numpy|dlpack"):
        aot.aot_function(program, aot.run_as_is)(torch.ones(3, requires_grad=True))


class Quantised:
    """Hooks that are an object, and change what they are given."""

    def __init__(self) -> None:
        self.packed = self.unpacked = 0

    def pack(self, t: torch.Tensor) -> torch.Tensor:
        self.packed += 1
        return (t.detach() * 8).round()

    def unpack(self, t: torch.Tensor) -> torch.Tensor:
        self.unpacked += 1
        return t / 8


PROGRAMS: dict[str, Callable[..., torch.Tensor]] = {
    "chain": chain,
    "one saved": lambda x, w: (x @ w).sum(),
    "an input twice": lambda x, w: (x * x * w).sum(),
    "results": lambda x, w: (x.exp() * w.tanh()).sigmoid().sum(),
    "nothing": lambda x, w: (x + w).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("partition", [aot.min_cut_partition, aot.save_all])
def test_what_changes_values_is_given_each_once_and_told_of_once(
    name: str, partition: Any, recwarn: pytest.WarningsRecorder
) -> None:
    compiled: Any = aot.aot_function(PROGRAMS[name], aot.run_as_is, partition=partition)
    told = 0
    for _ in range(3):
        hooks = Quantised()
        recwarn.clear()
        x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
        with saved_tensors_hooks(hooks.pack, hooks.unpack):
            loss = compiled(x, w)
        (entry,) = compiled.compiled.values()
        assert hooks.packed == len(entry.halves.saved)
        loss.backward()
        assert hooks.unpacked == hooks.packed
        told += sum("AO0167" in str(each.message) for each in recwarn)
    assert told == (hooks.packed > 0)


def test_of_what_only_stores_nothing_is_told(recwarn: pytest.WarningsRecorder) -> None:
    compiled = aot.aot_function(chain, aot.run_as_is)
    x, w = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    expected = torch.autograd.grad(chain(x, w), (x, w))
    with save_on_cpu():
        stored = compiled(x, w)
    torch.testing.assert_close(torch.autograd.grad(stored, (x, w)), expected)
    again = checkpoint(compiled, x, w, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again, (x, w)), expected)
    assert not [each for each in recwarn if "AO0167" in str(each.message)]


def test_where_they_are_disabled_it_is_as_in_eager() -> None:
    compiled = aot.aot_function(chain, aot.run_as_is)
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        torch.testing.assert_close(gradients(compiled), gradients(chain))
