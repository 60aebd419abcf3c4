"""Block loads of a product's operands through pointers.

In: a `Product` and a `GemmTile`. Out: `Reads`: lines before the loop over the inner dimension and
within it, which leave the block of this `step` (a position of the padded inner dimension) in `a`
and `b`. Invariant: what lies outside of an operand, of an image or after the end of a run is zero
and its memory is not touched.

TMA descriptors of a product's operands. In: a `Product` and a `GemmTile`. Out: two `TmaOperand`s:
descriptors of the matrices, and where in them a tile of this program lies. Invariant: elements
outside of a matrix are read as zeros or fall into rows and columns that are not stored. A
descriptor has two dimensions: batches are one tall matrix, if they follow each other and no block
of the inner dimension reaches into the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flambeau_inductor.codegen.triton.dtypes import HALF, register
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor, fits
from flambeau_inductor.templates.gemm.problem import Matrix, Product, Window
from flambeau_inductor.templates.gemm.tiles import GemmTile


@dataclass(frozen=True, slots=True)
class Reads:
    before: tuple[str, ...]
    inside: tuple[str, ...]


def reads_of(product: Product, tile: GemmTile, names: Mapping[str, str]) -> tuple[Reads, Reads]:
    """Of the left and of the right operand, whose buffers have these `names`. Both use `inner`, the
    positions of a step; the right one's lines use the window's points that the left one's found."""
    if product.window is None:
        return _matrices(product, tile, names)
    if product.window.whole_points:
        return _points(product, product.window, tile, names)
    return _elements(product, product.window, tile, names)


def masked(masks: list[str]) -> str:
    """The rest of a load's arguments."""
    return f", {' & '.join(masks)}, other=0" if masks else ""


def _matrices(product: Product, tile: GemmTile, names: Mapping[str, str]) -> tuple[Reads, Reads]:
    _, m, n, k = product.sizes
    ragged = _whole(product, tile) != k
    a, b = product.a, product.b
    left = f"inner < {k} - step"
    a_masks = [*_rows(m, tile), *([f"({left})[None, :]"] if ragged else [])]
    b_masks = [*_columns(n, tile), *([f"({left})[:, None]"] if ragged else [])]
    at = "inner" if tile.parts == 1 else "(part * KBLOCK + inner)"
    step = "KBLOCK" if tile.parts == 1 else f"{tile.parts} * KBLOCK"

    def reads(
        block: str, of: Matrix, place: str, stride: int, masks: list[str], widened: str = ""
    ) -> Reads:
        start = f"{names[of.buffer]} + {of.offset} + product * {of.strides[0]}"
        load = f"{block} = tl.load({block}_at{masked(masks)}){widened}"
        before = f"{block}_at = {start} + {place}"
        return Reads((before,), (load, f"{block}_at += {step} * {stride}"))

    (_, row, inner), (_, across, column) = a.strides, b.strides
    of_a = f"(rows * {row})[:, None] + ({at} * {inner})[None, :]"
    of_b = f"({at} * {across})[:, None] + (columns * {column})[None, :]"
    widened = "" if product.stored is None else f".to({register(product.dtype)})"
    return reads("a", a, of_a, inner, a_masks), reads("b", b, of_b, across, b_masks, widened)


