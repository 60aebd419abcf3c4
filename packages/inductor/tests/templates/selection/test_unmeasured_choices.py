"""What templates replace without measurement."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from flambeau_inductor.ir.program import Extern, Program, RunLoop
from flambeau_inductor.templates.gemm.tiles import GemmShape, candidates
from flambeau_inductor.templates.joint_launch import join_small
from flambeau_inductor.templates.selection.select import select_by_model
from torch.nn import functional as F

from tests.templates.selection.test_select import program_of, sound
from tests.tuning.programs import forth_and_back

LONG = (4, 8, 1024, 64)


def calls(program: Program) -> list[str]:
    return [s.target for s in program.steps if isinstance(s, Extern)]


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention.default(q, k, v)[0]


def cudnn(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    call = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    return call(q, k, v, None, False)[0]


def test_both_ways_of_a_large_attention_are_kernels_of_the_template() -> None:
    program = program_of(forth_and_back, *[LONG] * 4)
    assert len(calls(program)) == 2
    made = select_by_model(program)
    assert not calls(made.program) and len(made.kernels) == 3 and len(made.chosen) == 2
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


def linear_and_gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> Any:
    return F.gelu(F.linear(x, w, b))


def test_products_stay_with_the_library_with_what_follows_and_without() -> None:
    fused = program_of(linear_and_gelu, (2048, 384), (1536, 384), (1536,))
    plain = program_of(lambda a, b: a @ b, (2048, 384), (384, 1536))
    assert select_by_model(fused).program == fused and select_by_model(plain).program == plain


@pytest.mark.parametrize(
    "fn, shapes, taken",
    [
        (F.linear, ((8192, 768), (50257, 768)), True),
        (F.linear, ((256, 2048), (1001, 2048)), True),
        (linear_and_gelu, ((4096, 3072), (767, 3072), (767,)), True),
        (torch.bmm, ((16, 1024, 512), (16, 512, 1023)), False),
        (F.linear, ((4096, 767), (3072, 767)), False),
        (F.linear, ((64, 64), (65, 64)), False),
    ],
    ids=["head", "few", "gelu", "operand's columns", "operands' rows", "small"],
)
def test_results_of_odd_rows_are_the_template_s_where_operands_begin_with_pieces(
    fn: Any, shapes: tuple[tuple[int, ...], ...], taken: bool
) -> None:
    count = {2: lambda a, b: fn(a, b), 3: lambda a, b, c: fn(a, b, c)}
    program = program_of(count[len(shapes)], *shapes)
    made = select_by_model(program)
    assert len(calls(made.program)) == (not taken) and len(made.kernels) == taken
    sound(made.program)


@pytest.mark.parametrize(
    "side, batch, taken", [(32, 4096, True), (96, 4096, False), (32, 8, False)]
)
def test_batches_of_small_products_are_the_template_s(side: int, batch: int, taken: bool) -> None:
    program = program_of(lambda a, b: a @ b, (batch, side, side), (batch, side, side))
    made = select_by_model(program)
    assert len(calls(made.program)) == (not taken) and len(made.kernels) == taken
    sound(made.program)


def experts(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> Any:
    return torch._grouped_mm(x, w.mT, offs=ends)


def gated(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> Any:
    return F.silu(experts(x, w, ends))


@pytest.mark.parametrize(
    "fn, rows, taken", [(gated, 8192, True), (experts, 8192, False), (experts, 128, True)]
)
def test_experts_with_what_follows_or_with_few_tokens(fn: Any, rows: int, taken: bool) -> None:
    program = program_of(fn, (rows, 512), (4, 1024, 512), ends=4)
    made = select_by_model(program)
    assert len(calls(made.program)) == (not taken)
    assert [bool(k.descriptors) for k in made.kernels.values()] == [rows > 128] * taken
    sound(made.program)


@pytest.mark.parametrize("channels, taken", [(96, True), (40, False)])
def test_depthwise_convolutions_with_what_follows(channels: int, taken: bool) -> None:
    def blurred(x: torch.Tensor, w: torch.Tensor) -> Any:
        image = x.permute(0, 3, 1, 2)
        return torch.relu(F.conv2d(image, w, None, 1, 1, 1, channels) * 2)

    program = program_of(blurred, (32, 56, 56, channels), (channels, 1, 3, 3))
    assert len(calls(program)) == 1
    made = select_by_model(program)
    assert len(calls(made.program)) == (not taken) and len(made.kernels) == taken
    sound(made.program)


def test_tiles_of_two_programs_are_preferred_where_a_wave_would_be_left_over() -> None:
    """99 by 6 tiles of 128, or 99 by 3, on 132 multiprocessors."""
    tile = candidates(GemmShape(12608, 768, 768, 1, 2), described=True)[0]
    assert (tile.rows, tile.columns, tile.resident) == (128, 128, 2)
    assert candidates(GemmShape(4096, 4096, 4096, 1, 2), described=True)[0].resident == 1


def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> Any:
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def projections(x: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return F.linear(x, q), F.linear(x, k), F.linear(x, v)


def alone(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.linear(x, w)


def by_columns(x: torch.Tensor, w: torch.Tensor) -> Any:
    return x @ w


@pytest.mark.parametrize(
    "fn, shapes, taken",
    [
        (alone, ((2, 2048), (2048, 2048)), True),
        (alone, ((16, 4096), (4096, 4096)), True),
        (gated, ((4, 2048), (8192, 2048), (8192, 2048)), True),
        (alone, ((17, 2048), (2048, 2048)), False),
        (alone, ((4, 2048), (128256, 2048)), False),
        (alone, ((4, 256), (256, 256)), False),
        (by_columns, ((4, 2048), (2048, 2048)), False),
    ],
)
def test_a_few_rows_by_a_matrix_of_some_megabytes_are_the_template_s(
    fn: Any, shapes: tuple[tuple[int, ...], ...], taken: bool
) -> None:
    program = program_of(fn, *shapes)
    made = select_by_model(program)
    assert (not calls(made.program)) == taken
    if taken:
        sound(made.program)
        assert all(16 == dict(k.constants)["YBLOCK"] for k in made.kernels.values())


def test_products_of_the_same_few_rows_are_one_launch() -> None:
    """They are in one kernel, and what one of them writes is not what another one reads."""
    program = program_of(projections, (4, 2048), (2048, 2048), (512, 2048), (512, 2048))
    made = select_by_model(program)
    assert join_small(made) == 2
    (loop,) = (s.loop for s in made.program.steps if isinstance(s, RunLoop))
    operands = {b.name for b in made.program.inputs}
    assert operands <= set(made.kernels[loop.name].arguments)
    chain = program_of(
        lambda x, a, b: F.linear(F.linear(x, a), b), (4, 2048), (2048, 2048), (2048, 2048)
    )
    assert join_small(select_by_model(chain)) == 0
