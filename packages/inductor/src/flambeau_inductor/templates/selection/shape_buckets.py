"""Shape buckets: sizes that share one measurement.

In: what was found in a program. Out: a text that is the same for all of a class. Invariant: all
that decides which way is the fastest, but for sizes, is in the text as it is: dtype, order of
operands in memory, whether the accelerator can read them, what follows. Sizes are rounded up to one
of four steps an octave; small ones, of which each fills tiles differently, are not.
"""

from __future__ import annotations

from flambeau_inductor.__about__ import __version__
from flambeau_inductor.ir.loops import Load, Store
from flambeau_inductor.templates.attention.problem import Attention
from flambeau_inductor.templates.gemm.match_gemm import MatchedProduct
from flambeau_inductor.templates.gemm.problem import Matrix
from flambeau_inductor.tuning.machine import TMA_ALIGNMENT

LEAST = 64
"""Sizes below are classes of their own."""
STEPS = 4
"""Classes between a power of two and the next."""


def rounded(size: int) -> int:
    """The largest size of the class."""
    if size < LEAST:
        return size
    step = (1 << (size - 1).bit_length()) // 2 // STEPS
    return -(-size // step) * step


def product_class(found: MatchedProduct, device: str) -> str:
    """Of a product or a convolution, with what follows it."""
    product = found.product
    body = found.epilogue.body
    loads = {i.buffer for i in body if isinstance(i, Load) and i.buffer != found.epilogue.result}
    stores = {i.buffer for i in body if isinstance(i, Store)}
    window = product.window
    shape = "x".join(str(rounded(n)) for n in product.sizes)
    return _text(
        "product",
        device,
        shape,
        product.dtype,
        f"tf32 {product.tf32}",
        [_order(each, product.dtype.itemsize) for each in (product.a, product.b)],
        f"added {product.added is not None}",
        f"fused {found.reader is not None} {len(loads)} {len(stores)} {len(body)}",
        window and (window.channels, window.kernel, window.step, window.dilation, window.taps[0]),
        product.groups and (product.groups.along, product.groups.count),
    )


def attention_class(attention: Attention, target: str, device: str) -> str:
    """Of attention, or of its gradients, that the library computes by `target`."""
    batch, heads, kept, length, keys, width, out = attention.sizes
    operands = (attention.q, attention.k, attention.v)
    return _text(
        target,
        device,
        (rounded(batch * heads), kept == heads, rounded(length), rounded(keys), width, out),
        (length % LEAST == 0, keys % LEAST == 0),
        attention.dtype,
        f"causal {attention.causal}, bias {attention.bias is not None}",
        f"sums {attention.sums is not None}",
        [
            all(s * attention.dtype.itemsize % TMA_ALIGNMENT == 0 for s in o.strides[:3])
            for o in operands
        ],
    )


def _order(matrix: Matrix, itemsize: int) -> str:
    """Which of rows and columns lie side by side, and whether the others are aligned."""
    _, rows, columns = matrix.strides
    along = "columns" if columns == 1 else "rows" if rows == 1 else "neither"
    steps = [s for s in (rows, columns) if s != 1]
    aligned = all(s * itemsize % TMA_ALIGNMENT == 0 for s in (*steps, matrix.offset))
    return f"{along} {aligned}"


def _text(*parts: object) -> str:
    return " ".join(["class", __version__, *map(str, parts)])
