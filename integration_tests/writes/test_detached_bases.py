"""What views are of, detached in place: eager looks at the history of such a view when it is asked
for, which a compiled graph does where it ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

WRITES: dict[str, Callable[[Tensor], Any]] = {
    "none": lambda x: None,
    "a product": lambda x: x.mul_(5),
    "a comparison": lambda x: x.le_(0.5),
    "no derivative": lambda x: x.logical_and_(torch.tensor(0.0)),
}


def of_a_view(write: str, detached: bool, read: bool) -> Callable[[Tensor], Any]:
    def program(base: Tensor) -> Any:
        view = base.reshape(-1)
        base.div_(3.0)
        other = view - 3 if read else base * 2
        WRITES[write](base)
        if detached:
            base.detach_()
        return base, view, other

    return program


def of_a_given_view(write: str, detached: bool, read: bool) -> Callable[[Tensor], Any]:
    def whole(base: Tensor) -> Any:
        return program(base, base.view(-1))

    def program(base: Tensor, view: Tensor) -> Any:
        WRITES[write](base)
        if detached:
            base.detach_()
        base.add_(1)
        return base, view, view * 2 if read else view.reshape(-1)

    return whole


def outcome(run: Callable[[Tensor], Any], place: int, empty: bool) -> Any:
    root = torch.arange(0.0 if empty else 4.0).view(-1, 1).requires_grad_()
    results = run(root * 1)
    needed = [result.requires_grad for result in results]
    if needed[place]:
        results[place].sum().backward()
    return needed, None if root.grad is None else root.grad.flatten().tolist()


@pytest.mark.parametrize("made", [of_a_view, of_a_given_view], ids=["made", "given"])
@pytest.mark.parametrize("write", WRITES)
def test_histories_of_views(made: Callable[..., Any], write: str) -> None:
    for detached, read, empty in itertools.product((False, True), repeat=3):
        program = made(write, detached, read)
        compiled = flambeau.compile(program, backend="aot_eager")
        for place in range(3):
            expected = outcome(program, place, empty)
            assert outcome(compiled, place, empty) == expected, (detached, read, empty, place)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_is_written_after_it_was_detached_has_a_history(backend: str) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        x.detach_()
        x[0] = y[0]
        return x * 2

    seen = []
    for run in (program, flambeau.compile(program, backend=backend)):
        x, y = torch.ones(3), torch.ones(3, requires_grad=True)
        result = run(x, y * 1)
        result.sum().backward()
        assert y.grad is not None
        seen.append((x.requires_grad, x.tolist(), y.grad.tolist()))
    assert seen[1] == seen[0]
