"""Numbers of every kernel class, by both code generators, against eager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton import kernel
from flambeau_inductor.codegen.triton.tiling import choose
from flambeau_inductor.ir.loops import Loop
from flambeau_inductor.tuning import MEASURED

from tests.codegen import loops
from tests.codegen.cpp.run import run_loop as compiled
from tests.codegen.triton.run import run_loop as interpreted
from tests.poison import poisoned

Run = Callable[[Loop, dict[str, torch.Tensor]], None]


@pytest.fixture(params=["cpp", "triton"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a loop on buffers given by name, in place: compiled C++, or Triton's interpreter."""
    chosen = {"cpp": compiled, "triton": interpreted}[request.param]
    return lambda loop, buffers: chosen(loop, buffers, tmp_path)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("shape", [(4, 64), (3, 100), (1, 1), (70, 7), (2, 40001)])
def test_softmax(shape: tuple[int, int], run: Run) -> None:
    a, out = torch.randn(shape), poisoned(*shape)
    run(loops.softmax(*shape), {"in0": a, "out": out})
    torch.testing.assert_close(out, a.softmax(-1))


def test_softmax_in_half_precision_rounds_once(run: Run) -> None:
    a = torch.randn(5, 33, dtype=torch.bfloat16)
    out = poisoned(5, 33, dtype=torch.bfloat16)
    run(loops.softmax(5, 33, torch.bfloat16), {"in0": a, "out": out})
    torch.testing.assert_close(out, a.softmax(-1))


@pytest.mark.parametrize("columns", [48, 130, 17000, 33000])
def test_layernorm(columns: int, run: Run) -> None:
    a, weight = torch.randn(3, columns) + 5, torch.randn(columns)
    out, mean = poisoned(3, columns), poisoned(3)
    buffers = {"in0": a, "weight": weight, "out": out, "mean": mean}
    run(loops.layernorm(3, columns), buffers)
    expected = torch.nn.functional.layer_norm(a, (columns,), weight)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mean, a.mean(-1))


REDUCTIONS = {
    "sum": lambda a: a.sum(-1),
    "prod": lambda a: a.prod(-1),
    "max": lambda a: a.amax(-1),
    "min": lambda a: a.amin(-1),
    "argmax": lambda a: a.argmax(-1),
    "argmin": lambda a: a.argmin(-1),
}


def reduces_rows(kind: str, columns: int, run: Run) -> None:
    a = torch.rand(3, columns) * 0.01 + 0.995
    a[1, columns // 2] = a[1].max()  # a tie: the first position wins
    if kind != "sum" and kind != "prod":
        a[2, 1] = float("nan")
    expected = REDUCTIONS[kind](a)
    out = poisoned(3, dtype=expected.dtype)
    loop = loops.reduction(kind, 3, columns, torch.float32, expected.dtype)
    run(loop, {"in0": a, "out": out})
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("columns", [5, 32, 101])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_row_reductions(kind: str, columns: int, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest row is read in steps: blocks are small, since the interpreter's elements cost."""
    few = replace(MEASURED, most_held=64, reread_block=(32, 32))
    monkeypatch.setattr(kernel, "choose", lambda loop, tuning: choose(loop, few))
    loop = loops.reduction(kind, 3, columns, torch.float32, torch.float32)
    assert choose(loop, few).looped == (columns == 101)
    reduces_rows(kind, columns, run)


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_long_rows_in_cpp(kind: str, tmp_path: Path) -> None:
    reduces_rows(kind, 33001, lambda loop, buffers: compiled(loop, buffers, tmp_path))


@pytest.mark.parametrize("kind", ["any", "all"])
def test_boolean_reductions(kind: str, run: Run) -> None:
    a = torch.tensor([[True] * 5, [False] * 5, [True, False, True, True, True]])
    out = poisoned(3, dtype=torch.bool)
    loop = loops.reduction(kind, 3, 5, torch.bool, torch.bool)
    run(loop, {"in0": a, "out": out})
    assert torch.equal(out, getattr(a, kind)(-1))


@pytest.mark.parametrize("kind", ["sum", "max", "min", "argmax"])
def test_integer_reductions(kind: str, run: Run) -> None:
    a = torch.randint(-50, 50, (3, 9)) - 100
    expected = REDUCTIONS[kind](a)
    out = poisoned(3, dtype=torch.int64)
    loop = loops.reduction(kind, 3, 9, torch.int64, torch.int64)
    run(loop, {"in0": a, "out": out})
    assert torch.equal(out, expected)


@pytest.mark.parametrize("shape", [(5, 3), (37, 130), (300, 64)])
def test_column_sum(shape: tuple[int, int], run: Run) -> None:
    a, out = torch.randn(shape), poisoned(shape[1])
    run(loops.column_sum(*shape), {"in0": a, "out": out})
    torch.testing.assert_close(out, a.sum(0), rtol=1e-4, atol=1e-4)


def test_transpose(run: Run) -> None:
    loop = loops.transpose_add(33, 70)
    a, b, out = torch.randn(70, 33), torch.randn(33, 70), poisoned(33, 70)
    run(loop, {"in0": a, "in1": b, "out": out})
    assert torch.equal(out, a.T + b)


def test_indirect_load(run: Run) -> None:
    table, index = torch.randn(11, 6), torch.tensor([3, 0, 10, 3])
    out = poisoned(4, 6)
    run(loops.embedding(4, 6), {"table": table, "index": index, "out": out})
    assert torch.equal(out, table[index])


def test_masked_load(run: Run) -> None:
    a, out = torch.randn(10), poisoned(15)
    run(loops.pad(10, 2, 3), {"in0": a, "out": out})
    assert torch.equal(out, torch.nn.functional.pad(a, (2, 3), value=7.0))


@pytest.mark.parametrize("size", [1, 1000, 50000])
def test_total(size: int, run: Run) -> None:
    a, out = torch.randn(size), poisoned(1)
    run(loops.total(size), {"in0": a, "out": out})
    torch.testing.assert_close(out[0], a.sum(), rtol=1e-4, atol=1e-3)


def test_fill(run: Run) -> None:
    out = poisoned(9)
    run(loops.fill(9), {"out": out})
    assert torch.equal(out, torch.full((9,), 2.5))


def test_atomic_add(run: Run) -> None:
    index, a, out = torch.tensor([0, 2, 0, 1]), torch.randn(4), torch.zeros(3)
    run(loops.scatter_add(4), {"index": index, "in0": a, "out": out})
    torch.testing.assert_close(out, torch.zeros(3).index_add(0, index, a))
