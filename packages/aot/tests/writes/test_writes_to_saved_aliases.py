"""Writes to memory that autograd has saved, by another argument that covers it: they raise in the
backward pass where eager's arguments share a version counter, and nowhere else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import Tensor

Function = Callable[[Tensor, Tensor], Any]
ALIASES: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "detached": lambda x: x.detach(),
    "view": lambda x: x[...],
    "part": lambda x: x[:1],
    "detached part": lambda x: x[:1].detach(),
    "data": lambda x: x.data,
}


def product_in_place(x: Tensor, y: Tensor) -> Any:
    x[:1].mul_(y[:1])
    return x


def written_after(x: Tensor, y: Tensor) -> Any:
    z = x * y[:1]
    y.add_(1)
    return z


def first_written_after(x: Tensor, y: Tensor) -> Any:
    z = x * y[:1]
    x.add_(1)
    return z


def written_before(x: Tensor, y: Tensor) -> Any:
    y.add_(1)
    return x * y[:1]


def first_written_before(x: Tensor, y: Tensor) -> Any:
    x.mul_(2)
    return x * y[:1], y.sin()


FUNCTIONS = (
    product_in_place, written_after, first_written_after, written_before, first_written_before,
)  # fmt: skip


def outcome(fn: Function, one: str, other: str) -> Any:
    """Gradients and memory, or what is raised; None: a refusal."""
    leaf = torch.arange(6.0).reshape(2, 3).requires_grad_()
    base = leaf * 1
    try:
        found = fn(ALIASES[one](base), ALIASES[other](base))
        ends = [x for x in (found if isinstance(found, tuple) else (found,)) if x.requires_grad]
        sum(x.sum() for x in ends).backward() if ends else None  # type: ignore[union-attr]
    except aot.AotError:
        return None
    except RuntimeError as error:
        return str(error).partition(":")[0].partition(".")[0]
    return leaf.grad if leaf.grad is None else leaf.grad.tolist(), base.tolist()


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_a_write_is_noticed_where_eager_notices_it(fn: Function) -> None:
    compared = 0
    for one, other in itertools.product(ALIASES, ALIASES):
        found = outcome(aot.aot_function(fn, aot.run_as_is), one, other)
        if found is not None:  # else it is refused by name, and run as it is
            compared += 1
            assert found == outcome(fn, one, other), f"{one} beside {other}"
    assert compared > 8
