"""Rows that a program takes in turn, with sums down their columns, under Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import flambeau_prims
import pytest
import torch
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.tiling import Tiling, choose
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Store
from flambeau_inductor.ir.program import Ref, RunLoop
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.passes.primitive_passes import rewrite
from flambeau_inductor.schedule import Limits, schedule
from torch import fx

from tests.codegen import loops
from tests.codegen.triton.run import run_loop
from tests.poison import poisoned
from tests.schedule.pairs import CASES, JOINED


@pytest.mark.parametrize(
    ("columns", "together", "warps"),
    [
        (64, 128, 16),
        (256, 32, 16),
        (500, 1, 1),
        (1024, 1, 1),
        (2048, 1, 2),
        (4096, 1, 4),
        (8192, 1, 16),
    ],
)
def test_short_rows_are_taken_together(columns: int, together: int, warps: int) -> None:
    tiling = choose(loops.norm_backward(132, 4096, columns, torch.bfloat16))
    assert tiling.dimensions[0].block == together and tiling.warps == warps
    assert tiling.programs == 132 and tiling.stages > 1


@pytest.mark.parametrize(
    ("columns", "dtype", "together", "stages"),
    [(64, torch.float32, 64, 3), (4096, torch.float32, 1, 3), (8192, torch.float32, 1, 2),
     (8192, torch.bfloat16, 1, 3), (8192, torch.float64, 1, 1)],
)  # fmt: skip
def test_blocks_on_their_way_find_room(
    columns: int, dtype: torch.dtype, together: int, stages: int
) -> None:
    tiling = choose(loops.norm_backward(132, 4096, columns, dtype))
    assert (tiling.dimensions[0].block, tiling.stages) == (together, stages)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("rows", "columns"), [(48, 20), (88, 20), (48, 64), (53, 20), (53, 600)])
def test_results_are_those_of_eager(name: str, rows: int, columns: int, tmp_path: Path) -> None:
    rows = 48 if name == "batched" else rows
    (walked,) = [t for t in _run(name, rows, columns, JOINED, tmp_path) if t.parts is not None]
    assert walked.parts is not None
    shared_out = walked.parts.size * walked.dimensions[0].size
    assert walked.dimensions[0].ragged == (shared_out > rows) and (rows != 53 or shared_out > rows)


@pytest.mark.parametrize(
    ("columns", "dtype", "programs", "warps", "registers"),
    [(4096, torch.bfloat16, 264, 4, None), (4096, torch.bfloat16, 396, 4, 168),
     (1024, torch.bfloat16, 1056, 1, None), (1024, torch.bfloat16, 1584, 1, 168),
     (4096, torch.float32, 396, 4, 168), (16384, torch.bfloat16, 132, 16, 128)],
)  # fmt: skip
def test_registers_are_those_that_programs_leave_each_other(
    columns: int, dtype: torch.dtype, programs: int, warps: int, registers: int | None
) -> None:
    tiling = choose(loops.norm_backward(programs, 100, columns, dtype))
    assert (tiling.programs, tiling.warps, tiling.registers) == (programs, warps, registers)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("columns", [1100, 2048])
def test_long_rows_are_shared_out(name: str, columns: int, tmp_path: Path) -> None:
    limits = replace(JOINED, most_across=512, most_held=1024)
    tilings = _run(name, 48, columns, limits, tmp_path)
    (walked,) = [tiling for tiling in tilings if tiling.parts is not None]
    assert [d.block for d in walked.dimensions] == [4, 1024]
    assert walked.programs == 2 * walked.parts.size


def _run(name: str, rows: int, columns: int, limits: Limits, folder: Path) -> list[Tiling]:
    """Run a case under the interpreter, hold it to eager, and say how its loops were cut."""
    given = (torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(columns))
    return _held_to(CASES[name], given, limits, folder)


def _held_to(
    fn: Callable[..., Any], given: tuple[torch.Tensor, ...], limits: Limits, folder: Path
) -> list[Tiling]:
    gm = flambeau_prims.lower(fx.symbolic_trace(fn), list(given))
    program = schedule(lower_graph(rewrite(gm), list(given)), limits)
    loops = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    buffers = {f"in{k}": t for k, t in enumerate(given)}
    for each in program.buffers:
        if each.name not in buffers:
            shape, _, _ = each.layout.static()
            buffers[each.name] = poisoned(*shape, dtype=each.layout.dtype)
    tilings = [choose(loop) for loop in loops]
    for loop, tiling in zip(loops, tilings, strict=True):
        run_loop(loop, buffers, folder, tiling)
    for want, made in zip(fn(*given), program.outputs, strict=True):
        assert isinstance(made, Ref)
        got = buffers[made.buffer].reshape(want.shape)
        close = 1e-4 + 1e-5 * float(want.abs().max())
        torch.testing.assert_close(got, want, rtol=1e-4, atol=close)
    return tilings


def test_columns_in_turn_give_what_eager_gives(tmp_path: Path) -> None:
    def halved(grad: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        made = torch.where(x > 0, grad, 0.5 * grad).bfloat16()
        return made, made.float().sum(0) - w

    given = (torch.randn(23, 1900).bfloat16(), torch.randn(23, 1900).bfloat16(), torch.randn(1900))
    (walked,) = [t for t in _held_to(halved, given, JOINED, tmp_path) if t.parts is not None]
    assert [d.block for d in walked.dimensions] == [4, 1024] and walked.dimensions[0].ragged


def masked(rows: int, columns: int, dtype: torch.dtype) -> Loop:
    """A norm's backward behind a dropout: what is dropped is known by a byte an element."""
    plain = loops.norm_backward(2, rows, columns, dtype)
    at = loops.x() * (rows * columns) + loops.x(1) * columns + loops.r()
    body: list[Instr] = list(plain.body)
    kept = len(body)
    body += [
        Load("mask", at, torch.bool),
        Point("cast", (kept,), torch.float32),
        Load("bias", loops.r(), dtype),
        Point("cast", (kept + 2,), torch.float32),
        Point("mul", (12, kept + 1), torch.float32),
        Point("add", (kept + 4, kept + 3), torch.float32),
        Point("cast", (kept + 5,), dtype),
        Store("dropped", at, kept + 6),
    ]
    return loops.loop("masked", (2, rows), (columns,), body)


