"""Depthwise convolution template with epilogue.

In: a `Product` whose window is depthwise, its `ProductEpilogue`, a `GemmTile` of points and
channels. Out: a `TritonKernel`, without tensor units. Invariant: sums are float32 and rounded once;
what lies outside of an image is zero and its memory is not touched.
"""

from __future__ import annotations

from flambeau_inductor.templates.gemm.kernel import ProductWriter
from flambeau_inductor.templates.gemm.operands import images, masked
from flambeau_inductor.templates.gemm.problem import Product
from flambeau_inductor.templates.gemm.tiles import GemmTile
from flambeau_inductor.templates.gemm.tma import TmaOperand
from flambeau_inductor.tuning import Tuning
from flambeau_inductor.tuning.machine import MMA_DEPTH


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
