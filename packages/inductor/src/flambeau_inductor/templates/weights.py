"""Weights of a convolution in the order in which its kernel reads them.

In: a product with a window whose weights are in another order, as a program's usually are. Out:
the same over a copy of the weights, and the loop that makes it. Invariant: the copy holds the
weights of a result side by side, point by point of the window and channel by channel.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from flambeau_inductor.indexing import Expr, Var, as_expr
from flambeau_inductor.ir.loops import Axis, Load, Loop, Store
from flambeau_inductor.ir.program import Buffer, Layout
from flambeau_inductor.schedule.axes import normalised
from flambeau_inductor.templates.product import Matrix, Product, Window


def reordered(product: Product, name: str) -> Product | None:
    """The product over a copy of the weights, `name`; None where they are read as they are.

    Those of images of few channels are small, and read element by element in any order.
    """
    window = product.window
    if window is None or not window.whole_points or window.taps == _dense(window):
        return None
    weights = Matrix(name, (0, 1, product.sizes[3]))
    return replace(product, b=weights, window=replace(window, taps=_dense(window)))


def copy_of(product: Product, name: str, device: torch.device) -> tuple[Buffer, Loop]:
    """The copy, and the loop that makes it of the weights of `product`."""
    window, results, inner = product.window, product.sizes[2], product.sizes[3]
    assert window is not None
    axes = tuple(
        Axis(f"x{n}", size) for n, size in enumerate((results, *window.kernel, window.channels))
    )
    channel, down, across = window.taps
    read: Expr = as_expr(product.b.offset)
    store: Expr = as_expr(0)
    dense = _dense(window)
    for axis, source, target in zip(
        axes,
        (product.b.strides[2], down, across, channel),
        (inner, dense[1], dense[2], dense[0]),
        strict=True,
    ):
        read = read + Var(axis.var) * source
        store = store + Var(axis.var) * target
    body = (Load(product.b.buffer, read, product.dtype), Store(name, store, 0))
    layout = Layout((results, inner), (inner, 1), product.dtype, device)
    return Buffer(name, layout), normalised(Loop(f"{name}_copy", axes, (), body))


def _dense(window: Window) -> tuple[int, int, int]:
    return 1, window.channels * window.kernel[1], window.channels
