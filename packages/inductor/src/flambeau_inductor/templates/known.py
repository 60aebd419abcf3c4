"""Which library calls a template is known to be faster than.

In: a call of a program and what it computes. Out: yes or no. Invariant: only calls that the
template was faster than at every size measured (`benchmarks/results/h200-gpu-check.md`), on devices
like the one it was measured on, and only where the work outweighs the compile.

Attention in half precision: the library's kernel for operands with a bias takes two to three times
as long as the template, its other one (FlashAttention 2) half as long again, forth and back;
cuDNN's is faster and stays. Convolutions over images of a few channels take the library two to
four times as long. Depthwise convolutions, and products that are not far longer than what follows
them, are faster with that in the same kernel, which is then not compiled apart.
"""

from __future__ import annotations

import torch

from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.templates.attention import Attention
from flambeau_inductor.templates.depthwise import tiles_for
from flambeau_inductor.templates.described import operands_of
from flambeau_inductor.templates.product import Product, Window
from flambeau_inductor.templates.products import Found
from flambeau_inductor.templates.tiles import MEMORY_BYTES, Tile, candidates, seconds

SLOWER = frozenset(
    {
        "flambeau_prims.attention.default",
        "flambeau_prims.attention_backward.default",
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_flash_attention_backward.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_efficient_attention_backward.default",
    }
)
CAPABILITY = (9, 0)
"""Of the devices that this was measured on."""
HALF = frozenset({torch.bfloat16, torch.float16})
LEAST_LENGTH = 256
LEAST_OPERATIONS = 1e9
WIDTHS = (32, 128)
LEAST_OF_FEW = 5e8
LEAST_COLUMNS = 64
"""Operations and results of convolutions over images of a few channels."""
NARROW = Tile(128, 64, 64, 4, 4)
"""Of those with the fewest results: it was measured to be better than the model's."""


LEAST_DEPTHWISE = 1 << 20
"""Results of a depthwise convolution."""
MOST_PADDING = 1.125
"""Channels that its blocks span, by those that there are."""
LAUNCH = 2e-6
"""Seconds from one kernel's end to the next one's full speed."""
LEAST_GAIN = 0.1
"""What a product has to be faster by with what follows in the same kernel, by the model."""


def tile_of(found: Found) -> Tile | None:
    """With which tile a product is computed where nothing is measured; None: by the library."""
    product = found.product
    if product.dtype not in HALF or product.groups is not None:
        return None
    if product.window is None:
        return None if found.reader is None else _fused(product)
    if product.window.depthwise:
        return None if found.reader is None else _depthwise(product)
    return None if product.window.whole_points else _few_channels(product, product.window)


def _few_channels(product: Product, window: Window) -> Tile | None:
    """Convolutions over images of a few channels: the library has no kernel for them that was made
    for these devices."""
    batch, rows, columns, inner = product.sizes
    if window.points == 1 or 2 * rows * columns * inner < LEAST_OF_FEW or columns < LEAST_COLUMNS:
        return None
    if columns <= NARROW.columns:
        return NARROW
    item = product.dtype.itemsize
    return candidates(rows, columns, inner, batch, item, parts=False, runs=window.runs)[0]


def _depthwise(product: Product) -> Tile | None:
    _, rows, columns, _ = product.sizes
    tile = tiles_for(product)[0]
    padded = -(-columns // tile.columns) * tile.columns
    fits = padded <= MOST_PADDING * columns and rows * columns >= LEAST_DEPTHWISE
    return tile if fits else None


def _fused(product: Product) -> Tile | None:
    """The product is as long as the library's, which has no more than a few percent on it: what is
    left out is a launch, and writing and reading the product; half of that, for what follows is
    not computed while the tensor units multiply."""
    batch, rows, columns, inner = product.sizes
    item = product.dtype.itemsize
    some = candidates(rows, columns, inner, batch, item, parts=False, described=True)
    tile = next((t for t in some if not t.described or operands_of(product, t)), None)
    if tile is None or (rows >= LEAST_COLUMNS and not tile.described):
        return None
    saved = LAUNCH + batch * rows * columns * item / MEMORY_BYTES
    taken = seconds(tile, rows, columns, inner, batch, item)
    return tile if saved >= LEAST_GAIN * taken else None


def better(program: Program, call: int, attention: Attention) -> bool:
    """Whether the template is taken in the place of this call where nothing is measured."""
    return slower(program, call) and worth(attention)


def worth(attention: Attention) -> bool:
    """Whether the template is known to be faster for such operands, and by enough."""
    batch, heads, _, length, keys, width, out = attention.sizes
    operations = 2 * batch * heads * length * keys * (width + out) / (2 if attention.causal else 1)
    least, most = WIDTHS
    return (
        attention.dtype in HALF
        and min(length, keys) >= LEAST_LENGTH
        and least <= min(width, out)
        and max(width, out) <= most
        and operations >= LEAST_OPERATIONS
    )


def slower(program: Program, call: int) -> bool:
    """Whether this is a library call that the template was faster than at every size measured."""
    step = program.steps[call]
    return isinstance(step, Extern) and step.target in SLOWER
