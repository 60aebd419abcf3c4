"""Numbers of every kernel class, compiled, against eager."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp import CppUnsupported, build, find_toolchain, generate
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Const, Load, Loop, Part, Point, Reduce, Store

from .. import loops
from .run import compile_loop, poisoned, run_loop


@pytest.mark.parametrize("shape", [(4, 64), (3, 100), (1, 1), (70, 7)])
def test_softmax_persistent(shape: tuple[int, int], tmp_path: Path) -> None:
    a, out = torch.randn(shape), poisoned(*shape)
    run_loop(loops.softmax(*shape), {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, a.softmax(-1))


def test_softmax_in_passes_over_a_long_row(tmp_path: Path) -> None:
    loop = loops.softmax(2, 20001)
    a, out = torch.randn(2, 20001), poisoned(2, 20001)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, a.softmax(-1))


def test_softmax_in_half_precision_rounds_once(tmp_path: Path) -> None:
    a = torch.randn(5, 33, dtype=torch.bfloat16)
    out = poisoned(5, 33, dtype=torch.bfloat16)
    run_loop(loops.softmax(5, 33, torch.bfloat16), {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, a.softmax(-1))


@pytest.mark.parametrize("columns", [48, 130, 17000])
def test_layernorm(columns: int, tmp_path: Path) -> None:
    a, weight = torch.randn(3, columns) + 5, torch.randn(columns)
    out, mean = poisoned(3, columns), poisoned(3)
    buffers = {"in0": a, "weight": weight, "out": out, "mean": mean}
    run_loop(loops.layernorm(3, columns), buffers, tmp_path)
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


@pytest.mark.parametrize("columns", [5, 32, 17001])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_row_reductions(kind: str, columns: int, tmp_path: Path) -> None:
    a = torch.rand(3, columns) * 0.01 + 0.995
    a[1, columns // 2] = a[1].max()  # a tie: the first position wins
    if kind != "sum" and kind != "prod":
        a[2, 1] = float("nan")
    expected = REDUCTIONS[kind](a)
    out = poisoned(3, dtype=expected.dtype)
    loop = loops.reduction(kind, 3, columns, torch.float32, expected.dtype)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["any", "all"])
def test_boolean_reductions(kind: str, tmp_path: Path) -> None:
    a = torch.tensor([[True] * 5, [False] * 5, [True, False, True, True, True]])
    out = poisoned(3, dtype=torch.bool)
    loop = loops.reduction(kind, 3, 5, torch.bool, torch.bool)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    assert torch.equal(out, getattr(a, kind)(-1))


@pytest.mark.parametrize("kind", ["sum", "max", "min", "argmax"])
def test_integer_reductions(kind: str, tmp_path: Path) -> None:
    a = torch.randint(-50, 50, (3, 9)) - 100
    expected = REDUCTIONS[kind](a)
    out = poisoned(3, dtype=torch.int64)
    loop = loops.reduction(kind, 3, 9, torch.int64, torch.int64)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    assert torch.equal(out, expected)


@pytest.mark.parametrize("shape", [(5, 3), (37, 130), (300, 64)])
def test_column_sum(shape: tuple[int, int], tmp_path: Path) -> None:
    a, out = torch.randn(shape), poisoned(shape[1])
    run_loop(loops.column_sum(*shape), {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, a.sum(0), rtol=1e-4, atol=1e-4)


def test_transpose(tmp_path: Path) -> None:
    loop = loops.transpose_add(33, 70)
    a, b, out = torch.randn(70, 33), torch.randn(33, 70), poisoned(33, 70)
    run_loop(loop, {"in0": a, "in1": b, "out": out}, tmp_path)
    assert torch.equal(out, a.T + b)


def test_indirect_load(tmp_path: Path) -> None:
    table, index = torch.randn(11, 6), torch.tensor([3, 0, 10, 3])
    out = poisoned(4, 6)
    run_loop(loops.embedding(4, 6), {"table": table, "index": index, "out": out}, tmp_path)
    assert torch.equal(out, table[index])


def test_masked_load(tmp_path: Path) -> None:
    a, out = torch.randn(10), poisoned(15)
    run_loop(loops.pad(10, 2, 3), {"in0": a, "out": out}, tmp_path)
    assert torch.equal(out, torch.nn.functional.pad(a, (2, 3), value=7.0))


@pytest.mark.parametrize("size", [1, 1000, 50000])
def test_total(size: int, tmp_path: Path) -> None:
    a, out = torch.randn(size), poisoned(1)
    run_loop(loops.total(size), {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out[0], a.sum(), rtol=1e-4, atol=1e-3)


def test_fill(tmp_path: Path) -> None:
    out = poisoned(9)
    run_loop(loops.fill(9), {"out": out}, tmp_path)
    assert torch.equal(out, torch.full((9,), 2.5))


def test_atomic_add(tmp_path: Path) -> None:
    index, a, out = torch.tensor([0, 2, 0, 1]), torch.randn(4), torch.zeros(3)
    run_loop(loops.scatter_add(4), {"index": index, "in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, torch.zeros(3).index_add(0, index, a))


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
    library = ctypes.PyDLL(str(build(find_toolchain(), source.text, tmp_path)))
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
        Part(1, 1, torch.float32),
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
