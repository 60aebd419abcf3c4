"""Stores past the caches, and rows that are fetched ahead: what is chosen, and that it is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.analysis import streaming
from flambeau_inductor.codegen.cpp.analysis.plan import plan
from flambeau_inductor.codegen.cpp.analysis.streaming import (
    fetched_ahead,
    fetched_down,
    fetched_squares,
    streamed,
)
from flambeau_inductor.codegen.cpp.unit import emit_kernel
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Reduce, Store
from flambeau_inductor.tuning import HostTuning
from flambeau_inductor.tuning.machine import FOLDER, read

from tests.codegen import loops
from tests.codegen.cpp import run
from tests.poison import poisoned

HALF = torch.bfloat16
HOST = read(FOLDER / "epyc.json", HostTuning)
STREAMED = HOST.streamed_bytes


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is chosen is that of the processor that was measured, wherever this runs."""
    monkeypatch.setattr(streaming, "host_tuning", lambda: HOST)


def doubled(size: int, start: int = 0, dtype: torch.dtype = torch.float32) -> Loop:
    """`out[start:] = in0 + in0`."""
    body: list[Instr] = [
        Load("in0", Var("x0"), dtype),
        Point("add", (0, 0), dtype),
        Store("out", Var("x0") + start, 1),
    ]
    return loops.loop("doubled", (size,), (), body)


def stored_past(loop: Loop, dtype: torch.dtype = torch.float32, width: int = 64) -> bool:
    return bool(streamed(plan(loop, width), lambda name: dtype))


def test_what_is_streamed() -> None:
    large = STREAMED // 4
    assert stored_past(doubled(large))
    assert not stored_past(doubled(large - 16))
    assert stored_past(doubled(2 * large, dtype=HALF), HALF)
    assert stored_past(loops.transpose_add(4096, 2048))
    # pieces of a line, each in another row: whoever collects them has no room for so many
    assert not stored_past(loops.transpose_add(4096, 2048), width=32)
    again: list[Instr] = [
        Load("out", Var("x0"), torch.float32),
        Point("add", (0, 0), torch.float32),
        Store("out", Var("x0"), 1),
    ]
    assert not stored_past(loops.loop("in place", (large,), (), again))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_streamed(dtype: torch.dtype, start: int, width: int, tmp_path: Path) -> None:
    size = STREAMED // dtype.itemsize + 3
    buffers = {
        "in0": torch.arange(size).remainder(251).to(dtype),
        "out": poisoned(size + start, dtype=dtype),
    }
    loop = doubled(size, start, dtype)
    assert "stream(" in emit_kernel(plan(loop, width), lambda name: dtype).body
    run.run_loop(loop, buffers, tmp_path, width)
    assert torch.equal(buffers["out"][start:], buffers["in0"] + buffers["in0"])
    assert buffers["out"][:start].isnan().all()


def test_every_thread_that_streams_has_a_fence() -> None:
    text = emit_kernel(plan(loops.softmax(2, 1 << 23), 64), lambda name: torch.float32).body
    shared = text.split("#pragma omp parallel for")[1:]
    assert len(shared) == 3 and "stream(" in shared[2]
    assert all("fence();" in part for part in shared)
    text = emit_kernel(plan(doubled(STREAMED), 64), lambda name: torch.float32).body
    assert "nowait" in text and text.index("stream(") < text.index("fence();")


def test_what_is_fetched() -> None:
    ahead = fetched_ahead(plan(loops.softmax(4096, 500), 64), lambda name: torch.float32)
    assert ahead is not None and ahead.level == 1 and ahead.near and len(ahead.loads) == 1
    far = fetched_ahead(plan(loops.softmax(400, 8192), 64), lambda name: torch.float32)
    assert far is not None and not far.near
    few = fetched_ahead(plan(loops.softmax(300, 500), 64), lambda name: torch.float32)
    long = fetched_ahead(plan(loops.softmax(64, 1 << 16), 64), lambda name: torch.float32)
    assert few is None and long is None


