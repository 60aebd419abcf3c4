"""How Triton kernels are tiled, what they hold and read again, and that their numbers stay."""

from __future__ import annotations

import math
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.reductions import online_sums
from flambeau_inductor.codegen.triton.tiling import Dimension, choose, spills
from flambeau_inductor.errors import TritonUnsupported
from flambeau_inductor.indexing import Var, as_expr
from flambeau_inductor.ir.loops import (
    Axis,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Store,
)
from flambeau_inductor.ir.operands import pressure
from flambeau_inductor.tuning import MEASURED

from tests.codegen import loops
from tests.codegen.triton.run import run_loop
from tests.poison import poisoned


def test_softmax_in_passes_over_a_long_row(tmp_path: Path) -> None:
    loop = loops.softmax(2, 40001)
    tiling = choose(loop)
    assert tiling.looped
    a, out = torch.randn(2, 40001), poisoned(2, 40001)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, a.softmax(-1))


def test_a_long_softmax_reads_its_rows_twice(tmp_path: Path) -> None:
    loop = loops.softmax(5, 40001)
    kernel = generate(loop, dict.fromkeys(("in0", "out"), torch.float32), {})
    assert kernel.source.count("for r_offset") == 2 and kernel.source.count("fm.online_sum") == 1
    assert dict(kernel.constants)["RBLOCK"] == 4096
    a = torch.randn(5, 40001) * 3
    a[1, 17], a[2, :], a[3, ::2], a[4, 9000] = torch.inf, -torch.inf, -torch.inf, torch.nan
    out = torch.full_like(a, 77)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, a.softmax(-1), equal_nan=True)


def test_reductions_in_turn_take_more_warps() -> None:
    plain = loops.softmax(65536, 4096)
    body = list(plain.body)
    deep = [*body[:6], Point("sub", (1, 5), torch.float32), Reduce("sum", 6, torch.float32)]
    deep += [Point("div", (4, 7), torch.float32), Store("out", body[-1].index, 8)]
    assert choose(replace(plain, body=tuple(deep))).warps == 2 * choose(plain).warps


def test_blocks_of_rows_are_so_many_bytes() -> None:
    half, whole = (choose(loops.softmax(65536, 256, t)) for t in (torch.bfloat16, torch.float32))
    assert [tiling.dimensions[0].block for tiling in (half, whole)] == [8, 4]


def in_turn(function: str | None) -> Loop:
    """Three reductions that wait for each other, of a row as it is or of a function of it."""
    at = loops.x() * 4096 + loops.r()
    body: list[Instr] = [
        Load("in0", at, torch.bfloat16),
        Point("cast", (0,), torch.float32),
        Point(function or "neg", (1,), torch.float32),
        Reduce("sum", 2, torch.float32),
        Point("sub", (2, 3), torch.float32),
        Reduce("sum", 4, torch.float32),
        Point("sub", (4, 5), torch.float32),
        Reduce("sum", 6, torch.float32),
        Point("sub", (6, 7), torch.float32),
        Point("cast", (8,), torch.bfloat16),
        Store("out", at, 9),
    ]
    return loops.loop("in_turn", (4096,), (4096,), body)


def test_what_costs_much_is_not_computed_again_for_each_reduction() -> None:
    assert choose(in_turn(None)).in_registers
    assert not choose(in_turn("erf")).in_registers
    kernels = [
        generate(in_turn(each), dict.fromkeys(("in0", "out"), torch.bfloat16), {})
        for each in (None, "erf")
    ]
    assert kernels[0].source.count("* -1.0") > 1 and kernels[1].source.count("fm.erf(") == 1


def _elements(loop: Loop) -> float:
    """Of a thread at a time."""
    tiling = choose(loop)
    return math.prod(each.block for each in tiling.dimensions) / (32 * tiling.warps)


