"""Blocks of matrices times a vector: bytes of a thread, rows that share what is read for all."""

from __future__ import annotations

import pytest
import torch
from flambeau_inductor.codegen.triton.row_facts import shared_by_rows
from flambeau_inductor.codegen.triton.tiling import choose
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Reduce, Store
from flambeau_inductor.tuning import MEASURED

from tests.codegen import loops

F32 = torch.float32
MANY_ROWS = 1 << 16
SHARED_BLOCK, SHARED_THREAD, SHARED_MOST = MEASURED.shared_vector


def product(
    rows: int, length: int, matrices: int, dtype: torch.dtype, vectors: int, vector: torch.dtype
) -> Loop:
    """Sums of a vector, itself a product of `vectors`, times the rows of each matrix."""
    body: list[Instr] = []

    def put(instr: Instr) -> int:
        body.append(instr)
        return len(body) - 1

    def read(name: str, row: bool, of: torch.dtype) -> int:
        at = loops.x() * length + loops.r() if row else loops.r()
        return put(Point("cast", (put(Load(name, at, of)),), F32))

    factor = read("vector0", False, vector)
    for k in range(1, vectors):
        factor = put(Point("mul", (factor, read(f"vector{k}", False, vector)), F32))
    for k in range(matrices):
        of_row = put(Point("mul", (factor, read(f"matrix{k}", True, dtype)), F32))
        put(Store(f"out{k}", loops.x(), put(Reduce("sum", of_row, F32))))
    return loops.loop("product", (rows,), (length,), body)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("matrices", [1, 2, 3])
@pytest.mark.parametrize("length", [32, 768, 2048, 3072, 8192])
def test_a_thread_has_as_many_bytes_whatever_they_are(
    dtype: torch.dtype, matrices: int, length: int
) -> None:
    loop = product(MANY_ROWS, length, matrices, dtype, 1, torch.bfloat16)
    tiling = choose(loop)
    rows, row = (d.block for d in tiling.dimensions)
    own, shared, vectors = shared_by_rows(loop)
    assert (own, shared, vectors) == (matrices * dtype.itemsize, 2, 1)
    assert not tiling.looped and row >= length
    each = rows * length * own / (32 * tiling.warps)
    assert SHARED_THREAD <= each < 2 * SHARED_THREAD or tiling.warps in (1, 16)
    assert rows * row * own <= max(SHARED_BLOCK, row * max(own, shared))


@pytest.mark.parametrize("vectors", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16])
def test_a_long_vector_is_read_for_enough_rows(dtype: torch.dtype, vectors: int) -> None:
    loop = product(MANY_ROWS, 8192, 1, dtype, vectors, F32)
    rows, _ = (d.block for d in choose(loop).dimensions)
    own, shared, _ = shared_by_rows(loop)
    assert shared == 4 * vectors
    assert rows * own * SHARED_MOST >= shared


@pytest.mark.parametrize("length", [32, 2048, 8192])
@pytest.mark.parametrize("several", [2, 4])
def test_several_vectors_are_multiplied_by_one_row_at_a_time(several: int, length: int) -> None:
    body: list[Instr] = [Load("matrix", loops.x() * length + loops.r(), torch.int8)]
    body.append(Point("cast", (0,), F32))
    for k in range(several):
        at = len(body)
        body += [Load("vectors", loops.r() + k * length, F32), Point("mul", (1, at), F32)]
        body += [Reduce("sum", at + 1, F32), Store(f"out{k}", loops.x(), at + 2)]
    loop = loops.loop("products", (MANY_ROWS,), (length,), body)
    assert shared_by_rows(loop) == (1, 4 * several, several)
    tiling = choose(loop)
    rows, _ = (d.block for d in tiling.dimensions)
    assert rows == 1
    assert tiling.warps == max(1, length // (32 * SHARED_THREAD))


def test_few_rows_keep_all_multiprocessors_busy() -> None:
    rows, _ = (d.block for d in choose(product(200, 64, 1, torch.int8, 4, F32)).dimensions)
    assert rows == 1


def test_what_is_read_again_after_a_sum_is_no_product() -> None:
    loop = loops.softmax(MANY_ROWS, 512)
    assert shared_by_rows(loop) == (0, 0, 0)