def test_a_pass_that_reads_other_rows_fetches_none() -> None:
    at = Var("x0") * 2048 + Var("r0")
    body: list[Instr] = [
        Load("in0", at, torch.float32),
        Reduce("sum", 0, torch.float32),
        Point("div", (0, 1), torch.float32),
        Load("in1", at, torch.float32),
        Point("mul", (2, 3), torch.float32),
        Store("out", at, 4),
    ]
    loop = loops.loop("scaled", (4096,), (2048,), body)
    assert fetched_ahead(plan(loop, 64), lambda name: torch.float32) is None


def test_fetching_changes_nothing(tmp_path: Path) -> None:
    rows, columns = 2100, 509
    loop = loops.softmax(rows, columns)
    assert "__builtin_prefetch" in emit_kernel(plan(loop, 64), lambda name: torch.float32).body
    x = torch.randn(rows * columns)
    buffers = {"in0": x, "out": poisoned(rows * columns)}
    run.run_loop(loop, buffers, tmp_path)
    want = torch.softmax(x.view(rows, columns).double(), -1).view(-1)
    assert (buffers["out"].double() - want).abs().max() < 1e-7


def test_columns_fetch_their_rows(tmp_path: Path) -> None:
    rows, columns = 1030, 1027
    loop = loops.column_sum(rows, columns)
    down = fetched_down(plan(loop, 64), lambda name: torch.float32)
    assert down is not None and down.axis == loop.r[-1].var
    assert fetched_down(plan(loops.column_sum(100, 600), 64), lambda name: torch.float32) is None
    assert fetched_down(plan(loops.softmax(4096, 500), 64), lambda name: torch.float32) is None
    x = torch.randn(rows, columns)
    buffers = {"in0": x.flatten(), "out": poisoned(columns)}
    run.run_loop(loop, buffers, tmp_path)
    assert (buffers["out"] - x.double().sum(0)).abs().max() < 1e-4


def test_transposes_fetch_squares(tmp_path: Path) -> None:
    rows, columns = 1030, 1027
    loop = loops.transpose_add(rows, columns)
    planned = plan(loop, 64)
    assert len(fetched_squares(planned, lambda name: torch.float32, "x0")) == 2
    few = plan(loops.transpose_add(300, 200), 64)
    assert not fetched_squares(few, lambda name: torch.float32, "x0")
    given = {name: torch.randn(rows * columns) for name in ("in0", "in1")}
    got = given | {"out": poisoned(rows * columns)}
    run.run_loop(loop, got, tmp_path)
    want = given["in0"].view(columns, rows).t() + given["in1"].view(rows, columns)
    assert torch.equal(got["out"], want.flatten())


@pytest.mark.parametrize("sizes", [(5, 70, 40), (4, 1100, 16), (9, 33, 21)])
def test_rows_that_are_read_again_are_taken_a_few_at_a_time(
    sizes: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(HOST, fetched_bytes=1, repeated_bytes=1)
    monkeypatch.setattr(streaming, "host_tuning", lambda: small)
    heads, rows, columns = sizes
    x0, x1, x2 = (Var(f"x{k}") for k in range(3))
    place, row = x0 * (rows * columns) + x1 * columns + x2, x1 * columns + x2
    body: list[Instr] = [
        Load("in0", place, torch.float32),
        Load("angles", row, torch.float32),
        Load("scale", x1, torch.float32),
        Load("head", x0, torch.float32),
        Point("mul", (0, 1), torch.float32),
        Point("mul", (4, 2), torch.float32),
        Point("add", (5, 3), torch.float32),
        Store("out", place, 6),
    ]
    loop = loops.loop("rope", sizes, (), body)
    assert streaming.repeated_rows(plan(loop, 64), lambda name: torch.float32) > 0
    given = {"in0": torch.randn(heads * rows * columns), "angles": torch.randn(rows * columns)}
    given |= {"scale": torch.randn(rows), "head": torch.randn(heads)}
    buffers = given | {"out": poisoned(heads * rows * columns)}
    run.run_loop(loop, buffers, tmp_path)
    x, angles = given["in0"].view(sizes), given["angles"].view(rows, columns)
    want = x * angles * given["scale"].view(rows, 1) + given["head"].view(heads, 1, 1)
    torch.testing.assert_close(buffers["out"].view(sizes), want, rtol=0, atol=0)
