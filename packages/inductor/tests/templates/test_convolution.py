"""Convolutions from the template, under Triton's interpreter, against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flambeau_prims
import pytest
import torch
import torch.nn.functional as F
from flambeau_inductor import Options
from flambeau_inductor.ir.program import Alloc, Extern, Program, RunLoop
from flambeau_inductor.lowering import lower_graph
from flambeau_inductor.schedule import schedule
from flambeau_inductor.templates.call_replacement import Selected
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct, find
from flambeau_inductor.templates.gemm.operands import operands_of
from flambeau_inductor.templates.gemm.split_k import split_product
from flambeau_inductor.templates.gemm.tiles import GemmShape, GemmTile, candidates, seconds
from flambeau_inductor.templates.selection.races import product_kernel, way_of
from flambeau_inductor.templates.selection.select import facts, select, select_by_model
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode

from tests.templates.selection.test_select import Chooser, sound
from tests.templates.test_gemm import launch

TILE = GemmTile(16, 16, 16, 4, 2)
LAST = torch.channels_last
Geometry = dict[str, int | tuple[int, int]]


def program_of(fn: Callable[..., Any], inputs: Sequence[Tensor]) -> Program:
    """The program of `fn` on CUDA tensors that do not exist."""
    with FakeTensorMode():
        fakes = [
            torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in inputs
        ]
        gm = flambeau_prims.lower(fx.symbolic_trace(fn), fakes)
    return schedule(lower_graph(gm, fakes), Options().limits)


def single(program: Program) -> MatchedProduct:
    (found,) = find(program, tf32=False)
    return found


def run(fn: Callable[..., Any], inputs: Sequence[Tensor], tile: GemmTile, folder: Path) -> Tensor:
    """The result of `fn`, which is one convolution with what follows it, by the template."""
    program = program_of(fn, inputs)
    found = single(program)
    assert found.reader is not None or found.result == program.outputs[0].buffer  # type: ignore[union-attr]
    dtypes, numels = facts(program)
    buffers = {b.name: t for b, t in zip(program.inputs, inputs, strict=True)}
    (output,) = program.outputs
    layout = next(b.layout for b in program.buffers if b.name == output.buffer)  # type: ignore[union-attr]
    shape, stride, _ = layout.static()
    out = torch.empty_strided(shape, stride, dtype=layout.dtype).fill_(torch.nan)
    buffers[output.buffer] = out  # type: ignore[union-attr]
    if tile.parts > 1:
        split = split_product(found, tile, (dtypes, numels), "split", torch.device("cpu"))
        sizes = split.kept[0].buffer.layout.static()[0]
        buffers[split.kept[0].buffer.name] = torch.full(sizes, torch.nan)
        launch(split.kernels, buffers, folder)
        return out
    if tile.described:
        assert operands_of(found.product, tile)
    kernel = product_kernel(found.product, found.epilogue, tile, (dtypes, numels))
    launch([kernel], buffers, folder)
    return out


def operands(
    image: tuple[int, ...], weight: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(image).to(dtype).contiguous(memory_format=LAST)
    w = (torch.randn(weight) * (weight[1] * weight[2] * weight[3]) ** -0.5).to(dtype)
    return x, w.contiguous(memory_format=LAST), torch.randn(weight[0]).to(dtype)


CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], Geometry], ...] = (
    ((2, 16, 5, 7), (8, 16, 3, 3), {"padding": 1}),
    ((1, 20, 6, 5), (18, 20, 3, 3), {"padding": (0, 1), "stride": (2, 1)}),
    ((3, 3, 9, 11), (7, 3, 5, 3), {"padding": 2, "stride": 2}),
    ((1, 3, 6, 6), (5, 3, 3, 3), {}),
    ((2, 33, 7, 6), (16, 33, 2, 3), {"padding": 2, "dilation": (2, 3)}),
    ((2, 24, 5, 6), (20, 24, 1, 1), {}),
    ((2, 32, 5, 6), (20, 32, 1, 1), {"stride": 2}),
    ((1, 16, 1, 2), (4, 16, 1, 1), {"padding": 1}),
    ((1, 2, 8, 8), (3, 2, 3, 3), {"padding": 1}),
    ((5, 16, 1, 1), (17, 16, 1, 1), {}),
)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("image, weight, geometry", CASES)
def test_convolution_with_what_follows_it(
    image: tuple[int, ...], weight: tuple[int, ...], geometry: Geometry, parts: int, tmp_path: Path
) -> None:
    x, w, bias = operands(image, weight)
    shape = F.conv2d(x, w, bias, **geometry).shape  # type: ignore[arg-type]
    res = torch.randn(shape).contiguous(memory_format=LAST)

    def fn(x: Tensor, w: Tensor, bias: Tensor, res: Tensor) -> Tensor:
        return torch.relu(F.conv2d(x, w, bias, **geometry)) + res  # type: ignore[arg-type]

    got = run(fn, [x, w, bias, res], GemmTile(16, 16, 16, 4, 2, parts=parts), tmp_path)
    exact = fn(x.double(), w.double(), bias.double(), res.double())
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("described", [False, True])
def test_half_precision_without_anything_behind_it(described: bool, tmp_path: Path) -> None:
    x, w, _ = operands((2, 32, 6, 5), (24, 32, 3, 3), torch.float16)

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=1)

    got = run(fn, [x, w], GemmTile(16, 16, 32, 4, 2, described=described), tmp_path)
    exact = fn(x.double(), w.double())
    tolerance = torch.finfo(torch.float16).eps
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance)


def test_weights_in_row_major_order_are_read_where_they_are(tmp_path: Path) -> None:
    x, w, _ = operands((2, 16, 6, 5), (24, 16, 3, 2))
    w = w.contiguous()

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, stride=(1, 2))

    assert not operands_of(single(program_of(fn, [x, w])).product, TILE)
    got = run(fn, [x, w], TILE, tmp_path)
    torch.testing.assert_close(got.double(), fn(x.double(), w.double()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 2])
def test_weights_in_row_major_order_are_put_in_order_first(parts: int, tmp_path: Path) -> None:
    x, w, _ = operands((2, 16, 6, 5), (24, 16, 3, 2), torch.float16)
    w = w.contiguous()

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(F.conv2d(x, w, padding=1))

    program = program_of(fn, [x, w])
    found = single(program)
    way = way_of(program, found, GemmTile(16, 16, 16, 4, 2, parts=parts, described=True))
    assert len(way.loops) == len(way.kernels) == 1 + parts and "d0.load" in way.kernels[1].source
    selected = Selected(program)
    selected.take(found, "way", way)
    sound(selected.program)
    names = {b.name: b.layout.static() for b in selected.program.buffers}
    buffers = {b.name: t for b, t in zip(program.inputs, (x, w), strict=True)}
    for kernel in way.kernels:
        for name in kernel.arguments:
            wide = torch.float32 if name.endswith("_sums") else torch.float16
            shape, stride, _ = names[name]
            new = torch.empty_strided(shape, stride, dtype=wide).fill_(torch.nan)
            buffers.setdefault(name, new)
    launch(way.kernels, buffers, tmp_path)
    (output,) = program.outputs
    got = buffers[output.buffer]  # type: ignore[union-attr]
    exact = fn(x.double(), w.double())
    torch.testing.assert_close(got.double(), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("channels", [5, 16, 40])
@pytest.mark.parametrize(
    "kernel, geometry",
    [
        ((3, 3), {"padding": 1}),
        ((7, 5), {"padding": (3, 2), "stride": 2}),
        ((2, 3), {"dilation": (2, 1)}),
        ((1, 1), {"padding": 1}),
    ],
)
def test_depthwise(
    channels: int, kernel: tuple[int, int], geometry: Geometry, tmp_path: Path
) -> None:
    x, w, bias = operands((2, channels, 7, 6), (channels, 1, *kernel))

    def fn(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return torch.relu(F.conv2d(x, w, bias, groups=channels, **geometry)) * 2  # type: ignore[arg-type]

    program = program_of(fn, [x, w, bias])
    found = single(program)
    assert found.reader is not None and found.product.window is not None
    assert found.product.window.depthwise and not operands_of(found.product, TILE)
    way = way_of(program, found, GemmTile(16, 16, 16, 4, 1))
    assert len(way.kernels) == 2 and "tl.dot" not in way.kernels[1].source
    (output,) = program.outputs
    exact = fn(x.double(), w.double(), bias.double())
    copy = torch.full((w.numel(),), torch.nan)
    out = torch.full_like(exact, torch.nan, dtype=torch.float32, memory_format=LAST)
    buffers = {"in0": x, "in1": w, "in2": bias, way.kept[0].buffer.name: copy}
    buffers[output.buffer] = out  # type: ignore[union-attr]
    launch(way.kernels, buffers, tmp_path)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)


def test_channels_of_wider_images_and_values_that_are_not_finite(tmp_path: Path) -> None:
    """What lies beside the channels that are read, and outside of the images, is no part of it."""
    whole = torch.full((2, 40, 5, 5), torch.inf).contiguous(memory_format=LAST)
    whole[:, :20] = torch.randn(2, 20, 5, 5)
    x = whole[:, :20]
    _, w, _ = operands((1, 20, 1, 1), (9, 20, 3, 3))

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.conv2d(x, w, padding=1)

    got = run(fn, [x, w], TILE, tmp_path)
    torch.testing.assert_close(got.double(), fn(x.double(), w.double()), rtol=1e-5, atol=1e-5)


def test_a_window_of_one_point_is_a_product_of_matrices() -> None:
    x, w, bias = operands((2, 32, 8, 8), (64, 32, 1, 1), torch.bfloat16)
    found = single(program_of(lambda x, w, b: torch.relu(F.conv2d(x, w, b)), [x, w, bias]))
    assert found.product.window is None and found.product.sizes == (1, 128, 64, 32)
    assert (
        found.reader is not None
        and len(operands_of(found.product, GemmTile(64, 64, 32, 4, 2))) == 2
    )


@pytest.mark.parametrize(
    "fn, weight, order",
    [
        (F.conv2d, (16, 16, 3, 3), torch.contiguous_format),
        (lambda x, w: F.conv2d(x, w, groups=2), (16, 8, 3, 3), LAST),
        (lambda x, w: F.conv_transpose2d(x, w), (16, 16, 3, 3), LAST),
    ],
    ids=["row-major", "groups", "transposed"],
)
def test_other_convolutions_are_the_library_s(
    fn: Callable[..., Any], weight: tuple[int, ...], order: torch.memory_format
) -> None:
    x, w, _ = operands((2, 16, 8, 8), weight, torch.bfloat16)
    inputs = [t.contiguous(memory_format=order) for t in (x, w)]
    program = program_of(lambda x, w: fn(x, w), inputs)
    assert any(isinstance(s, Extern) for s in program.steps)
    assert not find(program, tf32=False)


@pytest.mark.parametrize("followed", [False, True])
def test_a_chosen_convolution_takes_the_place_of_the_library_s(followed: bool) -> None:
    x, w, bias = operands((2, 64, 8, 8), (64, 64, 3, 3), torch.bfloat16)

    def fn(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        y = F.conv2d(x, w, bias, padding=1)
        return F.gelu(y) if followed else y

    program = program_of(fn, [x, w, bias])
    made = select(program, Chooser(lambda name: "x" in name and "k" not in name), "a GPU")
    assert not any(isinstance(s, Extern) for s in made.program.steps)
    sound(made.program)
    (kernel,) = made.kernels.values()
    assert "tap_y" in kernel.source
    made_there = {s.buffer for s in made.program.steps if isinstance(s, Alloc)}
    assert sum(isinstance(s, RunLoop) for s in made.program.steps) == len(made_there) == 1


def test_tiles_by_the_model() -> None:
    """What was measured to be the fastest on a GPU is among the few that are tried."""
    for rows, columns, channels, points, best in (
        (100352, 64, 64, 9, "128x64x64w4s4"),
        (25088, 128, 128, 9, "128x128x64w8s3"),
        (6272, 256, 256, 9, "128x128x64w4s4d"),
        (1568, 512, 512, 9, "64x128x64w4s4d"),
        (6272, 1024, 512, 1, "128x128x64w8s3d"),
        (8192, 640, 640, 9, "128x128x64w8s3d"),
        (32768, 256, 256, 9, "128x256x64w8s3d"),
    ):
        inner = points * channels
        some = candidates(GemmShape(rows, columns, inner, 1, 2, points), described=True)
        names = [tile.name for tile in some]
        assert len(names) <= 6 and best.rstrip("d") in {name.rstrip("d") for name in names}, names


def test_few_channels_pay_for_whole_steps() -> None:
    """A step does not leave a point of the window: 40 channels are one of 64, or two of 32."""
    by_depth = {
        depth: seconds(GemmTile(128, 64, depth, 4, 4), GemmShape(1 << 20, 64, 9 * 40, 1, 2, 9))
        for depth in (16, 32, 64)
    }
    assert by_depth[16] < by_depth[32] == by_depth[64]


@pytest.mark.parametrize("channels, taken", [(3, True), (64, False)])
def test_convolutions_of_few_channels_are_the_template_s_by_default(
    channels: int, taken: bool
) -> None:
    x, w, bias = operands((32, channels, 112, 112), (64, channels, 7, 7), torch.bfloat16)

    def fn(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return torch.relu(F.conv2d(x, w, bias, 2, 3))

    program = program_of(fn, [x, w, bias])
    made = select_by_model(program)
    assert any(isinstance(s, Extern) for s in made.program.steps) != taken
    sound(made.program)
    assert len(made.kernels) == taken
    few = program_of(fn, [x[:1, :, :28, :28].contiguous(memory_format=LAST), w, bias])
    assert select_by_model(few).program == few
