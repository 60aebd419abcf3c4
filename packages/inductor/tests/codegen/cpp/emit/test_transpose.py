"""Squares of numbers that are turned in registers: every width, whole and partial squares."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.analysis import streaming
from flambeau_inductor.codegen.cpp.analysis.plan import plan
from flambeau_inductor.codegen.cpp.unit import emit_kernel
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Store
from flambeau_inductor.tuning import host_tuning

from tests.codegen import loops
from tests.codegen.cpp import run
from tests.poison import poisoned

F32 = torch.float32
SMALL = replace(host_tuning(), fetched_bytes=1)
SHAPES = [(64, 128), (16, 16), (131, 83), (300, 17), (70, 5), (20, 64)]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [16, 32, 64])
def test_turned(shape: tuple[int, int], width: int, tmp_path: Path) -> None:
    rows, columns = shape
    loop = loops.transpose_add(rows, columns)
    given = {name: torch.randn(rows * columns) for name in ("in0", "in1")}
    want = given | {"out": poisoned(rows * columns)}
    got = given | {"out": poisoned(rows * columns)}
    run_loop(loop, want)
    run.run_loop(loop, got, tmp_path, width)
    assert torch.equal(got["out"], want["out"])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("shape", [*SHAPES, (64, 256), (65, 129), (200, 520)])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_tiles_of_large_arrays(
    shape: tuple[int, int], width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "host_tuning", lambda: SMALL)
    rows, columns = shape
    x0, x1 = Var("x0"), Var("x1")
    body: list[Instr] = [
        Load("in0", x1 * rows + x0, F32),
        Load("in1", x0 * columns + x1, F32),
        Load("row", x0, F32),
        Load("column", x1, F32),
        Point("sub", (0, 1), F32),
        Point("mul", (2, 3), F32),
        Point("add", (4, 5), F32),
        Store("out", x0 * columns + x1, 6),
    ]
    loop = loops.loop("tiles", shape, (), body)
    text = emit_kernel(plan(loop, width), lambda name: F32).body
    assert "x1_b" in text and "__builtin_prefetch" in text
    given = {name: torch.randn(rows * columns) for name in ("in0", "in1")}
    given |= {"row": torch.randn(rows), "column": torch.randn(columns)}
    want = given | {"out": poisoned(rows * columns)}
    got = given | {"out": poisoned(rows * columns)}
    run_loop(loop, want)
    run.run_loop(loop, got, tmp_path, width)
    assert torch.equal(got["out"], want["out"])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES[1:4])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_half_precision_is_turned(
    dtype: torch.dtype, shape: tuple[int, int], width: int, tmp_path: Path
) -> None:
    rows, columns = shape
    x0, x1 = Var("x0"), Var("x1")
    body: list[Instr] = [
        Load("in0", x1 * rows + x0, dtype),
        Load("in1", x0 * columns + x1, dtype),
        Point("maximum", (0, 1), dtype),
        Store("out", x0 * columns + x1, 2),
    ]
    loop = loops.loop("turned", shape, (), body)
    assert "transpose" in emit_kernel(plan(loop, width), lambda name: dtype).body
    given = {name: torch.randn(rows * columns).to(dtype) for name in ("in0", "in1")}
    got = given | {"out": poisoned(rows * columns, dtype=dtype)}
    run.run_loop(loop, got, tmp_path, width)
    turned = given["in0"].view(columns, rows).t()
    want = torch.maximum(turned, given["in1"].view(rows, columns))
    assert torch.equal(got["out"].view(rows, columns), want)


def test_what_is_turned() -> None:
    text = emit_kernel(plan(loops.transpose_add(64, 128), 64), lambda name: F32).body
    assert "transpose16(" in text
    alone = loops.loop(
        "column", (64,), (), [Load("in0", Var("x0") * 3, F32), Store("out", Var("x0"), 0)]
    )
    assert "turn" not in emit_kernel(plan(alone, 64), lambda name: F32).body


def images(channels: int, high: int, wide: int) -> Loop:
    """Row-major images as channels-last ones, twice; one of them written in place."""
    n, y, x, c = (Var(f"x{k}") for k in range(4))
    rows = n * (channels * high * wide) + c * (high * wide) + y * wide + x
    last = n * (channels * high * wide) + (y * wide + x) * channels + c
    body: list[Instr] = [
        Load("in0", rows, F32),
        Load("in1", last, F32),
        Load("in2", rows, F32),
        Point("add", (0, 1), F32),
        Store("out", last, 3),
        Point("mul", (2, 2), F32),
        Store("in2", rows, 5),
    ]
    return loops.loop("images", (3, high, wide, channels), (), body)


@pytest.mark.parametrize("sizes", [(32, 16, 16), (19, 7, 23), (48, 3, 70), (130, 2, 66)])
@pytest.mark.parametrize("large", [False, True])
def test_images(
    sizes: tuple[int, int, int], large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(streaming, "host_tuning", lambda: SMALL)
    channels, high, wide = sizes
    count = 3 * channels * high * wide
    loop = images(channels, high, wide)
    text = emit_kernel(plan(loop, run.vector_bytes()), lambda name: F32).body
    assert ("x3_b" in text) == large
    given = {name: torch.randn(count) for name in ("in0", "in1", "in2")}
    want, got = ({k: t.clone() for k, t in given.items()} for _ in range(2))
    want["out"], got["out"] = poisoned(count), poisoned(count)
    run_loop(loop, want)
    run.run_loop(loop, got, tmp_path)
    for name in ("out", "in2"):
        assert torch.equal(got[name], want[name])
