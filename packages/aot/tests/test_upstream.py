"""Derivatives of a user's behind the inputs of a compiled program: run where eager runs them."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from flambeau_aot.errors import Unsupported

RUNS: list[int] = []


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        RUNS.append(1)
        return grad + 1


Pair = tuple[torch.Tensor, torch.Tensor]
PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Pair]] = {
    "apart": lambda a, b: (a * 2, b * 3),
    "one of both": lambda a, b: (a * b, b.exp()),
    "both of both": lambda a, b: (a * b, b + a),
}
BEFORE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "leaf": lambda x: x,
    "torch's": lambda x: (x * 2).cos(),
    "a user's": lambda x: Own.apply(x),  # type: ignore[no-any-return]
    "behind torch's": lambda x: Own.apply(x).cos() * 2,  # type: ignore[no-any-return]
}


def outcome(call: Callable[..., Pair], before: str, asked: str) -> list[Any]:
    RUNS.clear()
    x, y = (torch.tensor([0.3, 0.7]).requires_grad_() for _ in range(2))
    p, q = call(BEFORE[before](x), y)
    {"first": p, "second": q, "both": p + q}[asked].sum().backward()
    return [x.grad, y.grad, len(RUNS)]


def traced(error: BaseException) -> list[traceback.FrameSummary]:
    return traceback.extract_tb(error.__traceback__)


@pytest.mark.parametrize("fn", PROGRAMS.values(), ids=list(PROGRAMS))
@pytest.mark.parametrize("order", (1, -1))
def test_none_is_run_without_a_gradient(fn: Callable[..., Pair], order: int) -> None:
    compiled = aot.aot_function(fn, aot.run_as_is)
    answered = 0
    for before, asked in itertools.product([*BEFORE][::order], ("both", "first", "second")):
        expected = outcome(fn, before, asked)
        try:
            given = outcome(compiled, before, asked)
        except Unsupported as error:
            assert error.id == "AO0158" and "backward" not in {e.name for e in traced(error)}
            assert before in ("a user's", "behind torch's")
            continue
        torch.testing.assert_close(given, expected)
        answered += 1
    assert answered >= (12 if fn is PROGRAMS["both of both"] else 6)
