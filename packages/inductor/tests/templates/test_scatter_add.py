"""Rows added to rows of a table, by kernels in the place of a call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build, options_of
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.loops import Check
from flambeau_inductor.ir.program import Buffer, Extern, Layout, Program, Ref, RunLoop
from flambeau_inductor.runtime.operators import ROWS_ADDED
from flambeau_inductor.templates.call_replacement import Selected
from flambeau_inductor.templates.scatter_add import (
    LEAST_BYTES,
    FoundRows,
    find_rows,
    sum_rows,
    tile_of,
)
from torch import Tensor

from tests import uninterpreted
from tests.evaluated import scheduled, steps_of

pytest.importorskip("triton", reason="triton is not installed")
GPU = torch.device("cuda")


def program_of(
    count: int, positions: Tensor, values: Tensor, out: torch.dtype, base: Tensor | None
) -> Program:
    """A program of one call."""

    def layout(t: Tensor) -> Layout:
        return Layout(tuple(t.shape), t.stride(), t.dtype, GPU)

    given = {"positions": positions, "values": values} | ({} if base is None else {"base": base})
    inputs = tuple(Buffer(name, layout(t)) for name, t in given.items())
    width = values.shape[1]
    table = Buffer("out", Layout((count, width), (width, 1), out, GPU))
    last = None if base is None else Ref("base")
    args = (Ref("positions"), Ref("values"), count, out, last)
    call = Extern(ROWS_ADDED, args, results=("out",), origins=("call",))
    return Program("added", inputs, (Ref("out"),), (*inputs, table), (call,))


def run(found: FoundRows, given: dict[str, Tensor], folder: Path) -> Tensor:
    """The kernels one after the other under the interpreter, on poisoned memory."""
    memory = dict(given)
    for buffer in found.memory().values():
        dtype = buffer.layout.dtype
        memory[buffer.name] = torch.full(buffer.layout.shape, -77, dtype=dtype)  # type: ignore[arg-type]
    memory["out"] = torch.full((found.count, found.width), 77, dtype=found.out.dtype)
    for name, kernel in found.kernels().items():
        path = folder / f"{name}.py"
        path.write_text(module_text([kernel.source]))
        launcher = build(path, [kernel])[kernel.name]
        launcher(*(memory[each] for each in kernel.arguments))
    return memory["out"]


def words(kind: str, count: int, length: int) -> Tensor:
    if kind == "one word":
        return torch.full((length,), count // 2)
    if kind == "a few often":
        often = torch.randint(0, 3, (length,)) * (count // 3)
        return torch.where(torch.rand(length) < 0.7, often, torch.randint(0, count, (length,)))
    return torch.randint(-count if kind == "from the end" else 0, count, (length,))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("kind", ["any word", "one word", "a few often", "from the end"])
@pytest.mark.parametrize(
    ("dtype", "width", "length"),
    [
        (torch.float32, 256, 300),
        (torch.bfloat16, 200, 700),
        (torch.float16, 2100, 130),
        (torch.bfloat16, 128, 40),
        (torch.bfloat16, 40, 300),
        (torch.float32, 64, 20),
        (torch.float16, 33, 700),
    ],
)
def test_rows_are_summed(
    kind: str, dtype: torch.dtype, width: int, length: int, tmp_path: Path
) -> None:
    count = 37
    positions, values = words(kind, count, length), torch.randn(length, width).to(dtype)
    (found,) = find_rows(program_of(count, positions, values, dtype, None))
    given = run(found, {"positions": positions, "values": values}, tmp_path)
    exact = torch.zeros(count, width, dtype=torch.float64)
    exact.index_put_((positions,), values.double(), accumulate=True)
    # the interpreter cuts off what bfloat16 has no room for
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}[dtype]
    torch.testing.assert_close(given.double(), exact, rtol=tolerance, atol=1e-4)
    missing = sorted(set(range(count)) - set((positions % count).tolist()))
    assert not given[missing].any()


def test_onto_a_table_and_in_any_strides(tmp_path: Path) -> None:
    base = torch.randn(130, 20).to(torch.bfloat16).t()
    values = torch.randn(2, 90, 130)[1].t().contiguous().t().to(torch.bfloat16)
    positions = torch.randint(0, 20, (90, 2))[:, 1]
    (found,) = find_rows(program_of(20, positions, values, torch.float32, base))
    assert found.base is not None and found.positions.strides == (2,)
    whole = {"positions": positions, "values": values, "base": base}
    given = run(found, whole, tmp_path)
    torch.testing.assert_close(
        given, base.float().index_put((positions,), values.float(), True), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("width", [64, 300, 4096])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_program_writes_enough(width: int, dtype: torch.dtype, tmp_path: Path) -> None:
    """As many rows as are worth a program's waits for memory; a long row is alone."""
    positions, values = torch.tensor([3, 70, 70, 99]), torch.ones(4, width, dtype=dtype)
    (found,) = find_rows(program_of(101, positions, values, dtype, None))
    kernel, tile = found.kernels()["rows"], tile_of(found)
    written = tile.rows * tile.columns * dtype.itemsize
    assert written >= LEAST_BYTES and (tile.rows == 1 or written == LEAST_BYTES)
    blocks = -(-width // tile.columns)
    assert kernel.programs == -(-101 // tile.rows) * blocks
    given = run(found, {"positions": positions, "values": values}, tmp_path)
    assert given.sum() == 4 * width and given[70].eq(2).all()


def test_a_position_outside_is_told_and_writes_nothing(tmp_path: Path) -> None:
    """On the device the kernel that counts ends there; the interpreter asserts nothing."""
    positions, values = torch.tensor([1, 37, -38, 1 << 40]), torch.ones(4, 128)
    (found,) = find_rows(program_of(37, positions, values, torch.float32, None))
    kernel = found.kernels()["count"]
    assert "tl.device_assert(known, 'index of a GPU tensor is out of bounds" in kernel.source
    assert options_of(kernel)["debug"]
    given = run(found, {"positions": positions, "values": values}, tmp_path)
    assert given[1].eq(1).all() and given.sum() == 128


def backward(grad: Tensor, positions: Tensor) -> Tensor:
    return torch.ops.aten.embedding_dense_backward.default(grad, positions, 50257, 0, False)


def test_the_gradient_of_a_large_table_is_half_precision_throughout() -> None:
    given = ((8, 512, 768), torch.bfloat16), ((8, 512), torch.int64)
    program = scheduled(backward, given, "cuda")
    assert steps_of(program) == ["loop", ROWS_ADDED]  # the loop leaves out the padding
    (found,) = find_rows(program)
    assert {found.values.dtype, found.out.dtype} == {torch.bfloat16} and found.base is None
    assert all(b.layout.dtype != torch.float32 for b in program.buffers)
    selected = Selected(program)
    sum_rows(selected)
    assert steps_of(selected.program) == ["loop"] * (1 + len(selected.kernels))
    assert len(selected.kernels) == 6 and not find_rows(selected.program)


def test_small_tables_and_a_fixed_order_are_as_they_were() -> None:
    small = ((8, 128, 768), torch.float32), ((8, 128), torch.int64)
    assert ROWS_ADDED not in steps_of(scheduled(backward, small, "cuda"))
    large = ((8, 512, 768), torch.bfloat16), ((8, 512), torch.int64)
    fixed = scheduled(backward, large, "cuda", deterministic=True)
    assert ROWS_ADDED not in steps_of(fixed)


def test_rows_added_to_a_given_table() -> None:
    def fn(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return x.index_add(0, index, source)

    table, rows = ((60000, 1024), torch.bfloat16), ((4000, 1024), torch.bfloat16)
    program = scheduled(fn, (table, ((4000,), torch.int64), rows), "cuda")
    # a loop looks at the positions, none of which may count from the end
    assert steps_of(program) == ["loop", ROWS_ADDED]
    (loop,) = [step.loop for step in program.steps if isinstance(step, RunLoop)]
    assert any(isinstance(instr, Check) for instr in loop.body)
    (found,) = find_rows(program)
    assert found.base is not None and found.base.buffer == "in0"


def test_rows_scattered_whole() -> None:
    """What graphs of messages between nodes do: a place for each row, the same in all columns."""

    def fn(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return x.scatter_add(0, index.unsqueeze(1).expand(source.shape), source)

    table, rows = ((100, 256), torch.float32), ((90000, 256), torch.float32)
    program = scheduled(fn, (table, ((90000,), torch.int64), rows), "cuda")
    assert steps_of(program) == ["loop", ROWS_ADDED]
    given = [torch.randn(100, 256), torch.randint(0, 100, (90000,)), torch.randn(90000, 256)]
    (found,) = run_program(program, given)
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, fn(*given), rtol=1e-4, atol=1e-4)
    given[1][7] = -1
    with pytest.raises(IndexError, match="out of bounds"):
        run_program(program, given)

    def of_elements(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return x.scatter_add(0, index, source)

    program = scheduled(of_elements, (table, ((90000, 256), torch.int64), rows), "cuda")
    assert ROWS_ADDED not in steps_of(program)


def test_the_call_by_its_meaning() -> None:
    grad, positions = torch.randn(3, 40, 768).bfloat16(), torch.randint(0, 50257, (3, 40))
    positions[1] = 0
    given = ((3, 40, 768), torch.bfloat16), ((3, 40), torch.int64)
    program = scheduled(backward, given, "cuda")
    assert ROWS_ADDED in steps_of(program)
    (found,) = run_program(program, [grad, positions])
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, backward(grad, positions), rtol=2**-8, atol=0)


def test_the_kernels_compile_without_a_gpu() -> None:
    report = json.loads(uninterpreted.run("-m", "tests.templates.compile_rows", "80", "90"))
    assert len(report) == 12
    for row in report:
        # four rows of 16 elements a thread are on their way, in as many loads of 16 bytes
        assert row["registers"] <= 80, row
        assert (row["wide"] >= 8) == (row["kernel"] in ("parts", "rows")), row
        assert bool(row["asserts"]) == (row["kernel"] == "count"), row
