"""Loads whose value a choice leaves unread, in loops that the compiler vectorizes itself.

GCC moves such a load under the choice and reads by a mask; where several vectors are read at once
(a reduction over a few small axes, written out), all of them by the mask of the first.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Const, Instr, Load, Loop, Point, Reduce, Store

from tests.codegen import loops
from tests.codegen.cpp.run import run_loops

SIZES = [*itertools.product((2, 4, 5), (1, 2, 3), (1, 2, 4))]


def slope_gradient(name: str, sizes: tuple[int, ...], dtype: torch.dtype) -> Loop:
    """The sum of `x * t` where `x` after a slope by channel is not positive: what two activations
    with learned slopes need of the second's derivative."""
    _, second, third = sizes
    channel, place = loops.r(1), loops.r(0) * (second * third) + loops.r(1) * third + loops.r(2)
    body: list[Instr] = [
        Load("x", place, dtype),
        Const(0.0, dtype),
        Point("gt", (0, 1), torch.bool),
        Load("slope", channel, dtype),
        Point("mul", (3, 0), dtype),
        Point("where", (2, 0, 4), dtype),
        Point("gt", (5, 1), torch.bool),
        Load("t", place, dtype),
        Point("mul", (5, 7), dtype),
        Point("where", (6, 1, 8), dtype),
        Reduce("sum", 9, dtype),
        Store(name, loops.x() * 0, 10),
    ]
    return loops.loop(name, (), sizes, body)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_each_load_has_a_mask_of_its_own(dtype: torch.dtype, tmp_path: Path) -> None:
    made = [slope_gradient(f"out{n}", sizes, dtype) for n, sizes in enumerate(SIZES)]
    generator = torch.Generator().manual_seed(5)
    buffers = {
        name: torch.randn(count, generator=generator, dtype=dtype)
        for name, count in (("x", 60), ("t", 60), ("slope", 3))
    }
    ours = buffers | {loop.name: torch.full((1,), torch.nan, dtype=dtype) for loop in made}
    expected = buffers | {loop.name: torch.full((1,), torch.nan, dtype=dtype) for loop in made}
    run_loops(made, ours, tmp_path)
    for loop, sizes in zip(made, SIZES):
        run_loop(loop, expected)
        torch.testing.assert_close(
            ours[loop.name], expected[loop.name], msg=lambda text, at=sizes: f"{at}: {text}"
        )
