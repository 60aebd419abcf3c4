"""Hooks on saved tensors: around a compiled call, inside a program, and both."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
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


def test_around_a_call_that_is_traced_under_them() -> None:
    """The trace itself saves nothing of the caller's: the hooks see what eager gives them."""
    seen: dict[bool, list[Any]] = {True: [], False: []}
    found = []
    with warnings.catch_warnings(action="ignore"):
        for is_compiled in seen:
            call = aot.aot_function(chain, aot.run_as_is) if is_compiled else chain
            with to_numpy(seen[is_compiled]):
                x, w = (torch.full((3, 3), n / 4, requires_grad=True) for n in (1, 2))
                loss = call(x, w)
            found.append(torch.autograd.grad(loss, (x, w)))
    assert seen[False]
    np.testing.assert_equal(seen[True], seen[False])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


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
        self.calls = list[Any]()

    def pack(self, t: torch.Tensor) -> torch.Tensor:
        self.calls.append(tuple(t.shape))
        return (t.detach() * 8).round()

    def unpack(self, t: torch.Tensor) -> torch.Tensor:
        self.calls.append(None)
        return t / 8


class Counted(Quantised):
    """Hooks that change each value in another way."""

    def pack(self, t: torch.Tensor) -> torch.Tensor:
        self.calls.append(tuple(t.shape))
        return t.detach() * len(self.calls)

    def unpack(self, t: torch.Tensor) -> torch.Tensor:
        self.calls.append(None)
        return t - len(self.calls)


def written_to(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.mul_(w)
    return y.exp().sum()


def views(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = (x * w).sin()
    return y, y.t()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "chain": chain,
    "one saved": lambda x, w: (x @ w).sum(),
    "an input twice": lambda x, w: (x * x * w).sum(),
    "results": lambda x, w: (x.exp() * w.tanh()).sigmoid().sum(),
    "nothing": lambda x, w: (x + w).sum(),
    "only eager saves": lambda x, w: (x * 2 * 3).sum() + w.sum(),
    "written to": written_to,
    "views": views,
    "an input": lambda x, w: (x, x * w),
    "no result leads to it": lambda x, w: (x, (x * w).detach()),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("hooks", [Quantised, Counted])
def test_those_around_a_call_are_given_what_eager_gives_them(
    name: str, hooks: type[Quantised], recwarn: pytest.WarningsRecorder
) -> None:
    """The program runs as eager runs it, and a warning says so once."""
    program = PROGRAMS[name]
    compiled: Any = aot.aot_function(program, aot.run_as_is)

    def observed(call: Callable[..., Any], hooked: bool) -> list[Any]:
        own = hooks()
        x, w = (torch.linspace(-1, n, 9).reshape(3, 3).requires_grad_() for n in (1, 2))
        with saved_tensors_hooks(own.pack, own.unpack) if hooked else nullcontext():
            results = call(x, w)
        results = results if isinstance(results, tuple) else (results,)
        sum(
            result.sum() for result in results if result.grad_fn is not None or result is x
        ).backward()
        return [own.calls, x.grad, w.grad]

    for hooked in (False, True, True, False, True):
        given, expected = observed(compiled, hooked), observed(program, hooked)
        assert given[0] == expected[0]
        torch.testing.assert_close(given[1:], expected[1:])
    assert len(compiled.compiled) == 1
    assert sum("AO0167" in str(each.message) for each in recwarn) == 1


def test_without_derivatives_they_change_nothing(recwarn: pytest.WarningsRecorder) -> None:
    compiled = aot.aot_function(chain, aot.run_as_is)
    x, w = torch.ones(3, 3), torch.ones(3, 3)
    with to_numpy([]):
        torch.testing.assert_close(compiled(x, w), chain(x, w))
    assert not recwarn.list


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
