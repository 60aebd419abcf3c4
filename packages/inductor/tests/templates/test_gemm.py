"""Products from the template, under Triton's interpreter, against eager."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Const, Load, Loop, Point, Reduce, Store
from flambeau_inductor.templates.gemm.epilogue import (
    NoEpilogue,
    ProductEpilogue,
    epilogue_of,
    plain,
)
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.problem import Matrix, Product
from flambeau_inductor.templates.gemm.split_k import split_product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.selection.races import product_kernel

F32 = torch.float32
SMALL = GemmTile(16, 16, 32, 4, 2)
Buffers = dict[str, torch.Tensor]


def facts(buffers: Buffers, dtype: torch.dtype) -> tuple[dict[str, torch.dtype], dict[str, int]]:
    dtypes = {name: t.dtype for name, t in buffers.items()} | {"p": dtype}
    return dtypes, {name: t.numel() for name, t in buffers.items()}


def launch(kernels: Sequence[TritonKernel], buffers: Buffers, folder: Path) -> None:
    path = folder / "kernels.py"
    path.write_text(module_text([kernel.source for kernel in kernels]))
    launchers = build(path, kernels)
    for kernel in kernels:
        launchers[kernel.name](*(buffers[name] for name in kernel.arguments))


def matrix(name: str, tensor: torch.Tensor) -> Matrix:
    strides = (0,) * (3 - tensor.ndim) + tensor.stride()
    return Matrix(name, (strides[0], strides[1], strides[2]))


def relu_and_residual(points: int, dtype: torch.dtype = F32) -> Loop:
    at = Var("x0")
    body = (
        Load("p", at, dtype),
        Const(0.0, dtype),
        Point("maximum", (0, 1), dtype),
        Load("res", at, dtype),
        Point("add", (2, 3), dtype),
        Store("out", at, 4),
    )
    return Loop("after", (Axis("x0", points),), (), body)


@pytest.mark.parametrize("sizes", [(40, 24, 70), (16, 32, 64), (17, 5, 3), (1, 100, 40)])
def test_product_with_what_follows_it(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    m, n, k = sizes
    a, b = torch.randn(m, k), torch.randn(n, k).t()
    bias, res = torch.randn(n), torch.randn(m, n)
    buffers = {"a": a, "b": b, "bias": bias, "res": res, "out": torch.full((m, n), torch.nan)}
    product = Product(
        matrix("a", a), matrix("b", b), (1, m, n, k), F32, Matrix("bias", (0, 0, 1)), 0.5, 2.0
    )
    epilogue = epilogue_of(relu_and_residual(m * n), "p", (1, m, n))
    launch([product_kernel(product, epilogue, SMALL, facts(buffers, F32))], buffers, tmp_path)
    expected = (0.5 * (a @ b) + 2 * bias).relu() + res
    torch.testing.assert_close(buffers["out"], expected, rtol=1e-4, atol=1e-4)


def test_half_precision_is_summed_in_float32_and_rounded_once(tmp_path: Path) -> None:
    dtype = torch.float16  # the interpreter multiplies the bits of bfloat16
    m, n, k = 20, 24, 300
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    res = torch.zeros(m, n, dtype=dtype)
    buffers = {"a": a, "b": b, "res": res, "out": torch.full((m, n), torch.nan, dtype=dtype)}
    product = Product(matrix("a", a), matrix("b", b), (1, m, n, k), dtype)
    epilogue = epilogue_of(relu_and_residual(m * n, dtype), "p", (1, m, n))
    launch([product_kernel(product, epilogue, SMALL, facts(buffers, dtype))], buffers, tmp_path)
    expected = (a.float() @ b.float()).relu()
    tolerance = torch.finfo(dtype).eps
    torch.testing.assert_close(buffers["out"].float(), expected, rtol=tolerance, atol=tolerance)


def test_batched_product_stored_through_other_strides(tmp_path: Path) -> None:
    batch, m, n, k = 3, 18, 10, 7
    a, b = torch.randn(batch, m, k), torch.randn(batch, k, n)
    out = torch.full((batch, n, m), torch.nan)
    buffers = {"a": a, "b": b, "out": out}
    z, y, x = Var("z"), Var("y"), Var("x")
    body = (
        Load("p", z * (m * n) + y * n + x, F32),
        Point("neg", (0,), F32),
        Store("out", z * (m * n) + x * m + y, 1),
    )
    loop = Loop("t", (Axis("z", batch), Axis("x", n), Axis("y", m)), (), body)
    epilogue = epilogue_of(loop, "p", (batch, m, n))
    product = Product(matrix("a", a), matrix("b", b), (batch, m, n, k), F32)
    launch([product_kernel(product, epilogue, SMALL, facts(buffers, F32))], buffers, tmp_path)
    torch.testing.assert_close(out, -(a @ b).transpose(1, 2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("added", [False, True])
def test_parts_of_the_inner_dimension(added: bool, tmp_path: Path) -> None:
    m, n, k = 20, 12, 333
    a, b, res, bias = (torch.randn(s) for s in ((m, k), (k, n), (m, n), (n,)))
    out = torch.full((m, n), torch.nan)
    buffers = {"a": a, "b": b, "res": res, "out": out, "bias": bias}
    third = Matrix("bias", (0, 0, 1)) if added else None
    product = Product(matrix("a", a), matrix("b", b), (1, m, n, k), F32, third, 2.0, 0.5)
    epilogue = epilogue_of(relu_and_residual(m * n), "p", (1, m, n))
    found = MatchedProduct(product, epilogue, "p", 0, 1)
    tile = GemmTile(16, 16, 32, 4, 2, parts=3)
    split = split_product(found, tile, facts(buffers, F32), "split", torch.device("cpu"))
    buffers[split.kept[0].buffer.name] = torch.full((3, m, n), torch.nan)
    launch(split.kernels, buffers, tmp_path)
    expected = (2 * (a @ b) + (0.5 * bias if added else 0)).relu() + res
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-3)


def test_a_product_stored_as_it_is(tmp_path: Path) -> None:
    a, b, out = torch.randn(5, 6), torch.randn(6, 7), torch.full((5, 7), torch.nan)
    at = Var("y0") * 7 + Var("x0")
    epilogue: ProductEpilogue = plain("", (1, 5, 7), Load("", at, F32), Store("out", at, 0))
    product = Product(matrix("a", a), matrix("b", b), (1, 5, 7, 6), F32)
    buffers = {"a": a, "b": b, "out": out}
    launch([product_kernel(product, epilogue, SMALL, facts(buffers, F32))], buffers, tmp_path)
    torch.testing.assert_close(out, a @ b, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_an_epilogue_is_refused_by_name() -> None:
    x, y = Var("x0"), Var("x1")
    twice = (Load("p", x * 8 + y, F32), Load("p", y * 8 + x, F32), Point("add", (0, 1), F32))
    body = (*twice, Store("out", x * 8 + y, 2))
    with pytest.raises(NoEpilogue, match="several places"):
        epilogue_of(Loop("t", (Axis("x0", 8), Axis("x1", 8)), (), body), "p", (1, 8, 8))
    total = (Load("p", x * 8 + y, F32), Reduce("sum", 0, F32), Store("out", x, 1))
    with pytest.raises(NoEpilogue, match="reduces"):
        epilogue_of(Loop("s", (Axis("x0", 8),), (Axis("x1", 8),), total), "p", (1, 8, 8))
    over = (Load("p", x * 8 + y, F32), Store("p", x * 8 + y, 0))
    with pytest.raises(NoEpilogue, match="writes over"):
        epilogue_of(Loop("o", (Axis("x0", 8), Axis("x1", 8)), (), over), "p", (1, 8, 8))
    wider = (Load("p", x * 8 + y, F32), Store("out", x * 8 + y, 0))
    with pytest.raises(NoEpilogue):
        epilogue_of(Loop("w", (Axis("x0", 9), Axis("x1", 8)), (), wider), "p", (1, 8, 8))
