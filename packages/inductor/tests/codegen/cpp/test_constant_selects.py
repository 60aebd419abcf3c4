"""A mask as a number, with a constant: one of two constants."""

from __future__ import annotations

import math

import pytest
import torch
from flambeau_inductor.codegen.cpp.loop_rewrites import choose_constants
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Const, Load, Loop, Point, Store

from tests.codegen import loops


def masked(op: str, number: float, first: bool, dtype: torch.dtype = torch.float32) -> Loop:
    args = (1, 2) if first else (2, 1)
    return loops.loop(
        "masked",
        (6,),
        (),
        [
            Load("mask", loops.x(), torch.bool),
            Point("cast", (0,), dtype),
            Const(number, dtype),
            Point(op, args, dtype),
            Store("out", loops.x(), 3),
        ],
    )


def result(loop: Loop, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    mask = torch.tensor([True, False, False, True, True, False])
    memory = {"mask": mask, "out": torch.zeros(6, dtype=dtype)}
    run_loop(loop, memory)
    return memory["out"]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("number", [0.9, -3.0, 1e-30, 1 / 3, 3e38])
@pytest.mark.parametrize("first", [True, False])
def test_the_same_numbers(op: str, number: float, first: bool) -> None:
    loop = masked(op, number, first)
    changed = choose_constants(loop)
    if op != "div" or first:
        assert any(isinstance(i, Point) and i.op == "where" for i in changed.body)
        assert not any(isinstance(i, Point) and i.op == op for i in changed.body)
    before, after = result(loop), result(changed)
    assert torch.equal(before.view(torch.int32), after.view(torch.int32))


@pytest.mark.parametrize("number", [0.0, math.inf, math.nan, 1e-39])
def test_what_is_no_number_stays(number: float) -> None:
    loop = masked("div", number, True)
    torch.testing.assert_close(
        result(choose_constants(loop)), result(loop), rtol=0, atol=0, equal_nan=True
    )


def test_wider_numbers_stay() -> None:
    loop = masked("div", 0.9, True, torch.float64)
    assert choose_constants(loop) is loop