@pytest.mark.parametrize("rows", [512, 4096, 12288])
def test_threads_hold_fewer_elements_of_which_more_values_are_alive(rows: int) -> None:
    few, many = loops.sums_of_many(rows, 2048, 2), loops.sums_of_many(rows, 2048, 14)
    assert pressure(few, looped=True) < pressure(many, looped=True)
    assert _elements(few) > _elements(many)
    for loop in (few, many):
        tiling = choose(loop)
        assert not spills(loop, _elements(loop), tiling.warps, tiling.looped, MEASURED)


@pytest.mark.parametrize("length", [20480, 32768])
def test_long_rows_that_would_spill_are_read_in_steps(length: int) -> None:
    assert not choose(loops.sums_of_many(512, length, 1, down=False)).looped
    assert choose(loops.sums_of_many(512, length, 6, down=False)).looped


@pytest.mark.parametrize(("rows", "columns"), [(16, 1000), (3, 70), (64, 257)])
def test_each_thread_sums_a_short_column(rows: int, columns: int, tmp_path: Path) -> None:
    loop = loops.column_sum(rows, columns)
    tiling = choose(loop)
    assert tiling.looped and tiling.dimensions[1].block == 1
    assert not choose(loops.column_sum(65, columns)).dimensions[1].block == 1
    x = torch.randn(rows, columns)
    buffers = {"in0": x, "out": poisoned(columns)}
    run_loop(loop, buffers, tmp_path)
    torch.testing.assert_close(buffers["out"], x.sum(0), rtol=1e-5, atol=1e-5)


def test_many_columns_of_medium_length_are_read_a_few_elements_at_a_time(tmp_path: Path) -> None:
    many = choose(loops.column_sum(200, 50_000))
    assert many.looped and [d.block for d in many.dimensions] == [128, 4]
    assert [d.block for d in choose(loops.column_sum(200, 5_000)).dimensions] != [128, 4]
    x, loop = torch.randn(65, 300), loops.column_sum(65, 300)
    buffers = {"in0": x, "out": poisoned(300)}
    columns, elements = many.dimensions
    blocks = replace(columns, axes=loop.x), replace(elements, axes=loop.r)
    run_loop(loop, buffers, tmp_path, replace(many, dimensions=blocks))
    torch.testing.assert_close(buffers["out"], x.sum(0), rtol=1e-5, atol=1e-5)


def test_numbers_of_rows_do_not_turn_sums_of_columns(tmp_path: Path) -> None:
    parts, rows, columns = 2, 600, 64
    at = loops.x() * (rows * columns) + loops.r() * columns + loops.x(1)
    of_row = loops.x() * rows + loops.r()
    body = [
        Load("in0", at, torch.float32),
        Load("mean", of_row, torch.float32),
        Load("scale", of_row, torch.float32),
        Point("sub", (0, 1), torch.float32),
        Point("mul", (3, 2), torch.float32),
        Reduce("sum", 4, torch.float32),
        Store("out", loops.x() * columns + loops.x(1), 5),
    ]
    loop = loops.loop("sums", (parts, columns), (rows,), body)
    assert choose(loop).dimensions[0].block > 1  # neighbours in memory are summed side by side
    x, mean, scale = torch.randn(2, 600, 64), torch.randn(2, 600, 1), torch.rand(2, 600, 1)
    buffers = {"in0": x, "mean": mean, "scale": scale, "out": poisoned(2, 64)}
    run_loop(loop, buffers, tmp_path)
    wanted = ((x - mean) * scale).sum(1)
    torch.testing.assert_close(buffers["out"], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("dtype", "block"), [(torch.bfloat16, 8192), (torch.float32, 4096)])
def test_long_rows_of_several_operands_are_read_again(dtype: torch.dtype, block: int) -> None:
    whole = loops.norm_backward(1, 64, 32768, dtype)
    body = tuple(i for i in whole.body if not isinstance(i, Store) or i.mode == "set")
    loop = replace(whole, x=whole.x[1:], body=body)
    tiling = choose(loop)
    assert tiling.looped and tiling.dimensions[1].block == block
    one = loops.softmax(64, 16384, dtype)
    assert not choose(one).looped


