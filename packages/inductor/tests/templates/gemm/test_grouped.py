"""Grouped products from the template, under Triton's interpreter, against float64."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from flambeau_inductor.codegen.triton.build import build
from flambeau_inductor.codegen.triton.kernel import TritonKernel
from flambeau_inductor.codegen.triton.module import module_text
from flambeau_inductor.indexing import Var
from flambeau_inductor.ir.loops import Axis, Const, Load, Loop, Point, Store
from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.templates.gemm.epilogue import epilogue_of
from flambeau_inductor.templates.gemm.grouped import even_ends, tiles_for
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct, find
from flambeau_inductor.templates.gemm.operands import operands_of
from flambeau_inductor.templates.gemm.problem import Groups, Matrix, Product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.selection.races import product_class, product_kernel
from flambeau_inductor.templates.selection.select import select
from torch import Tensor

from tests.templates.selection.test_select import Chooser, program_of, sound

HALF = torch.float16  # the interpreter multiplies the bits of bfloat16
PLAIN = GemmTile(16, 16, 16, 4, 2)
DESCRIBED = GemmTile(16, 16, 16, 4, 2, described=True)
ENDS = {
    "empty": [0, 16, 16, 40],
    "one row": [1, 2, 19, 40],
    "all in one": [0, 0, 40, 40],
    "rows behind the last": [8, 24, 24, 31],
    "nothing at all": [0, 0, 0, 0],
}


def reference(kind: str, a: Tensor, b: Tensor, ends: Sequence[int]) -> Tensor:
    """The groups apart in float64, zeros behind the last of them."""
    a, b = a.double(), b.double()
    spans = list(zip([0, *ends], ends, strict=False))
    if kind == "inner":
        return torch.stack([a[:, s:e] @ b[s:e] for s, e in spans])
    rows, columns = a.shape[-2], b.shape[-1]
    out = torch.zeros(rows, columns, dtype=torch.float64)
    for number, (s, e) in enumerate(spans):
        if kind == "rows":
            out[s:e] = a[s:e] @ b[number]
        else:
            out[:, s:e] = a[number] @ b[:, s:e]
    return out


def operands(kind: str, turned: bool, k: int = 48) -> tuple[Tensor, Tensor, Groups, Product]:
    """Four groups that share 40 rows, columns, or positions of the inner dimension."""
    m = 40 if kind == "rows" else 24
    n = 40 if kind == "columns" else 24
    k = 40 if kind == "inner" else k

    def drawn(*shape: int, turn: bool) -> Tensor:
        shape = (*shape[:-2], shape[-1], shape[-2]) if turn else shape
        made = (torch.randn(shape) / 4).to(HALF)
        return made.mT if turn else made

    a = drawn(*((4, m, k) if kind == "columns" else (m, k)), turn=turned and kind == "inner")
    b = drawn(*((4, k, n) if kind == "rows" else (k, n)), turn=turned and kind != "inner")
    groups = Groups(Matrix("ends", (0, 0, 1)), 4, kind)  # type: ignore[arg-type]
    sizes = (4 if kind == "inner" else 1, m, n, k)
    return a, b, groups, Product(at("a", a), at("b", b), sizes, HALF, groups=groups)


def at(name: str, tensor: Tensor) -> Matrix:
    strides = (0,) * (3 - tensor.ndim) + tensor.stride()
    return Matrix(name, (strides[0], strides[1], strides[2]), tensor.storage_offset())


def launch(kernel: TritonKernel, buffers: dict[str, Tensor], folder: Path) -> None:
    path = folder / f"{kernel.name}.py"
    path.write_text(module_text([kernel.source]))
    build(path, [kernel])[kernel.name](*(buffers[name] for name in kernel.arguments))


def run(
    product: Product, tile: GemmTile, a: Tensor, b: Tensor, ends: Tensor, folder: Path
) -> Tensor:
    """relu of the product, with more added, where the result was NaN before."""
    shape = product.outer if product.outer[0] > 1 else product.outer[1:]
    out, more = torch.full(shape, torch.nan, dtype=HALF), torch.ones(shape, dtype=HALF)
    index, points = Var("x0"), out.numel()
    body = (
        Load("p", index, HALF),
        Const(0.0, HALF),
        Point("maximum", (0, 1), HALF),
        Load("more", index, HALF),
        Point("add", (2, 3), HALF),
        Store("out", index, 4),
    )
    loop = Loop("after", (Axis("x0", points),), (), body)
    buffers = {"a": a, "b": b, "ends": ends, "more": more, "out": out}
    dtypes = {name: t.dtype for name, t in buffers.items()} | {"p": HALF}
    numels = {name: t.numel() for name, t in buffers.items()}
    kernel = product_kernel(
        product, epilogue_of(loop, "p", product.outer), tile, (dtypes, numels), "grouped"
    )
    assert len(kernel.descriptors) == 2 * bool(tile.described and operands_of(product, tile))
    launch(kernel, buffers, folder)
    return out


@pytest.mark.sweep(9)
@pytest.mark.parametrize("tile", [PLAIN, DESCRIBED], ids=["pointers", "described"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", ["rows", "columns", "inner"])
@pytest.mark.parametrize("ends", ENDS.values(), ids=ENDS)
def test_groups_of_any_size(
    ends: list[int], kind: str, turned: bool, tile: GemmTile, tmp_path: Path
) -> None:
    a, b, _, product = operands(kind, turned)
    assert bool(operands_of(product, DESCRIBED)) == (turned or kind == "rows")
    got = run(product, tile, a, b, torch.tensor(ends, dtype=torch.int32), tmp_path)
    expected = reference(kind, a, b, ends).relu() + 1
    torch.testing.assert_close(got.double(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", ["rows", "columns"])
def test_an_inner_dimension_that_is_no_whole_step(kind: str, tmp_path: Path) -> None:
    a, b, _, product = operands(kind, True, k=21)
    ends = ENDS["one row"]
    got = run(product, PLAIN, a, b, torch.tensor(ends, dtype=torch.int32), tmp_path)
    expected = reference(kind, a, b, ends).relu() + 1
    torch.testing.assert_close(got.double(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("tile", [PLAIN, DESCRIBED], ids=["pointers", "described"])
@pytest.mark.parametrize("kind", ["rows", "columns", "inner"])
def test_what_is_no_number_stays_in_its_group(kind: str, tile: GemmTile, tmp_path: Path) -> None:
    a, b, _, product = operands(kind, False)
    ends = ENDS["one row"]
    if kind in ("rows", "inner"):
        (a[2:19] if kind == "rows" else a[:, 2:19]).fill_(torch.nan)
    if kind in ("columns", "inner"):
        (b[:, 2:19] if kind == "columns" else b[2:19]).fill_(torch.nan)
    got = run(product, tile, a, b, torch.tensor(ends, dtype=torch.int32), tmp_path)
    wrong = {"rows": got[2:19], "columns": got[:, 2:19], "inner": got[2:3]}[kind]
    assert int(got.isnan().sum()) == wrong.numel() == int(wrong.isnan().sum())


def test_ends_are_read_with_a_step_and_from_inside_a_buffer(tmp_path: Path) -> None:
    a, b, groups, product = operands("rows", False)
    ends = torch.full((9,), -7, dtype=torch.int32)
    ends[1::2] = torch.tensor(ENDS["empty"], dtype=torch.int32)
    moved = Groups(Matrix("ends", (0, 0, 2), 1), 4, "rows")
    product = Product(product.a, product.b, product.sizes, HALF, groups=moved)
    got = run(product, PLAIN, a, b, ends, tmp_path)
    expected = reference("rows", a, b, ENDS["empty"]).relu() + 1
    torch.testing.assert_close(got.double(), expected, rtol=2e-3, atol=2e-3)
    assert groups.ends != moved.ends


def experts(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    return torch.relu(torch._grouped_mm(x, w.mT, offs=ends)) * 0.5


def only(program: Program) -> MatchedProduct:
    (found,) = find(program, tf32=False)
    return found


def test_grouped_products_are_found_with_what_follows_them() -> None:
    found = only(program_of(experts, (1024, 256), (4, 512, 256), ends=4))
    assert found.product.sizes == (1, 1024, 512, 256) and found.reader is not None
    groups = found.product.groups
    assert groups is not None and (groups.along, groups.count) == ("rows", 4)
    assert found.product.b.strides == (512 * 256, 1, 256)
    assert even_ends(found.product).tolist() == [256, 512, 768, 1024]
    assert " ('rows', 4)" in product_class(found, "a GPU")
    for tile in tiles_for(found.product, described=True):
        assert not tile.resident and tile.parts == 1 and tile.rows <= 256
        assert not tile.described or len(operands_of(found.product, tile)) == 2


@pytest.mark.parametrize(
    "shapes, sizes, along",
    [
        (((4, 64, 32), (32, 256)), (1, 64, 256, 32), "columns"),
        (((64, 256), (256, 32)), (4, 64, 32, 256), "inner"),
    ],
)
def test_the_other_forms_are_found(shapes: Any, sizes: tuple[int, ...], along: str) -> None:
    found = only(program_of(lambda a, b, ends: torch._grouped_mm(a, b, offs=ends), *shapes, ends=4))
    assert found.product.sizes == sizes and found.product.groups is not None
    assert found.product.groups.along == along
    share = 4 if along == "inner" else 1
    assert found.product.multiplications * share == sizes[0] * sizes[1] * sizes[2] * sizes[3]


def test_two_batches_are_an_ordinary_product() -> None:
    program = program_of(
        lambda a, b, ends: torch._grouped_mm(a, b), (4, 64, 32), (4, 32, 64), ends=4
    )
    found = only(program)
    assert found.product.groups is None and found.product.sizes == (4, 64, 64, 32)


def test_a_chosen_kernel_takes_the_place_of_call_and_loop() -> None:
    program = program_of(experts, (1024, 256), (4, 512, 256), ends=4)
    assert sum(isinstance(s, Extern) for s in program.steps) == 1
    made = select(program, Chooser(lambda name: "x" in name), "a GPU")
    assert not any(isinstance(s, Extern) for s in made.program.steps)
    (kernel,) = made.kernels.values()
    assert "tl.cumsum" in kernel.source and "tl.dot" in kernel.source
    sound(made.program)