def _points(
    product: Product, window: Window, tile: GemmTile, names: Mapping[str, str]
) -> tuple[Reads, Reads]:
    """Each step reads some channels of one point of the window."""
    _, m, n, _ = product.sizes
    run = -(-window.channels // tile.depth) * tile.depth
    high, width = window.image
    point = [
        f"tap_y = step // {run * window.kernel[1]}",
        f"tap_x = step // {run} % {window.kernel[1]}",
        f"channel = tl.multiple_of(step % {run}, KBLOCK) + inner",  # else loads are not vectors
    ]
    rows: list[str] = [f"(rows < {m})"] if m % tile.rows else []
    if not window.inside:
        point += [
            f"a_y = image_y + tap_y * {window.dilation[0]}",
            f"a_x = image_x + tap_x * {window.dilation[1]}",
        ]
        rows += [f"(a_y >= 0) & (a_y < {high}) & (a_x >= 0) & (a_x < {width})"]
    ends: list[str] = []
    if _whole(product, tile) != product.padded(tile.depth):  # the last part has fewer steps
        ends.append(f"(step + inner < {product.padded(tile.depth)})")
    if run != window.channels:
        ends.append(f"(channel < {window.channels})")
    end = " & ".join(ends)
    a_masks = [f"({' & '.join(rows)})[:, None]"] if rows else []
    a_masks += [f"({end})[None, :]"] if end else []
    b_masks = [*_columns(n, tile), *([f"({end})[:, None]"] if end else [])]
    shift, taps = _in_window(window)
    shift = f"{shift} + channel * {window.strides[1]}"
    return _window_reads(product, window, names, point, (shift, a_masks), (taps, b_masks))


def _elements(
    product: Product, window: Window, tile: GemmTile, names: Mapping[str, str]
) -> tuple[Reads, Reads]:
    """Images of few channels: a step reads several points of the window."""
    _, m, n, k = product.sizes
    wide, (high, width) = window.kernel[1], window.image
    channels, (of_channel, *tap_steps) = window.channels, window.taps
    a_masks, b_masks = _rows(m, tile), _columns(n, tile)
    place = [
        "element = step + inner",
        f"channel = element % {channels}",
        f"tap_y = element // {channels * wide}",
        f"tap_x = element // {channels} % {wide}",
    ]
    if not window.inside:
        place += [
            f"a_y = image_y[:, None] + (tap_y * {window.dilation[0]})[None, :]",
            f"a_x = image_x[:, None] + (tap_x * {window.dilation[1]})[None, :]",
        ]
        a_masks.append(f"(a_y >= 0) & (a_y < {high}) & (a_x >= 0) & (a_x < {width})")
    if _whole(product, tile) != k:
        a_masks.append(f"(element < {k})[None, :]")
        b_masks.append(f"(element < {k})[:, None]")
    shift, taps = _in_window(window)
    shift = f"{shift} + channel * {window.strides[1]}"
    if tap_steps == [channels * wide * of_channel, channels * of_channel]:
        taps = f"element * {of_channel}"
    return _window_reads(product, window, names, place, (shift, a_masks), (taps, b_masks))


def _in_window(window: Window) -> tuple[str, str]:
    """Where a point of the window is in an image, and an element of it in the weights."""
    _, _, down, across = window.strides
    of_channel, tap_down, tap_across = window.taps
    shift = f"tap_y * {window.dilation[0] * down} + tap_x * {window.dilation[1] * across}"
    return shift, f"tap_y * {tap_down} + tap_x * {tap_across} + channel * {of_channel}"


def _window_reads(
    product: Product,
    window: Window,
    names: Mapping[str, str],
    place: list[str],
    a: tuple[str, list[str]],
    b: tuple[str, list[str]],
) -> tuple[Reads, Reads]:
    """`place`: lines that find the window's points; `a` and `b`: offsets and masks of the loads."""
    weights = product.b
    a_load = f"a = tl.load(a_at[:, None] + ({a[0]})[None, :]{masked(a[1])})"
    b_load = f"b = tl.load(b_at[None, :] + ({b[0]})[:, None]{masked(b[1])})"
    b_at = f"b_at = {names[weights.buffer]} + {weights.offset} + columns * {weights.strides[2]}"
    return Reads(images(product, window, names), (*place, a_load)), Reads((b_at,), (b_load,))


def images(product: Product, window: Window, names: Mapping[str, str]) -> tuple[str, ...]:
    """Lines for `a_at`: where the first point of each row's window is, or would be."""
    high, wide = window.result
    batch, _, down, across = window.strides
    return (
        f"image_y = rows // {wide} % {high} * {window.step[0]} - {window.padding[0]}",
        f"image_x = rows % {wide} * {window.step[1]} - {window.padding[1]}",
        f"a_at = {names[product.a.buffer]} + {product.a.offset}"
        f" + (rows // {high * wide} * {batch} + image_y * {down} + image_x * {across})",
    )


def _rows(m: int, tile: GemmTile) -> list[str]:
    return [f"(rows < {m})[:, None]"] if m % tile.rows else []


def _columns(n: int, tile: GemmTile) -> list[str]:
    return [f"(columns < {n})[None, :]"] if n % tile.columns else []


def _whole(product: Product, tile: GemmTile) -> int:
    """Positions of the inner dimension, of all parts together."""
    return tile.share(product.padded(tile.depth)) * tile.parts


@dataclass(frozen=True, slots=True)
class TmaOperand:
    """`name` is that of the block in the kernel. `along` is the first row or column of the tile, as
    text; `inner_first`: the inner dimension is the outer one of the memory; `transpose` makes the
    block rows by inner (or inner by columns)."""

    name: str
    matrix: Matrix
    sizes: tuple[int, int]
    stride: int
    block: tuple[int, int]
    along: str
    inner_first: bool
    transpose: str
    step: int
    """What a product of the batch takes of the outer dimension."""

    def descriptor(self, arguments: Sequence[str], dtype: str) -> Descriptor:
        number = arguments.index(self.matrix.buffer)
        return Descriptor(
            number, self.matrix.offset, self.sizes, (self.stride, 1), self.block, dtype
        )

    @property
    def at(self) -> str:
        outer, last = ("step", self.along) if self.inner_first else (self.along, "step")
        if self.step:
            outer = f"(product * {self.step}).to(tl.int32) + {outer}"
        return f"[{outer}, {last}]"


def operands_of(product: Product, tile: GemmTile) -> tuple[TmaOperand, ...]:
    """Both operands; empty where one of them cannot be described. Of a convolution the weights."""
    if product.dtype not in HALF:  # what the units read from shared memory in either order
        return ()
    batch, m, n, k = product.sizes
    groups, along = product.groups, None
    if groups is not None:  # those that follow each other in an operand are one matrix
        batch, along = groups.count, groups.along
        (_, row, inner), (_, across, column) = product.a.strides, product.b.strides
        sides = {"rows": (row,), "columns": (column,), "inner": (inner, across)}
        if 1 in sides[groups.along]:  # a group may begin inside of 16 bytes: no block is read there
            return ()
    zero, inner, column = product.b.strides
    sizes, strides = (batch if along in (None, "rows") else 1, n, k), (zero, column, inner)
    if product.window is not None:  # steps of the inner dimension are to be runs of the weights
        window, taps = product.window, product.window.taps
        in_order = taps == (1, window.channels * window.kernel[1], window.channels)
        if window.depthwise or not in_order or window.channels % tile.depth:
            return ()
    first = "tile_first" if along == "columns" else "column_tile * XBLOCK"
    b = _operand(product.b, sizes, strides, tile, (tile.columns, first), "b")
    if product.window is not None:
        return () if b is None else (b,)
    zero, row, inner = product.a.strides
    sizes, strides = (batch if along in (None, "columns") else 1, m, k), (zero, row, inner)
    first = "tile_first" if along == "rows" else "row_tile * YBLOCK"
    a = _operand(product.a, sizes, strides, tile, (tile.rows, first), "a")
    return () if a is None or b is None else (a, b)


def _operand(
    matrix: Matrix,
    sizes: tuple[int, int, int],
    strides: tuple[int, int, int],
    tile: GemmTile,
    along: tuple[int, str],
    block_of: str,
) -> TmaOperand | None:
    """`sizes` and `strides`: batch, rows (or columns), inner; `along`: of the tile, how many of
    them and the first. `block_of`: the inner dimension is the first of the block in `b`."""
    down = block_of == "b"
    (batch, length, k), (apart, step, inner) = sizes, strides
    width, first = along
    if inner == 1:
        outer, stride, block, shape = length, step, (width, tile.depth), (batch * length, k)
    elif step == 1:
        outer, stride, block, shape = k, inner, (tile.depth, width), (batch * k, length)
        if batch > 1 and k % tile.depth:
            return None
    else:
        return None
    if batch > 1 and apart != outer * stride:
        return None
    transpose = "" if (inner == 1) != down else ".T"
    more = outer if batch > 1 else 0
    made = TmaOperand(block_of, matrix, shape, stride, block, first, inner != 1, transpose, more)
    told = Descriptor(0, matrix.offset, shape, (stride, 1), block, "bf16")
    return made if fits(told) else None
