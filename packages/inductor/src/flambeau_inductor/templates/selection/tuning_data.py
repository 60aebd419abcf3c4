"""Which library calls a template is known to be faster than.

In: a call of a program and what it computes. Out: yes or no. Invariant: only calls that the
template was faster than at every size measured (`benchmarks/results/h200-gpu-check.md`), on devices
like the one it was measured on, and only where the work outweighs the compile.

Attention in half precision: the library's kernel for operands with a bias takes two to three times
as long as the template, its other one (FlashAttention 2) half as long again, forth and back;
cuDNN's is faster and stays. Convolutions over images of a few channels take the library two to
four times as long; depthwise ones, and grouped products, longer than the template with what follows
in the same kernel. Other products stay: with what follows fused they are faster one by one, but no
model gained from it what compiling them costs (175 us of kernels against 178, 775 against 777).
"""

from __future__ import annotations

import torch

from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.templates.attention.problem import Attention
from flambeau_inductor.templates.convolution.depthwise import tiles_for
from flambeau_inductor.templates.gemm.grouped_match import tiles_for as tiles_of_groups
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.problem import Groups, Product, Window
from flambeau_inductor.templates.gemm.tiles import GemmTile, candidates
from flambeau_inductor.templates.gemm.tma import operands_of

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
NARROW = GemmTile(128, 64, 64, 4, 4)
"""Of those with the fewest results: it was measured to be better than the model's."""
LEAST_DEPTHWISE = 1 << 20
"""Results of a depthwise convolution."""
MOST_PADDING = 1.125
"""Channels that its blocks span, by those that there are."""
FEW_ROWS = 64
"""Of a group on average, for which the library's tiles are far too tall."""
SMALL_SIDE, LEAST_BATCH = 64, 512
"""Of batches of small products, of which the library has one after the other in a program."""


def tile_of(found: MatchedProduct) -> GemmTile | None:
    """With which tile a product is computed where nothing is measured; None: by the library."""
    product = found.product
    if product.dtype not in HALF:
        return None
    if product.groups is not None:
        return _grouped(product, product.groups, fused=found.reader is not None)
    if product.window is None:
        return _small(product)
    if product.window.depthwise:
        return None if found.reader is None else _depthwise(product)
    return None if product.window.whole_points else _few_channels(product, product.window)


def _grouped(product: Product, groups: Groups, fused: bool) -> GemmTile | None:
    """With what follows, or of few rows: the library is as fast as the template for many."""
    few = groups.along == "rows" and product.sizes[1] <= FEW_ROWS * groups.count
    if not fused and not few:
        return None
    some = tiles_of_groups(product, described=True)
    return next((t for t in some if not t.described or operands_of(product, t)), None)


def _small(product: Product) -> GemmTile | None:
    batch, rows, columns, inner = product.sizes
    if batch < LEAST_BATCH or max(rows, columns, inner) > SMALL_SIDE:
        return None
    item = product.dtype.itemsize
    some = candidates(rows, columns, inner, batch, item, parts=False, described=True)
    return next((t for t in some if not t.described or operands_of(product, t)), None)


def _few_channels(product: Product, window: Window) -> GemmTile | None:
    """Convolutions over images of a few channels: the library has no kernel for them that was made
    for these devices."""
    batch, rows, columns, inner = product.sizes
    if window.points == 1 or 2 * rows * columns * inner < LEAST_OF_FEW or columns < LEAST_COLUMNS:
        return None
    if columns <= NARROW.columns:
        return NARROW
    item = product.dtype.itemsize
    return candidates(rows, columns, inner, batch, item, parts=False, runs=window.runs)[0]


def _depthwise(product: Product) -> GemmTile | None:
    _, rows, columns, _ = product.sizes
    tile = tiles_for(product)[0]
    padded = -(-columns // tile.columns) * tile.columns
    fits = padded <= MOST_PADDING * columns and rows * columns >= LEAST_DEPTHWISE
    return tile if fits else None


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
