"""Which library calls a template is known to be faster than.

In: a call of a program and what it computes. Out: yes or no. Invariant: only calls that the
template was faster than at every size measured (`benchmarks/results/h200-gpu-check.md`), on devices
like the one it was measured on, and only where the work outweighs the compile.

Attention in half precision: the library's kernel for operands with a bias takes two to three times
as long as the template, its other one (FlashAttention 2) half as long again, forth and back;
cuDNN's is faster and stays. Convolutions over images of a few channels take the library two to
four times as long.
"""

from __future__ import annotations

import torch

from flambeau_inductor.ir.program import Extern, Program
from flambeau_inductor.templates.attention import Attention
from flambeau_inductor.templates.product import Product
from flambeau_inductor.templates.tiles import Tile, candidates

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


def tile_of(product: Product) -> Tile | None:
    """With which tile a product is computed where nothing is measured; None: by the library.

    Convolutions over images of a few channels: the library has no kernel for them that was made for
    these devices.
    """
    window = product.window
    if window is None or window.whole_points or window.points == 1:
        return None
    if product.dtype not in HALF:
        return None
    batch, rows, columns, inner = product.sizes
    if 2 * rows * columns * inner < LEAST_OF_FEW or columns < LEAST_COLUMNS:
        return None
    if columns <= NARROW.columns:
        return NARROW
    item = product.dtype.itemsize
    return candidates(rows, columns, inner, batch, item, parts=False, runs=window.runs)[0]


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
