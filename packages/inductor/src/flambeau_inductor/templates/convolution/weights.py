"""Weight layout of convolution templates.

In: a product with a window whose weights are in another order, as a program's usually are. Out: the
same over a copy of the weights, and the loop that makes it. Invariant: the copy holds the weights
of a result side by side, point by point of the window and channel by channel; of a depthwise
convolution those of a point.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from flambeau_inductor.indexing import Expr, Var, as_expr
from flambeau_inductor.ir.loops import Axis, Load, Loop, Store
from flambeau_inductor.ir.program import Buffer, Layout
from flambeau_inductor.schedule.fuse.loop_order import normalised
from flambeau_inductor.templates.gemm.problem import Matrix, Product, Window


def reordered(product: Product, name: str) -> Product | None:
    """The product over a copy of the weights, `name`; None where they are read as they are.

    Those of images of few channels are small, and read element by element in any order.
    """
    window = product.window
    if window is None or not window.whole_points:
        return None
    taps, column = _wanted(window, product.sizes[3])
    if window.taps == taps and product.b.strides[2] == column:
        return None
    return replace(product, b=Matrix(name, (0, taps[0], column)), window=replace(window, taps=taps))


def copy_of(product: Product, name: str, device: torch.device) -> tuple[Buffer, Loop]:
    """The copy, and the loop that makes it of the weights of `product`."""
    window, results, inner = product.window, product.sizes[2], product.sizes[3]
    assert window is not None
    sizes = (results, *window.kernel, 1 if window.depthwise else window.channels)
    axes = tuple(Axis(f"x{n}", size) for n, size in enumerate(sizes))
    (to_channel, to_down, to_across), to_result = _wanted(window, inner)
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


def _wanted(window: Window, inner: int) -> tuple[tuple[int, int, int], int]:
    """Strides along channel, down and across, and from one result to the next."""
    if window.depthwise:  # channels side by side
        return (0, window.kernel[1] * window.channels, window.channels), 1
    return (1, window.channels * window.kernel[1], window.channels), inner
