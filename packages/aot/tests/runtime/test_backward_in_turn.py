"""Backward passes of one result after the other, each of which frees what it has read alone."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable

import flambeau_aot as aot
import pytest
import torch

PROGRAMS: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "apart": lambda x, y: (x * x, y.exp()),
    "one input": lambda x, y: (x * x, x.exp(), y * x),
    "both keep one value": lambda x, y: ((h := x.exp()) * 2, h * 3),
    "one node that keeps nothing": lambda x, y: ((h := x + y) * 2, h * h),
    "a row of them": lambda x, y: ((h := x.sin()), h * y, y.cos()),
    "nothing kept": lambda x, y: (x + 1, y * 2, x * y),
    "a result that is read": lambda x, y: ((h := x.tanh()), y.exp(), h + 1),
}


def passes(
    call: Callable[..., tuple[torch.Tensor, ...]],
    order: tuple[int, ...],
    retain: tuple[int, ...],
    write: bool,
) -> list[object]:
    """What becomes of backward passes of these results in this order."""
    x, y = (torch.tensor([0.5, 2.0]).mul(n).requires_grad_() for n in (1, 2))
    results = call(x, y)
    seen: list[object] = []
    for at, keep in zip(order, retain, strict=True):
        if at >= len(results):
            continue
        try:
            results[at].sum().backward(retain_graph=bool(keep))
        except RuntimeError as error:  # eager has gone on to some leaves by then
            return [*seen, str(error)[:30]]
        seen += [None if t.grad is None else t.grad.tolist() for t in (x, y)]
        if write:
            with torch.no_grad():
                results[-1].add_(0)
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_pass_frees_what_eager_frees(name: str) -> None:
    fn = PROGRAMS[name]
    compiled = aot.aot_function(fn, aot.run_as_is)
    for order in [(*each, each[0]) for each in itertools.permutations(range(3))]:
        for retain, write in (((0, 0, 0, 0), False), ((1, 0, 0, 0), True), ((0, 1, 0, 0), True)):
            own = order, retain, write
            assert passes(compiled, *own) == passes(fn, *own), own


SOME_INPUTS = {
    "a row": lambda x, y: ((h := x * y), (y * y * h).sum()),
    "beside one that keeps nothing": lambda x, y: (x * x + y, y * 2),
    "a constant": lambda x, y: (x * torch.tensor([3.0, 4.0]) * x, y.exp() * x),
    "behind a value kept by both": lambda x, y: ((h := x.exp()) * y, h.sin() + y * y),
    "apart": lambda x, y: (x.sin() * 2 + y.cos(), x * 3),
}
WANTED = ("x", "y", "xy")


@pytest.mark.parametrize("name", SOME_INPUTS)
def test_a_pass_for_some_inputs_frees_what_leads_to_them(name: str) -> None:
    """Three passes, each from one result for some of the inputs."""
    fn = SOME_INPUTS[name]
    compiled = aot.aot_function(fn, aot.run_as_is)

    def outcome(call: Callable[..., tuple[torch.Tensor, ...]], passes: Passes) -> list[object]:
        given = {"x": torch.tensor([0.5, 2.0]), "y": torch.tensor([1.0, 3.0])}
        inputs = {name: leaf.requires_grad_() for name, leaf in given.items()}
        results, seen = call(*inputs.values()), list[object]()
        for at, wanted in passes:
            own = [inputs[letter] for letter in wanted]
            try:
                found = torch.autograd.grad(results[at].sum(), own, allow_unused=True)
            except RuntimeError as error:
                return [*seen, str(error)[:30]]
            seen += [None if g is None else g.tolist() for g in found]
        return seen

    one = list(itertools.product((0, 1), WANTED))
    for passes in (*itertools.product(one, one), *zip(one, one[::-1], one[1:] + one[:1])):
        assert outcome(compiled, passes) == outcome(fn, passes), passes


Passes = tuple[tuple[int, str], ...]


def test_what_is_left_is_differentiated_twice() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x * x, y.exp() * y

    found = []
    for call in (fn, aot.aot_function(fn, aot.run_as_is)):
        x, y = (torch.tensor([0.5, 2.0], requires_grad=True) for _ in range(2))
        first, second = call(x, y)
        first.sum().backward()
        (slope,) = torch.autograd.grad(second.sum(), y, create_graph=True)
        slope.sum().backward()
        found.append((x.grad, y.grad))
    torch.testing.assert_close(found[1], found[0])


def test_what_is_left_goes_with_its_results() -> None:
    compiled = aot.aot_function(lambda x, y: (x.exp(), y.exp()), aot.run_as_is)
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    gc.disable()
    try:
        first, second = compiled(x, y)
        first.sum().backward()
        gone = weakref.ref(second.grad_fn)
        del first, second
        assert gone() is None
    finally:
        gc.enable()