def test_a_maximum_that_is_read_alone_is_no_pair() -> None:
    loop = loops.softmax(5, 64)
    assert online_sums(loop) == {5: 2}
    body = list(loop.body)
    body[3] = replace(body[3], op="add")
    assert online_sums(replace(loop, body=tuple(body))) == {}


def test_transpose_gets_a_two_dimensional_tile(tmp_path: Path) -> None:
    loop = loops.transpose_add(33, 70)
    assert [d.name for d in choose(loop).dimensions] == ["y", "x"]
    a, b, out = torch.randn(70, 33), torch.randn(33, 70), poisoned(33, 70)
    run_loop(loop, {"in0": a, "in1": b, "out": out}, tmp_path)
    assert torch.equal(out, a.T + b)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("length", [32768, 20011])
def test_a_row_of_halves_stays_in_registers(length: int, tmp_path: Path) -> None:
    loop = loops.softmax(3, length, torch.bfloat16)
    assert choose(loop).in_registers
    a = torch.randn(3, length).mul(4).bfloat16()
    a[1, 7:] = float("-inf")
    a[2, 5] = float("nan")
    out = poisoned(3, length, dtype=torch.bfloat16)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    expected = a.double().softmax(-1)
    assert out[2].isnan().all()
    error = (out[:2].double() - expected[:2]).abs() / (expected[:2] + 1e-9)
    assert float(error.max()) < 2**-7  # the interpreter cuts off what does not fit


