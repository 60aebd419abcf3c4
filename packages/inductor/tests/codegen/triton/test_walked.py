"""Rows that a program takes in turn, with sums down their columns, under Triton's interpreter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import flambeau_prims
import pytest
import torch
from flambeau_inductor import passes
from flambeau_inductor.codegen.triton import Tiling, choose
from flambeau_inductor.codegen.triton.tiling import static_size
from flambeau_inductor.ir.program import Ref, RunLoop
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import Limits, schedule
from torch import fx

from tests.schedule.pairs import CASES, JOINED

from .. import loops
from .run import poisoned, run_loop


@pytest.mark.parametrize(
    ("columns", "together", "warps"),
    [(64, 128, 16), (256, 32, 16), (500, 1, 1), (1024, 1, 2), (4096, 1, 4), (8192, 1, 16)],
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


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [48, 88])
def test_results_are_those_of_eager(name: str, rows: int, tmp_path: Path) -> None:
    columns = 20
    if name == "batched" and rows != 48:
        rows, columns = 48, 64
    tilings = _run(name, rows, columns, JOINED, tmp_path)
    assert any(tiling.parts is not None for tiling in tilings)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("columns", [1100, 2048])
def test_long_rows_are_shared_out(name: str, columns: int, tmp_path: Path) -> None:
    tilings = _run(name, 48, columns, replace(JOINED, most_across=1024), tmp_path)
    (walked,) = [tiling for tiling in tilings if tiling.parts is not None]
    assert [d.block for d in walked.dimensions] == [4, 1024]
    assert walked.programs == 2 * static_size(walked.parts)


def _run(name: str, rows: int, columns: int, limits: Limits, folder: Path) -> list[Tiling]:
    """Run a case under the interpreter, hold it to eager, and say how its loops were cut."""
    grad, x, w = torch.randn(rows, columns), torch.randn(rows, columns), torch.randn(columns)
    gm = flambeau_prims.lower(fx.symbolic_trace(CASES[name]), [grad, x, w])
    program = schedule(lower_graph(passes.run(gm), [grad, x, w]), limits)
    loops = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    buffers = {f"in{k}": t for k, t in enumerate((grad, x, w))}
    for each in program.buffers:
        if each.name not in buffers:
            shape, _, _ = each.layout.static()
            buffers[each.name] = poisoned(*shape, dtype=each.layout.dtype)
    tilings = [choose(loop) for loop in loops]
    for loop, tiling in zip(loops, tilings, strict=True):
        run_loop(loop, buffers, folder, tiling)
    for want, made in zip(CASES[name](grad, x, w), program.outputs, strict=True):
        assert isinstance(made, Ref)
        got = buffers[made.buffer].reshape(want.shape)
        close = 1e-4 + 1e-5 * float(want.abs().max())
        torch.testing.assert_close(got, want, rtol=1e-4, atol=close)
    return tilings
