"""Library calls that templates replace unmeasured.

In: a call of a program, what it computes, the device's tuning. Out: yes or no, and with which tile.
Invariant: on a measured device only calls that the template was faster than at every size measured
(`benchmarks/results/h200-gpu-check.md`), where the work outweighs the compile.

Those are, in half precision, attention of one query to many keys, with a bias, and by
FlashAttention 2 on newer devices than it was made for (cuDNN's stays), convolutions over images of
a few channels, and depthwise ones and grouped products with an epilogue, products of a few rows by
a matrix of some megabytes or by one that is widened or unpacked, and those whose rows are not of
whole pieces of 16 bytes where those of the operands begin with one (`passes/pad_products.py` pads
operands for that). No model gained what compiling other products costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flambeau_inductor.codegen.triton.dtypes import HALF
from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.templates.attention.match_attention import (
    FoundAttention,
    FoundBackward,
    splits_keys,
)
from flambeau_inductor.templates.attention.problem import Attention
from flambeau_inductor.templates.convolution import tiles_for
from flambeau_inductor.templates.gemm.grouped import tiles_for as tiles_of_groups
from flambeau_inductor.templates.gemm.kernel import tile_for
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.operands import operands_of
from flambeau_inductor.templates.gemm.problem import (
    Groups,
    Matrix,
    Product,
    Window,
    library_seconds,
    missing,
    template_seconds,
)
from flambeau_inductor.templates.gemm.tiles import GemmShape, GemmTile, candidates, fit
from flambeau_inductor.tuning import Tuning

FLASH = (9, 0)
"""The compute capability from which on FlashAttention 2, which is made for sm_80, is slower."""
BIASED = frozenset(
    {
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_efficient_attention_backward.default",
    }
)
"""Calls of the library's kernel for operands with a bias; ours ask for either."""
SLOWER = BIASED | {
    "flambeau_prims.attention.default",
    "flambeau_prims.attention_backward.default",
    "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_flash_attention_backward.default",
}
Found = MatchedProduct | FoundAttention | FoundBackward


def tile_of(found: MatchedProduct, tuning: Tuning) -> GemmTile | None:
    """With which tile a product is computed where nothing is measured; None: by the library."""
    product = found.product
    if product.dtype not in HALF:
        return None
    if product.stored is not None:
        return _widened(product, tuning)
    if product.packed is not None:
        return tile_for(product, tuning)
    if product.window is None:
        some = _small(product, tuning) or _few(product, tuning) or _unaligned(product, tuning)
        if product.groups is not None:
            some = _grouped(product, product.groups, tuning, fused=found.reader is not None)
        return next((t for t in some if not t.described or operands_of(product, t)), None)
    if product.window.depthwise:
        return None if found.reader is None else _depthwise(product, tuning)
    return None if product.window.whole_points else _few_channels(product, product.window, tuning)


def shape_of(product: Product) -> GemmShape:
    """What the model of tiles knows of a product."""
    batch, rows, columns, inner = product.sizes
    runs = product.window.runs if product.window is not None else 0
    return GemmShape(rows, columns, inner, batch, product.dtype.itemsize, runs)


def _grouped(product: Product, groups: Groups, tuning: Tuning, fused: bool) -> Sequence[GemmTile]:
    """With what follows, or of few rows: the library is as fast as the template for many."""
    few = groups.along == "rows" and product.sizes[1] <= tuning.group_rows * groups.count
    return tiles_of_groups(product, tuning.machine.described, tuning) if fused or few else ()


def _small(product: Product, tuning: Tuning) -> Sequence[GemmTile]:
    batch, *sides = product.sizes
    if batch < tuning.batch_products or max(sides) > tuning.batch_side:
        return ()
    described, shape = tuning.machine.described, shape_of(product)
    return candidates(shape, parts=False, described=described, tuning=tuning)