def test_a_row_with_deep_reductions_stays_in_registers(tmp_path: Path) -> None:
    """Layer norm's backward, of rows of 16 bits: three reductions wait for each other."""
    rows, length = 3, 4001
    x0, r0 = loops.x(), loops.r()
    half, single = torch.bfloat16, torch.float32
    at = x0 * length + r0
    body = (
        Load("x", at, half),
        Point("cast", (0,), single),
        Reduce("sum", 1, single),
        Const(float(length), single),
        Point("div", (2, 3), single),
        Point("sub", (1, 4), single),
        Point("mul", (5, 5), single),
        Reduce("sum", 6, single),
        Point("div", (7, 3), single),
        Point("rsqrt", (8,), single),
        Load("g", at, half),
        Point("cast", (10,), single),
        Load("w", r0, half),
        Point("cast", (12,), single),
        Point("mul", (11, 13), single),
        Point("mul", (5, 9), single),
        Point("mul", (14, 15), single),
        Reduce("sum", 16, single),
        Point("div", (17, 3), single),
        Point("mul", (15, 18), single),
        Point("sub", (14, 19), single),
        Point("mul", (20, 9), single),
        Point("cast", (21,), half),
        Store("out", at, 22),
    )
    loop = Loop("norm", (Axis("x0", rows),), (Axis("r0", length),), body)
    assert choose(loop).in_registers
    x, g, w = (torch.randn(*s).bfloat16() for s in ((rows, length), (rows, length), (length,)))
    out = poisoned(rows, length, dtype=half)
    run_loop(loop, {"x": x, "g": g, "w": w, "out": out}, tmp_path)
    wide, slope = x.double(), g.double() * w.double()
    centred = wide - wide.mean(1, keepdim=True)
    scale = centred.square().mean(1, keepdim=True).rsqrt()
    unit = centred * scale
    expected = (slope - unit * (slope * unit).mean(1, keepdim=True)) * scale
    torch.testing.assert_close(out.double(), expected, rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("held", [False, True])
def test_what_is_computed_again_is_the_same(held: bool, tmp_path: Path) -> None:
    loop = loops.softmax(4, 1000, torch.bfloat16)
    tiling = replace(choose(loop), in_registers=held)
    a, out = torch.randn(4, 1000).bfloat16(), poisoned(4, 1000, dtype=torch.bfloat16)
    run_loop(loop, {"in0": a, "out": out}, tmp_path, tiling)
    torch.testing.assert_close(out, a.float().softmax(-1).bfloat16())


@pytest.mark.parametrize(("count", "width"), [(5, 96), (1, 3000), (300, 33)])
def test_rows_that_are_looked_up_have_a_dimension_of_their_own(
    count: int, width: int, tmp_path: Path
) -> None:
    loop = loops.checked_embedding(count, width, 11)
    assert [d.name for d in choose(loop).dimensions] == ["y", "x"]
    table, index, out = (
        torch.randn(11, width),
        torch.randint(0, 11, (count,)),
        poisoned(count, width),
    )
    run_loop(loop, {"table": table, "index": index, "out": out}, tmp_path)
    assert torch.equal(out, table[index])


def test_masked_load_of_one_element_for_all(tmp_path: Path) -> None:
    """A scalar that is read where a mask holds: joined with other values along a dimension."""
    double = torch.float64
    x0 = loops.x()
    body = (
        Load("in0", as_expr(0), double),
        IndexValue(x0, torch.int64),
        Const(3, torch.int64),
        Point("lt", (1, 2), torch.bool),
        Load("in0", as_expr(0), double, 3, 0.5),
        Point("minimum", (4, 4), double),
        Point("add", (5, 0), double),
        Store("out", x0, 6),
    )
    a, out = torch.tensor(2.0, dtype=double), poisoned(6, dtype=double)
    run_loop(Loop("joined", (Axis("x0", 6),), (), body), {"in0": a, "out": out}, tmp_path)
    assert out.tolist() == [4.0, 4.0, 4.0, 2.5, 2.5, 2.5]


def test_what_is_read_of_every_element_decides_how_a_reduction_is_tiled() -> None:
    """Results that are one a row, however many, do not make it a reduction across memory."""
    rows, columns = 64, 4096
    loop = loops.reduction("sum", rows, columns, torch.float32, torch.float32)
    store = loop.body[-1]
    assert isinstance(store, Store)
    more = [replace(store, buffer=f"out{k}") for k in range(3)]
    tiling = choose(replace(loop, body=(*loop.body, *more)))
    assert tiling.dimensions[1].block == columns and not tiling.looped


def test_a_result_may_have_the_memory_of_what_is_read_after_it(tmp_path: Path) -> None:
    """The schedule gives one result the memory of an operand that another result reads later."""
    x0 = loops.x()
    body = (
        Load("in0", x0, torch.float32),
        Point("neg", (0,), torch.float32),
        Store("out", x0, 1),
        Load("in1", x0, torch.float32),
        Point("add", (0, 3), torch.float32),
        Store("sum", x0, 4),
    )
    a, b = torch.randn(50), torch.randn(50)
    expected, total = -a, poisoned(50)
    added = a + b
    buffers = {"in0": a, "in1": b, "out": b, "sum": total}
    run_loop(Loop("both", (Axis("x0", 50),), (), body), buffers, tmp_path)
    assert torch.equal(b, expected) and torch.equal(total, added)


def test_equal_loops_have_equal_text() -> None:
    first, second = loops.softmax(4, 64), replace(loops.softmax(4, 64), origins=("layer2",))
    dtypes, numels = {"in0": torch.float32, "out": torch.float32}, {"in0": 256, "out": 256}
    assert generate(first, dtypes, numels) == generate(second, dtypes, numels)


def test_wide_indices_only_for_big_buffers() -> None:
    loop = loops.pointwise("add", 2, 2**31 + 8, torch.int8, torch.int8)
    dtypes = dict.fromkeys(["in0", "in1", "out"], torch.int8)
    assert "int64" in generate(loop, dtypes, dict.fromkeys(dtypes, 2**31 + 8)).source
    small = loops.pointwise("add", 2, 8, torch.int8, torch.int8)
    assert "int64" not in generate(small, dtypes, dict.fromkeys(dtypes, 8)).source


def test_unknown_dtype_is_refused_by_name() -> None:
    loop = loops.pointwise("add", 2, 8, torch.complex64, torch.complex64)
    dtypes = dict.fromkeys(["in0", "in1", "out"], torch.complex64)
    with pytest.raises(TritonUnsupported, match="complex64"):
        generate(loop, dtypes, dict.fromkeys(dtypes, 8))


@pytest.mark.parametrize("columns", [5000, 40000])
def test_rows_may_be_written_where_they_were_read(columns: int, tmp_path: Path) -> None:
    there = torch.randn(2, columns)
    expected = torch.softmax(there, 1)
    run_loop(loops.softmax(2, columns), {"in0": there, "out": there}, tmp_path)
    torch.testing.assert_close(there, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_rows_that_are_read_once_are_not_kept_in_the_cache(dtype: torch.dtype) -> None:
    walked = loops.norm_backward(1, 1000, 32768, dtype)
    stores = [p for p, i in enumerate(walked.body) if isinstance(i, Store)]
    body = [*walked.body[: stores[0] - 5], Store("sums", loops.x(1), 8)]
    once = loops.loop("once", (1, 1000), (32768,), body)
    tiling = choose(once)
    assert (tiling.looped, tiling.warps, tiling.dimensions[1].block) == (True, 4, 4096)
    dtypes = dict.fromkeys(("grad", "unit", "weight"), dtype) | {"sums": torch.float32}
    assert "evict" not in generate(once, dtypes, dict.fromkeys(dtypes, 1 << 20)).source


def per_head(heads: int, keys: int, width: int) -> Loop:
    """A product of each head's query, scaled, with each of its keys."""
    h, k, w = Var("h"), Var("k"), Var("w")
    body = (
        Load("q", h * width + w, torch.float32),
        Load("scale", h, torch.float32),
        Point("mul", (0, 1), torch.float32),
        Load("keys", (h * keys + k) * width + w, torch.float32),
        Point("mul", (2, 3), torch.float32),
        Reduce("sum", 4, torch.float32),
        Store("out", h * keys + k, 5),
    )
    return Loop("per_head", (Axis("h", heads), Axis("k", keys)), (Axis("w", width),), body)


@pytest.mark.parametrize("keys", [512, 80, 3])
def test_what_a_block_has_one_of_is_read_once(keys: int, tmp_path: Path) -> None:
    """Where blocks lie within a head, its query is read and scaled once for all keys of a block."""
    heads, width = 3, 64
    loop = per_head(heads, keys, width)
    q, scale, k = torch.randn(heads, width), torch.randn(heads), torch.randn(heads, keys, width)
    out = poisoned(heads, keys)
    run_loop(loop, {"q": q, "scale": scale, "keys": k, "out": out}, tmp_path)
    expected = torch.einsum("hw,hkw->hk", q * scale[:, None], k)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
    block = next(d for d in choose(loop).dimensions if d.name == "x")
    assert block.same_in_block == ({"h"} if keys % block.block == 0 and block.block > 1 else set())


@pytest.mark.parametrize("sizes", [(6, 4, 8), (6, 5, 8), (6, 4, 3)], ids=str)
def test_axes_over_whole_blocks_are_the_same_within_one(sizes: tuple[int, ...]) -> None:
    axes = tuple(Axis(f"x{n}", size) for n, size in enumerate(sizes))
    dimension = Dimension("x", axes, 8)
    for block in range(-(-prod(sizes) // 8)):
        points = [p for p in range(8 * block, 8 * block + 8) if p < prod(sizes)]
        for name in dimension.same_in_block:
            below = prod(sizes[int(name[1:]) + 1 :])
            assert len({p // below for p in points}) == 1
    assert dimension.same_in_block == {(6, 4, 8): {"x0", "x1"}, (6, 5, 8): {"x0", "x1"}}.get(
        sizes, set()
    )
