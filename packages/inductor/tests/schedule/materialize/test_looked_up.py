"""Memory for values that many loops read through a position that is looked up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.loops import Load
from flambeau_inductor.ir.steps import loops_of
from flambeau_inductor.scheduling_limits import Limits
from torch import Tensor

from tests.evaluated import scheduled

MANY = Limits().looked_up_readers
LENGTH, WIDTH = 8, 24


def row(table: Tensor, at: Tensor) -> Tensor:
    return table.index_select(0, at)


def row_cast(table: Tensor, at: Tensor) -> Tensor:
    """The row is stored before it is widened."""
    return table.index_select(0, at).to(torch.float64)


def chosen(table: Tensor, at: Tensor) -> Tensor:
    """A mask of the row."""
    return torch.where(table.index_select(0, at) > 0, 0.5, -1.0)


def along(table: Tensor, at: Tensor) -> Tensor:
    return table.gather(0, at.expand(1, WIDTH))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("readers", [2, MANY - 1, MANY, 2 * MANY])
@pytest.mark.parametrize("value", [row, row_cast, chosen, along])
def test_a_row_with_many_readers_is_looked_up_once(
    value: Callable[[Tensor, Tensor], Tensor], readers: int, device: str
) -> None:
    once = device == "cuda" and readers >= MANY
    assert (_looking(value, readers, device) == 1) == once


@pytest.mark.parametrize("room", [4 * WIDTH - 1, 4 * WIDTH])
def test_what_is_large_is_looked_up_by_each(room: int) -> None:
    looking = _looking(row, MANY, "cuda", limits=Limits(row_bytes=room))
    assert looking == (1 if room >= 4 * WIDTH else MANY)


def _looking(
    value: Callable[[Tensor, Tensor], Tensor], readers: int, device: str, **options: Any
) -> int:
    """How many loops of a program that is right look the row up."""

    def fn(table: Tensor, at: Tensor, x: Tensor, w: Tensor) -> Tensor:
        found = value(table, at)
        for _ in range(readers):  # between the library's products
            x = (x * found).to(w.dtype) @ w
        return x

    torch.manual_seed(0)
    sizes = (LENGTH, WIDTH), (5, WIDTH), (WIDTH, WIDTH)
    table, x, w = (torch.randn(size) for size in sizes)
    given = [table, torch.tensor([3]), x, w / 5]
    program = scheduled(fn, given, device, **options)
    (made,) = run_program(program, given)
    assert isinstance(made, Tensor)
    torch.testing.assert_close(made, fn(*given))
    position = program.inputs[1].name
    loads = ((i for i in loop.body if isinstance(i, Load)) for loop in loops_of(program))
    return sum(any(load.buffer == position for load in found) for found in loads)
