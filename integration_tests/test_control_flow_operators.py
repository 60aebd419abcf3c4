"""torch's operators of control flow at open sizes, with gradients: one graph for all sizes, and
what Python's own loop or branch gives, as torch compiles them itself in eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import while_loop

import flambeau

Program = Callable[[Tensor, Tensor], tuple[Tensor, ...]]
Loop = Callable[..., tuple[Tensor, ...]]


def _python_loop(test: Callable[..., Tensor], body: Loop, state: tuple[Tensor, ...]) -> Loop:
    while bool(test(*state)):
        state = body(*state)
    return state


def _start() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


LOOPS: dict[str, Callable[[Loop, Tensor, Tensor], tuple[Tensor, ...]]] = {
    "so many": lambda loop, x, w: loop(
        lambda i, y: i < 3, lambda i, y: (i + 1, y * 1.5), (_start(), x)
    ),
    "by data": lambda loop, x, w: loop(
        lambda i, y: y.abs().sum() < 50, lambda i, y: (i + 1, y * 1.5 + 0.1), (_start(), x)
    ),
    "of other tensors": lambda loop, x, w: loop(
        lambda i, y: i < w.abs().sum(), lambda i, y: (i + 1, y.sin() * w + x), (_start(), x * 2)
    ),
    "by a size": lambda loop, x, w: loop(
        lambda i, y: i < x.shape[0], lambda i, y: (i + 1, y @ w.diag() + x.shape[0]), (_start(), x)
    ),
    "of no round": lambda loop, x, w: loop(
        lambda i, y: i < 0, lambda i, y: (i + 1, y * w), (_start(), x)
    ),
}


def _same(run: Program, reference: Program, given: list[Tensor], gradients: bool) -> None:
    found = []
    for program in (run, reference):
        own = [x.clone().requires_grad_(gradients) for x in given]
        results = program(*own)
        ends = sum(x.sum() for x in results if x.requires_grad)
        grads = torch.autograd.grad(ends, own, allow_unused=True) if gradients else ()
        zeros = [x * 0 if grad is None else grad for x, grad in zip(own, grads)]
        found.append(([x.detach() for x in results], [x.detach() for x in zeros]))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_a_while_loop_of_open_sizes(name: str, gradients: bool, backend: str) -> None:
    def program(loop: Loop) -> Program:
        return lambda x, w: LOOPS[name](loop, x, w)

    compiled = flambeau.compile(program(while_loop), backend=backend, dynamic=True)
    torch.manual_seed(0)
    for length in (5, 7, 3, 9):
        given = [torch.rand(length, 4), torch.rand(4)]
        _same(compiled, program(_python_loop), given, gradients)
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (1, (), ())


BRANCHES: dict[str, tuple[Program, Program]] = {
    "constant sizes": (lambda x, w: x[:3].sin(), lambda x, w: x[:2] * w),
    "longer": (lambda x, w: torch.cat([x, x * w]), lambda x, w: x + w),
    "two dimensions": (lambda x, w: x[:1, :2] * 1.0, lambda x, w: x * w),
    "several": (lambda x, w: (x * w, x[0] + 1), lambda x, w: (x[:2] + w, w * 2)),
    "nothing": (lambda x, w: x[:0] * 1.0, lambda x, w: x * w),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_of_two_sizes(name: str, backend: str) -> None:
    yes, no = BRANCHES[name]

    def program(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        found = torch.cond(x.sum() > 0, lambda: yes(x, w), lambda: no(x, w), ())
        parts = found if isinstance(found, tuple) else (found,)
        return *parts, parts[0].sum(0) * parts[0].shape[0]

    def reference(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        found = (yes if x.sum() > 0 else no)(x, w)
        parts = found if isinstance(found, tuple) else (found,)
        return *parts, parts[0].sum(0) * parts[0].shape[0]

    compiled = flambeau.compile(program, backend=backend, dynamic=True)
    torch.manual_seed(0)
    for length, sign in ((5, 1), (7, -1), (3, 1), (9, -1)):
        given = sign * torch.rand(length, 4), torch.rand(4)
        want, got = reference(*given), compiled(*given)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        places = [(x.stride(), x.storage_offset()) for x in (*want, *got)]
        assert places[: len(want)] == places[len(want) :]
    report = flambeau.report(compiled)
    assert (report.graphs, report.breaks, report.fallbacks) == (1, (), ())
