"""TMA descriptors of a product's operands.

In: a `Product` and a `GemmTile`. Out: two `TmaOperand`s: descriptors of the matrices, and where in
them a tile of this program lies. Invariant: elements outside of a matrix are read as zeros or fall
into rows and columns that are not stored. A descriptor has two dimensions: batches are one tall
matrix, if they follow each other and no block of the inner dimension reaches into the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flambeau_inductor.codegen.triton.dtypes import HALF
from flambeau_inductor.runtime.gpu.tensor_descriptors import Descriptor, fits
from flambeau_inductor.templates.gemm.problem import Matrix, Product
from flambeau_inductor.templates.gemm.tiles import GemmTile


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