def _few(product: Product, tuning: Tuning) -> Sequence[GemmTile]:
    """A few vectors by a stored matrix: as long as reading it once, by the library or here, where
    what follows is in the same kernel and other products of the vectors in the same launch. Tiles
    are so narrow that each multiprocessor has one."""
    batch, rows, columns, inner = product.sizes
    least, most = tuning.few_row_bytes
    stored = least <= columns * inner * product.dtype.itemsize <= most
    if batch > 1 or not 1 < rows <= tuning.few_rows or not stored or product.b.strides[1] != 1:
        return ()
    tiles = [GemmTile(*row) for row in tuning.few_row_tiles]
    count = tuning.machine.multiprocessors
    wide = [tile for tile in tiles if -(-columns // tile.columns) >= count] or tiles[-1:]
    fitting = fit(wide[0], product.dtype.itemsize, tuning)
    return () if fitting is None or inner < 2 * fitting.depth else (fitting,)


def _widened(product: Product, tuning: Tuning) -> GemmTile | None:
    """A few vectors by a matrix that is widened: the library would write it to memory first."""
    _, _, columns, inner = product.sizes
    tiles = [GemmTile(*row) for row in tuning.widened_tiles]
    count = tuning.machine.multiprocessors
    wide = (tile for tile in tiles if -(-columns // tile.columns) >= count)
    tile = next(wide, tiles[-1])
    parts = 2 * count // -(-columns // tile.columns)
    parts = max(1, min(parts, inner // tuning.widened_part))
    return fit(replace(tile, parts=parts), product.dtype.itemsize, tuning)


def _unaligned(product: Product, tuning: Tuning) -> Sequence[GemmTile]:
    """The library is slow where rows are not of whole pieces, the template where they do not begin
    with one."""
    shape, described = shape_of(product), tuning.machine.described
    if not _is_odd(product) or not all(map(_begins_with_piece, (product.a, product.b))):
        return ()
    gain = library_seconds(shape, aligned=False, tuning=tuning) - template_seconds(shape, tuning)
    return candidates(shape, described=described, tuning=tuning) if gain > tuning.launch else ()


def _is_odd(product: Product) -> bool:
    _, rows, columns, inner = product.sizes
    of_left = rows if product.a.strides[2] != 1 else inner
    of_right = inner if product.b.strides[2] != 1 else columns
    return any(missing(size, product.dtype.itemsize) for size in (of_left, of_right, columns))


def _begins_with_piece(matrix: Matrix) -> bool:
    """Whether each row of an operand in half precision begins with a whole piece."""
    steps = (step for step in (*matrix.strides, matrix.offset) if step != 1)
    return 1 in matrix.strides and not any(missing(step, 2) for step in steps)


def _few_channels(product: Product, window: Window, tuning: Tuning) -> GemmTile | None:
    """Convolutions over images of a few channels: the library has no kernel for them that was made
    for these devices."""
    _, rows, columns, inner = product.sizes
    little = 2 * rows * columns * inner < tuning.convolution_operations
    if window.points == 1 or little or columns < tuning.convolution_columns:
        return None
    narrow = GemmTile(*tuning.narrow_tile)
    if columns <= narrow.columns:
        return fit(narrow, product.dtype.itemsize, tuning)
    return next(iter(candidates(shape_of(product), parts=False, tuning=tuning)), None)


def _depthwise(product: Product, tuning: Tuning) -> GemmTile | None:
    _, rows, columns, _ = product.sizes
    tile = tiles_for(product, tuning)[0]
    padded = -(-columns // tile.columns) * tile.columns
    fits = padded <= tuning.depthwise_padding * columns
    fits = fits and rows * columns >= tuning.depthwise_results
    return tile if fits else None


def known(program: Program, found: Found, tuning: Tuning) -> bool:
    """Whether a template is taken in the place of this call where nothing is measured."""
    if isinstance(found, MatchedProduct):
        return tile_of(found, tuning) is not None
    if isinstance(found, FoundAttention) and splits_keys(found.attention, tuning):
        return True
    return slower(program, found.call, found.attention, tuning) and worth(found.attention, tuning)


def worth(attention: Attention, tuning: Tuning) -> bool:
    """Whether there is enough to compute, of shapes that the template is fast for."""
    batch, heads, _, length, keys, width, out = attention.sizes
    operations = 2 * batch * heads * length * keys * (width + out) / (2 if attention.causal else 1)
    least, most = tuning.attention_widths
    return (
        attention.dtype in HALF
        and min(length, keys) >= tuning.attention_length
        and least <= min(width, out)
        and max(width, out) <= most
        and operations >= tuning.attention_operations
    )


def slower(program: Program, call: int, attention: Attention, tuning: Tuning) -> bool:
    """Whether this is a library call that the template is faster than on such devices."""
    step = program.steps[call]
    if not isinstance(step, Extern) or step.target not in SLOWER:
        return False
    biased = step.target in BIASED or attention.bias is not None
    return biased or tuning.machine.capability >= FLASH
