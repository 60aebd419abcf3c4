"""Pattern matching of convolutions as implicit GEMM, and the layout of their weights.

In: a library call; a product whose weights are in another order. Out: its `Product`, None for one
that no template takes; the same over a copy of the weights, and the loop that makes it. Invariant:
images are channels-last and results dense, a row a point and a column a channel.

A window of one point that moves by one is a product of matrices; of any other the matrix of all
windows is never in memory (implicit GEMM: S. Chetlur et al., cuDNN, 2014, section 3).

Depthwise convolution template with epilogue. In: a `Product` whose window is depthwise, its
`ProductEpilogue`, a `GemmTile` of points and channels. Out: a `TritonKernel`, without tensor units.
Invariant: sums are float32 and rounded once; what lies outside of an image is zero and its memory
is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from flambeau_inductor.indexing import Expr, Var, as_expr
from flambeau_inductor.ir.loops import Axis, Load, Loop, Store
from flambeau_inductor.ir.program import Argument, Buffer, Extern, Layout, Ref
from flambeau_inductor.schedule.fuse.loop_order import normalised
from flambeau_inductor.templates.gemm.kernel import ProductWriter
from flambeau_inductor.templates.gemm.operands import TmaOperand, images, masked
from flambeau_inductor.templates.gemm.problem import (
    Matrix,
    Product,
    Static,
    Window,
    dtype_of,
    static_of,
)
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.tuning import Tuning
from flambeau_inductor.tuning.machine import MMA_DEPTH

TARGET = "aten.convolution.default"
IMAGE = 4
"""Dimensions of a batch of images."""

Shape = tuple[int, ...]


def convolution_of(step: Extern, layouts: Mapping[str, Layout], tf32: bool) -> Product | None:
    """The product that a convolution is; `tf32`: those of float32 may be computed as TF32."""
    image, weight, bias, *geometry = step.args
    if not step.results or step.results[0] is None or step.into:
        return None
    pair = [_pair(each) for each in geometry[:3]]
    transposed, _, groups = geometry[3:6]
    if transposed or None in pair:
        return None
    stride, padding, dilation = (each for each in pair if each is not None)
    refs = (image, weight, Ref(step.results[0]))
    found = [_static(each, layouts) for each in refs]
    if any(each is None for each in found):
        return None
    (shape, strides, start), (kernel, taps, begin), (out, dense, _) = (f for f in found if f)
    dtypes = {dtype_of(each, layouts) for each in (*refs, *([bias] if bias is not None else []))}
    if len(dtypes) != 1 or 0 in (*shape, *kernel, *out):
        return None
    depthwise = groups != 1 and groups == shape[1] == kernel[0]
    if groups != 1 and not depthwise:
        return None
    batch, columns, high, wide = out
    rows, channels = batch * high * wide, shape[1]
    if not _same(out, dense, (high * wide * columns, 1, wide * columns, columns)):
        return None
    if strides[1] != 1 and channels > 1:
        return None
    added = _row(bias, layouts)
    if bias is not None and added is None:
        return None
    assert isinstance(image, Ref) and isinstance(weight, Ref)
    points = kernel[2] * kernel[3]
    sizes = (1, rows, columns, points if depthwise else points * channels)
    (dtype,) = dtypes
    assert dtype is not None
    channel, *_ = _taps(channels, kernel, taps)
    right = Matrix(weight.buffer, (0, channel, taps[0]), begin)
    row = strides[3] if wide > 1 else strides[2] if high > 1 else strides[0]
    level = (high * wide * row, 1, wide * row, row)
    once = not depthwise and points == 1 and set(stride) == {1} and set(padding) == {0}
    if once and _same(shape, strides, level, but=1):
        left = Matrix(image.buffer, (0, row, 1), start)
        return Product(left, right, sizes, dtype, added, tf32=tf32)
    window = Window(
        channels,
        (shape[2], shape[3]),
        (high, wide),
        (kernel[2], kernel[3]),
        stride,
        padding,
        dilation,
        (strides[0], strides[1] if channels > 1 else 1, strides[2], strides[3]),
        (0, taps[2], taps[3]) if depthwise else _taps(channels, kernel, taps),
        depthwise,
    )
    left = Matrix(image.buffer, (0, 0, 0), start)
    return Product(left, right, sizes, dtype, added, tf32=tf32, window=window)


def _taps(channels: int, kernel: Shape, strides: Shape) -> tuple[int, int, int]:
    """Strides of the weights along channels, down and across: where there is but one element, as in
    weights that are channels-last."""
    dense = (1, channels * kernel[3], channels)
    sizes = (channels, kernel[2], kernel[3])
    found = (d if n == 1 else s for n, s, d in zip(sizes, strides[1:], dense, strict=True))
    channel, down, across = found
    return channel, down, across


def _pair(argument: Argument) -> tuple[int, int] | None:
    if not isinstance(argument, Sequence) or isinstance(argument, str) or len(argument) != 2:
        return None
    first, second = argument
    if isinstance(first, int) and isinstance(second, int):
        return first, second
    return None


def _static(argument: Argument, layouts: Mapping[str, Layout]) -> Static | None:
    found = static_of(argument, layouts)
    return None if found is None or len(found[0]) != IMAGE else found


def _row(bias: Argument, layouts: Mapping[str, Layout]) -> Matrix | None:
    found = static_of(bias, layouts)
    if found is None or not isinstance(bias, Ref) or len(found[0]) != 1:
        return None
    _, (step,), offset = found
    return Matrix(bias.buffer, (0, 0, step), offset)


def _same(shape: Shape, strides: Shape, wanted: Shape, but: int | None = None) -> bool:
    """Whether strides are the wanted ones, where a dimension has more than one element."""
    steps = zip(shape, strides, wanted, strict=True)
    return all(n == 1 or i == but or a == b for i, (n, a, b) in enumerate(steps))


def reordered(product: Product, name: str) -> Product | None:
    """The product over a copy of the weights, `name`; None where they are read as they are. Those
    of images of few channels are small, and read element by element in any order."""
    window = product.window
    if window is None or not window.whole_points:
        return None
    taps, column = _dense_taps(window, product.sizes[3])
    if window.taps == taps and product.b.strides[2] == column:
        return None
    return replace(product, b=Matrix(name, (0, taps[0], column)), window=replace(window, taps=taps))


def copy_of(product: Product, name: str, device: torch.device) -> tuple[Buffer, Loop]:
    """The copy, and the loop that makes it of the weights of `product`."""
    window, results, inner = product.window, product.sizes[2], product.sizes[3]
    assert window is not None
    sizes = (results, *window.kernel, 1 if window.depthwise else window.channels)
    axes = tuple(Axis(f"x{n}", size) for n, size in enumerate(sizes))
    (to_channel, to_down, to_across), to_result = _dense_taps(window, inner)
    channel, down, across = window.taps
    sources = (product.b.strides[2], down, across, channel)
    targets = (to_result, to_down, to_across, to_channel)
    read: Expr = as_expr(product.b.offset)
    store: Expr = as_expr(0)
    for axis, source, target in zip(axes, sources, targets, strict=True):
        read = read + Var(axis.var) * source
        store = store + Var(axis.var) * target
    body = (Load(product.b.buffer, read, product.dtype), Store(name, store, 0))
    layout = Layout((results * inner,), (1,), product.dtype, device)
    return Buffer(name, layout), normalised(Loop(f"{name}_copy", axes, (), body))


def _dense_taps(window: Window, inner: int) -> tuple[tuple[int, int, int], int]:
    """Strides along channel, down and across, and from one result to the next."""
    if window.depthwise:  # channels side by side
        return (0, window.kernel[1] * window.channels, window.channels), 1
    return (1, window.channels * window.kernel[1], window.channels), inner


def tiles_for(product: Product, tuning: Tuning, most: int = 4) -> list[GemmTile]:
    """The tiles of which the fewest channels lie outside of the images, in the table's order."""
    channels = product.sizes[2]
    rows = tuning.depthwise_tiles
    tiles = [GemmTile(points, columns, MMA_DEPTH, warps, 1) for points, columns, warps in rows]
    tiles.sort(key=lambda tile: -(-channels // tile.columns) * tile.columns)
    return tiles[:most]


class DepthwiseWriter(ProductWriter):
    """Writes the loop over the points of the window, then the epilogue's instructions."""

    def _inner(self, product: Product, tile: GemmTile, operands: tuple[TmaOperand, ...]) -> None:
        window, b = product.window, product.b
        assert window is not None and window.depthwise and not operands and tile.parts == 1
        _, m, n, _ = product.sizes
        (high, wide), (down, across) = window.image, window.strides[2:]
        _, tap_down, tap_across = window.taps
        rows = [f"(rows < {m})"] if m % tile.rows else []
        columns = [f"(columns < {n})[None, :]"] if n % tile.columns else []
        self._line("total = tl.zeros([YBLOCK, XBLOCK], tl.float32)")
        self._lines(images(product, window, self.names))
        self._line("a_at = a_at[:, None] + columns[None, :]")
        base = f"{self.names[b.buffer]} + {b.offset}"
        self._line(f"b_at = {base} + (columns * {b.strides[2]})[None, :]")
        self._line(f"for tap_y in range({window.kernel[0]}):")
        inside = []
        if not window.inside:
            inside.append(f"a_y = image_y + tap_y * {window.dilation[0]}")
            rows.append(f"(a_y >= 0) & (a_y < {high})")
        inside += [
            f"a_row = a_at + tap_y * {window.dilation[0] * down}",
            f"b_row = b_at + tap_y * {tap_down}",
        ]
        self._lines([f"    {line}" for line in inside])
        self._line(f"    for tap_x in tl.static_range({window.kernel[1]}):")
        if not window.inside:
            self._line(f"        a_x = image_x + tap_x * {window.dilation[1]}")
            rows.append(f"(a_x >= 0) & (a_x < {wide})")
        masks = [f"({' & '.join(rows)})[:, None]"] if rows else []
        masks += columns
        step = window.dilation[1] * across
        self._line(f"        a = tl.load(a_row + tap_x * {step}{masked(masks)})")
        self._line(f"        b = tl.load(b_row + tap_x * {tap_across}{masked(columns)})")
        self._line("        total += a.to(tl.float32) * b.to(tl.float32)")
