"""Writes through index tensors: one kernel, the bits of eager."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import flambeau_inductor
import flambeau_prims
import pytest
import torch
from flambeau_inductor import Options
from flambeau_inductor.codegen.triton.tiling import choose
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.program import Extern, RunLoop
from torch import Tensor, fx

from tests.evaluated import scheduled, steps_of

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8]
ROWS, COLUMNS, MORE = 20, 70, 150


def compiled(of: Callable[..., Any], args: list[Tensor], cache: Path) -> Any:
    low = flambeau_prims.lower(fx.symbolic_trace(of), args)
    return flambeau_inductor.compile(low, args, options=Options(cache_dir=str(cache)))


def check(of: Callable[..., Any], args: list[Tensor], cache: Path) -> None:
    done = compiled(of, args, cache)
    assert not done.report.externs
    (found,) = done(list(args))
    wanted = of(*args)
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted)


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A tensor, more rows of values, where each row goes, where each element goes."""
    x, src = ((torch.randn(n, COLUMNS) * 5).to(dtype) for n in (ROWS, MORE))
    rows = torch.randint(-ROWS, ROWS, (MORE,))
    return x, src, rows, torch.randint(0, ROWS, (MORE, COLUMNS))


REDUCTIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "sum": lambda x, i, s: x.scatter_reduce(0, i, s, "sum"),
    "prod": lambda x, i, s: x.scatter_reduce(0, i, s, "prod"),
    "amax": lambda x, i, s: x.scatter_reduce(0, i, s, "amax"),
    "amin": lambda x, i, s: x.scatter_reduce(0, i, s, "amin"),
    "twice": lambda x, i, s: x.scatter_add(0, i, s * 2),
    "turned": lambda x, i, s: x.t().scatter_add(1, i.t(), s.t()),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_elements_are_combined_in_the_order_of_eager(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    x, src, _, places = operands(dtype)
    check(REDUCTIONS[name], [x, places, src], tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_added_by_columns(dtype: torch.dtype, tmp_path: Path) -> None:
    x, src, rows, _ = operands(dtype)
    check(lambda x, i, s: aten.index_put.default(x, (i,), s, True), [x, rows, src], tmp_path)
    check(lambda x, i, s: x.index_add(0, i, s), [x, rows % ROWS, src], tmp_path)


def test_columns_and_single_elements(tmp_path: Path) -> None:
    x, src, rows, _ = operands(torch.float32)
    columns = torch.randperm(COLUMNS)[:10]
    args = [x, columns, src[:ROWS, :10]]
    check(lambda x, i, s: aten.index_put.default(x, (None, i), s, False), args, tmp_path)
    pairs = [x, rows, torch.randint(0, COLUMNS, (MORE,)), src[:, 0]]
    check(lambda x, i, j, s: aten.index_put.default(x, (i, j), s, True), pairs, tmp_path)
    check(lambda x, i, s: aten.index_put.default(x, (i,), s, True), [x, rows, src[0]], tmp_path)


def test_large_sums_have_the_same_bits_with_any_number_of_threads(tmp_path: Path) -> None:
    x, src, places = torch.zeros(500, 256), torch.randn(3000, 256), torch.randint(0, 500, (3000,))
    before = torch.get_num_threads()
    done = compiled(lambda x, i, s: x.index_add(0, i, s), [x, places, src], tmp_path)
    assert "share(" in done.report.sources["kernels.cpp"]
    wanted = x.index_add(0, places, src)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            (found,) = done([x, places, src])
            assert torch.equal(found, wanted)
    finally:
        torch.set_num_threads(before)


def test_a_position_outside_is_reported_before_anything_is_written(tmp_path: Path) -> None:
    x, values, places = torch.zeros(3, 2), torch.ones(2, 2), torch.tensor([0, 7])
    done = compiled(lambda x, i, s: x.index_add(0, i, s), [x, places, values], tmp_path)
    with pytest.raises(RuntimeError, match="7 is out of bounds"):
        done([x, places, values])
    assert not x.any()


@pytest.mark.parametrize("shape", [(0, 2), (3, 0)])
def test_nothing_to_write(shape: tuple[int, int], tmp_path: Path) -> None:
    x, places = torch.randn(6, shape[1]), torch.zeros(shape[0], dtype=torch.int64)
    check(lambda x, i, s: x.index_add(0, i, s), [x, places, torch.randn(shape)], tmp_path)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_of_rows_on_a_gpu_are_one_loop_of_atomic_additions(dtype: torch.dtype) -> None:
    """By the meaning of its loops, without a GPU: gathered rows are never in memory."""

    def fn(x: Tensor, source: Tensor, target: Tensor, sums: Tensor) -> Tensor:
        gathered = torch.ops.aten.index_select.default(x, 0, source)
        return torch.ops.aten.index_add.default(sums, 0, target, gathered)

    real = [
        torch.randn(10, 64).to(dtype),
        torch.randint(0, 10, (30,)),
        torch.randint(-7, 7, (30,)) % 7,
        torch.randn(7, 64).to(dtype),
    ]
    program = scheduled(fn, real, "cuda")
    loops = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    assert len(loops) == sum(isinstance(step, RunLoop | Extern) for step in program.steps)
    adding = [loop for loop in loops if any(getattr(i, "mode", "") == "add" for i in loop.body)]
    assert len(adding) == 1 and choose(adding[0]).dimensions[0].name == "y"
    assert sum(b.layout.shape == (30, 64) for b in program.buffers) == 0
    (got,) = run_program(program, real)
    assert isinstance(got, Tensor)
    want = fn(*(t.double() if t.is_floating_point() else t for t in real))
    torch.testing.assert_close(got.double(), want, rtol=2**-8, atol=1e-5)


def windows(grad: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Sums of elements, at places that two tensors give."""
    zeros = torch.zeros(6, 9, 9, dtype=grad.dtype, device=grad.device)
    return aten.index_put.default(zeros, [None, rows, columns], grad, True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sums_of_elements_on_a_gpu_are_atomic_additions(dtype: torch.dtype) -> None:
    real = [torch.randn(6, 70).to(dtype), *(torch.randint(-9, 9, (70,)) for _ in range(2))]
    program = scheduled(windows, real, "cuda")
    assert set(steps_of(program)) == {"loop"}
    (got,) = run_program(program, real)
    assert isinstance(got, Tensor)
    want = windows(real[0].double(), *real[1:])
    torch.testing.assert_close(got.double(), want, rtol=2**-8, atol=1e-5)


def test_few_elements_and_a_fixed_order_are_the_librarys() -> None:
    def given(length: int, dtype: torch.dtype) -> list[tuple[tuple[int, ...], torch.dtype]]:
        return [((6, length), dtype), ((length,), torch.int64), ((length,), torch.int64)]

    put = "aten.index_put.default"
    assert put in steps_of(scheduled(windows, given(5, torch.bfloat16), "cuda"))
    assert put not in steps_of(scheduled(windows, given(5, torch.float32), "cuda"))
    fixed = scheduled(windows, given(70, torch.float32), "cuda", deterministic=True)
    assert put in steps_of(fixed)
