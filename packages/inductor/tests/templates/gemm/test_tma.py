"""Products read through tensor descriptors, under Triton's interpreter, against eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Load, Store
from flambeau_inductor.templates.gemm.epilogue import ProductEpilogue, plain
from flambeau_inductor.templates.gemm.operands import operands_of
from flambeau_inductor.templates.gemm.problem import Matrix, Product
from flambeau_inductor.templates.gemm.split_k import partial_kernel
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.selection.races import product_kernel

HALF = torch.float16  # the interpreter multiplies the bits of bfloat16
TILE = GemmTile(16, 16, 32, 4, 2, described=True)


def matrix(name: str, tensor: torch.Tensor) -> Matrix:
    strides = (0,) * (3 - tensor.ndim) + tensor.stride()
    return Matrix(name, (strides[0], strides[1], strides[2]), tensor.storage_offset())


def launch(kernel: TritonKernel, buffers: dict[str, torch.Tensor], folder: Path) -> None:
    path = folder / "kernel.py"
    path.write_text(module_text([kernel.source]))
    build(path, [kernel])[kernel.name](*(buffers[name] for name in kernel.arguments))


def stored(product: Product) -> ProductEpilogue:
    batch, m, n = product.outer
    at = Var("z0") * (m * n) + Var("y0") * n + Var("x0")
    return plain("", (batch, m, n), Load("", at, HALF), Store("out", at, 0))


@pytest.mark.parametrize("resident", [0, 1])
@pytest.mark.parametrize("turned", ["a", "b", "both", "none"])
@pytest.mark.parametrize("batch", [1, 3])
def test_described_products(batch: int, turned: str, resident: int, tmp_path: Path) -> None:
    m, n, k = 40, 24, 64
    a = torch.randn(batch, k, m).mT if turned in ("a", "both") else torch.randn(batch, m, k)
    b = torch.randn(batch, n, k).mT if turned in ("b", "both") else torch.randn(batch, k, n)
    a, b = a.to(HALF), b.to(HALF)
    out = torch.full((batch, m, n), torch.nan, dtype=HALF)
    product = Product(matrix("a", a), matrix("b", b), (batch, m, n, k), HALF)
    tile = GemmTile(16, 16, 32, 4, 2, described=True, resident=resident)
    assert len(operands_of(product, tile)) == 2
    numels = {"a": a.numel(), "b": b.numel(), "out": out.numel()}
    kernel = product_kernel(product, stored(product), tile, (dict.fromkeys(numels, HALF), numels))
    assert len(kernel.descriptors) == 2 and ("DESCRIPTORS", 1) in kernel.constants
    assert ("flatten" in kernel.source) == bool(resident)
    launch(kernel, {"a": a, "b": b, "out": out}, tmp_path)
    expected = a.float() @ b.float()
    torch.testing.assert_close(out.float(), expected, rtol=2e-3, atol=1e-2)


@pytest.mark.parametrize("k", [64, 72, 200])
def test_outside_of_a_matrix_are_zeros(k: int, tmp_path: Path) -> None:
    """Parts of the inner dimension that end behind it, rows and columns that do."""
    m, n = 20, 24
    whole = torch.randn(m + 8, k + 16).to(HALF)
    a, b = whole[8:, 8 : k + 8], torch.randn(n, k).to(HALF).t()
    product = Product(matrix("a", a), matrix("b", b), (1, m, n, k), HALF)
    tile = GemmTile(16, 16, 32, 4, 2, parts=3, described=True)
    sums = torch.full((3, m, n), torch.nan)
    dtypes = {"a": HALF, "b": HALF, "sums": torch.float32}
    numels = {"a": whole.numel(), "b": b.numel(), "sums": sums.numel()}
    kernel = partial_kernel(product, tile, "sums", (dtypes, numels))
    assert kernel.descriptors[0].offset == a.storage_offset()
    launch(kernel, {"a": whole, "b": b, "sums": sums}, tmp_path)
    torch.testing.assert_close(sums.sum(0), a.float() @ b.float(), rtol=2e-3, atol=1e-2)


def test_what_the_accelerator_does_not_read_is_not_described() -> None:
    def described(a: torch.Tensor, b: torch.Tensor) -> bool:
        batch = a.shape[0] if a.ndim == 3 else 1
        sizes = (batch, a.shape[-2], b.shape[-1], a.shape[-1])
        return bool(operands_of(Product(matrix("a", a), matrix("b", b), sizes, a.dtype), TILE))

    a, b = torch.empty(32, 64, dtype=HALF), torch.empty(64, 32, dtype=HALF)
    assert described(a, b)
    assert not described(a.float(), b.float())
    assert not described(torch.empty(32, 65, dtype=HALF)[:, :64], b)  # rows of 130 bytes
    assert not described(torch.empty(32, 72, dtype=HALF)[:, 1:65], b)  # starts at byte 2
    assert not described(torch.empty(32, 128, dtype=HALF)[:, ::2], b)
    assert not described(a[:1].expand(32, 64), b)
    batch = torch.empty(3, 32, 64, dtype=HALF)
    assert described(batch, torch.empty(3, 64, 32, dtype=HALF))
    short = torch.empty(3, 32, 48, dtype=HALF), torch.empty(3, 48, 32, dtype=HALF)
    assert not described(*short)  # the last block of 32 would reach into the next product
    assert described(short[0], short[1].mT.contiguous().mT)
    many = batch[:1].expand(3, 32, 64)
    assert not described(many, torch.empty(3, 64, 32, dtype=HALF))
