"""What kernels in C++ do besides: text, threads, widths, refusals, sums as exact as eager's."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.toolchain import find_toolchain
from flambeau_inductor.codegen.cpp.unit import generate
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Const, Load, Loop, Point, Reduce, ReducePart, Store

from tests.codegen import loops
from tests.codegen.cpp.run import compile_loop, run_loop
from tests.poison import poisoned


def test_equal_kernels_are_emitted_once() -> None:
    first = loops.softmax(4, 64)
    second = replace(first, name="other", origins=("layer2",))
    source = generate([first, second], lambda name: torch.float32, 64)
    assert source.kernels == 1
    assert source.entries["softmax"] == source.entries["other"]


def test_kernels_that_differ_in_where_they_begin_are_emitted_once(tmp_path: Path) -> None:
    first = loops.pointwise("neg", 1, 32, torch.float32, torch.float32)
    moved = tuple(replace(i, index=i.index + 16) if isinstance(i, Load) else i for i in first.body)
    second = replace(first, name="second", body=moved)
    source = generate([first, second], lambda name: torch.float32, 64)
    assert source.kernels == 1
    assert [source.entries[n].offsets for n in (first.name, "second")] == [(0, 0), (64, 0)]
    a, out = torch.randn(48), poisoned(32)
    run_loop(second, {"in0": a, "out": out}, tmp_path)
    assert torch.equal(out, -a[16:])


def test_unknown_dtype_is_refused_by_name() -> None:
    loop = loops.pointwise("add", 2, 8, torch.complex64, torch.complex64)
    with pytest.raises(CppUnsupported, match="complex64"):
        generate([loop], lambda name: torch.complex64, 64)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_every_vector_width(width: int, tmp_path: Path) -> None:
    a, out = torch.randn(5, 77), poisoned(5, 77)
    run_loop(loops.softmax(5, 77), {"in0": a, "out": out}, tmp_path, width)
    torch.testing.assert_close(out, a.softmax(-1))
    a, out = torch.randn(9, 35), poisoned(35)
    run_loop(loops.column_sum(9, 35), {"in0": a, "out": out}, tmp_path, width)
    torch.testing.assert_close(out, a.sum(0))


def test_division_by_zero_raises_as_in_eager(tmp_path: Path) -> None:
    loop = loops.pointwise("trunc_div", 2, 4, torch.int64, torch.int64)
    buffers = {"in0": torch.ones(4, dtype=torch.int64), "in1": torch.tensor([1, 2, 0, 1])}
    buffers["out"] = poisoned(4, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_loop(loop, buffers, tmp_path)


def test_wrong_number_of_addresses_is_refused(tmp_path: Path) -> None:
    source = generate([loops.fill(3)], lambda name: torch.float32, 64)
    library = ctypes.PyDLL(str(find_toolchain().build(source.text, tmp_path)))
    library.flambeau_kernel.restype = ctypes.py_object
    with pytest.raises(TypeError, match="takes 1 addresses"):
        library.flambeau_kernel(0)(1, 2)


def test_result_does_not_depend_on_threads(tmp_path: Path) -> None:
    a = torch.randn(1 << 20)
    run = compile_loop(loops.total(1 << 20), {"in0": torch.float32, "out": torch.float32}, tmp_path)
    results = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            out = poisoned(1)
            run({"in0": a, "out": out})
            results.append(out.item())
    finally:
        torch.set_num_threads(before)
    assert results[0] == results[1]


@pytest.mark.parametrize("shape", [(1, 300_000), (64, 40_000), (40_000, 33)])
def test_long_sums_are_as_accurate_as_eager(shape: tuple[int, int], tmp_path: Path) -> None:
    a = torch.rand(shape) + 3
    exact = a.double().sum(-1)
    out = poisoned(shape[0])
    loop = loops.reduction("sum", *shape, torch.float32, torch.float32)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    ours, eager = ((v - exact).square().mean().sqrt() for v in (out, a.sum(-1)))
    # with one row eager's error may be none, by luck: two units in the last place are allowed
    assert ours <= 2 * eager + 2.4e-7 * exact.abs().mean()


@pytest.mark.parametrize("mean", [0.0, 1000.0])
@pytest.mark.parametrize(("rows", "columns"), [(300, 64), (20000, 40), (37, 5)])
def test_variance_of_columns_is_as_exact_as_eagers(
    rows: int, columns: int, mean: float, tmp_path: Path
) -> None:
    """In one pass, with the error of rounding the result."""
    x = torch.randn(rows, columns) + mean
    load = Load("in0", Var("r0") * columns + Var("x0"), torch.float32)
    body = (
        load,
        Reduce("welford", 0, torch.float32),
        ReducePart(1, 1, torch.float32),
        Const(float(rows - 1), torch.float32),
        Point("div", (2, 3), torch.float32),
        Store("out", Var("x0"), 4),
    )
    loop = Loop("loop0", (Axis("x0", columns),), (Axis("r0", rows),), body)
    out = poisoned(columns)
    run_loop(loop, {"in0": x.flatten(), "out": out}, tmp_path)
    exact = x.double().var(0)
    error = (out.double() - exact).abs().max() / exact.abs().max()
    assert float(error) < 2.0**-22