@pytest.mark.parametrize(("dtype", "neighbours"), [(torch.float32, 4), (torch.bfloat16, 8)])
def test_rows_that_hold_much_have_more_warps(dtype: torch.dtype, neighbours: int) -> None:
    loop = masked(3, 4096, dtype)
    less, more = choose(loops.norm_backward(2, 3, 4096, dtype)), choose(loop)
    assert (less.warps, less.stages, more.warps, more.stages) == (4, 3, 8, 4)
    names = {i.buffer for i in loop.body if isinstance(i, Load | Store)}
    dtypes = dict.fromkeys(names, dtype) | {"mask": torch.bool, "scale": torch.float32}
    text = generate(loop, dtypes, dict.fromkeys(names, 1 << 20)).source
    (line,) = [line for line in text.splitlines() if "to(tl.int1)" in line]
    assert "tl.max_contiguous(" in line and f"[1, {neighbours}])" in line
    assert text.count("max_contiguous") == 1


def test_a_mask_of_bytes_is_read_beside_wider_elements(tmp_path: Path) -> None:
    rows, columns = 3, 40
    plain, whole = loops.norm_backward(2, rows, columns), masked(rows, columns, torch.float32)
    shape = (2 * rows, columns)
    buffers = {name: torch.randn(shape).reshape(-1) for name in ("grad", "unit")}
    buffers |= {"weight": torch.randn(columns), "scale": torch.rand(2 * rows)}
    buffers |= {"mask": torch.rand(shape).reshape(-1) > 0.3, "bias": torch.randn(columns)}
    for name in ("out", "dropped"):
        buffers[name] = poisoned(2 * rows * columns)
    for name in ("weights", "biases"):
        buffers[name] = poisoned(2 * columns)
    wanted = dict(buffers) | {name: poisoned(2 * columns) for name in ("weights", "biases")}
    wanted["out"] = poisoned(2 * rows * columns)
    run_loop(whole, buffers, tmp_path)
    run_loop(
        plain, {k: wanted[k] for k in wanted if k not in ("mask", "bias", "dropped")}, tmp_path
    )
    for name in ("out", "weights", "biases"):
        torch.testing.assert_close(buffers[name], wanted[name])
    dropped = wanted["out"].reshape(shape) * buffers["mask"].reshape(shape) + buffers["bias"]
    torch.testing.assert_close(buffers["dropped"].reshape(shape), dropped)
