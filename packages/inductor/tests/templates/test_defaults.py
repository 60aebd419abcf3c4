"""What templates replace without measurement."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flambeau_inductor.ir.program import Extern, Program, RunLoop
from flambeau_inductor.templates.defaults import select_by_model

from tests.templates.test_select import program_of, sound

LONG = (4, 8, 1024, 64)


def calls(program: Program) -> list[str]:
    return [s.target for s in program.steps if isinstance(s, Extern)]


def forth_and_back(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, grad: torch.Tensor) -> Any:
    prims = torch.ops.flambeau_prims
    out, sums = prims.attention.default(q, k, v, None, 0.0, True)
    return prims.attention_backward.default(grad, q, k, v, out, sums, None, 0.0, True)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v)[0]


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    call = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    return call(q, k, v, None, False)[0]


def test_both_ways_of_a_large_attention_are_kernels_of_the_template() -> None:
    program = program_of(forth_and_back, *[LONG] * 4)
    assert len(calls(program)) == 2
    made = select_by_model(program)
    assert not calls(made.program) and len(made.kernels) == 4 and len(made.chosen) == 2
    sound(made.program)
    loops = {s.loop.name for s in made.program.steps if isinstance(s, RunLoop)}
    assert made.kernels.keys() <= loops


@pytest.mark.parametrize(
    "shape",
    [(4, 8, 128, 64), (1, 1, 512, 64), (4, 8, 1024, 16), (4, 8, 1024, 256)],
    ids=["short", "little", "narrow", "wide"],
)
def test_small_or_wide_ones_stay_with_the_library(shape: tuple[int, ...]) -> None:
    program = program_of(flash, *[shape] * 3)
    made = select_by_model(program)
    assert made.program == program and not made.kernels and len(calls(program)) == 1


def test_cudnn_s_stays_and_flash_does_not() -> None:
    program = program_of(cudnn, *[LONG] * 3)
    assert select_by_model(program).program == program
    assert not calls(select_by_model(program_of(flash, *[LONG] * 3)).program)
