"""Convolutions: the library's, or matrix products where a window is one point.

In: images and weights. Out: `Call`s. Invariant: results have the layouts that the primitive's shape
rule promised.

A convolution of 1 x 1 over channels-last images is a product of a matrix with a row a point and one
of weights. The library's convolution brings the weights into an order of its own first, which takes
longer than the product where images are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from flambeau_inductor.indexing import as_expr
from flambeau_inductor.ir.tensors import (
    Node,
    Reduction,
    dim_ranges,
    dims_of,
    dot,
    flat_strides,
    unflatten,
)
from flambeau_inductor.lowering.context import Context, Meta
from flambeau_inductor.lowering.library import called
from flambeau_inductor.lowering.products import by_onednn, linear
from flambeau_inductor.lowering.registry import Lowered, rule

IMAGE = 4
"""Dimensions of a batch of images."""

Ints = Sequence[int]


@rule("convolution")
def convolution(ctx: Context, a: Node, w: Node, bias: Node | None, *geometry: Any) -> Lowered:
    meta = ctx.metas[0]
    assert meta is not None
    if _is_product(w, meta, geometry):
        points, weights = _points(ctx, a), _matrix(ctx, w)
        whole = ctx.view(weights, weights.shape[::-1], dims_of(2)[::-1])
        if by_onednn(ctx, points, whole):
            product = linear(ctx, points, whole, bias)
            return _image(ctx, product, meta)
    return called(ctx, "aten.convolution.default", a, w, bias, *geometry)


@rule("convolution_backward")
def convolution_backward(ctx: Context, grad: Node, a: Node, w: Node, *rest: Any) -> Lowered:
    biases, *geometry, wanted = rest
    of_image, of_weight, of_bias = (
        meta if asked else None for meta, asked in zip(ctx.metas, wanted, strict=True)
    )
    seen = of_image or (Meta(a.shape, ctx.graph.stride_of(a), a.dtype, a.device))
    if of_weight is not None and _is_product(w, seen, geometry):
        rows, points, weights = _points(ctx, grad), _points(ctx, a), _matrix(ctx, w)
        across = ctx.view(rows, rows.shape[::-1], dims_of(2)[::-1])
        if by_onednn(ctx, rows, weights) and by_onednn(ctx, across, points):
            image = None if of_image is None else _image(ctx, linear(ctx, rows, weights), of_image)
            moved = linear(ctx, across, points)
            weight = ctx.view(moved, w.shape, dims_of(2))
            bias = None
            if of_bias is not None:
                define = Reduction("sum", rows, (0,))
                bias = ctx.node(of_bias.shape, of_bias.dtype, of_bias.device, define)
            return image, weight, bias
    target = "aten.convolution_backward.default"
    return called(ctx, target, grad, a, w, biases, *geometry, wanted)


def _is_product(w: Node, image: Meta, geometry: Sequence[Any]) -> bool:
    """Whether every window is one point of a channels-last image, and every point has one."""
    stride, padding, _, transposed, _, groups = geometry
    if len(image.shape) != IMAGE or transposed or groups != 1 or prod(w.shape[2:]) != 1:
        return False
    if any(n != 1 for n in stride) or any(padding):
        return False
    batch, channels, high, wide = image.shape
    last = (high * wide * channels, 1, wide * channels, channels)
    sizes = (batch, channels, high, wide)
    strides = zip(sizes, image.stride, last, strict=True)
    return channels > 1 and all(n == 1 or found == step for n, found, step in strides)


def _points(ctx: Context, image: Node) -> Node:
    """The image as a matrix with a row a point."""
    batch, channels, high, wide = image.shape
    shape = (batch * high * wide, channels)
    d = dims_of(2)
    n, y, x = unflatten(d[0], (batch, high, wide), dim_ranges(shape))
    return ctx.view(image, shape, (n, d[1], y, x))


def _matrix(ctx: Context, w: Node) -> Node:
    d = dims_of(2)
    return ctx.view(w, w.shape[:2], (d[0], d[1], as_expr(0), as_expr(0)))


def _image(ctx: Context, points: Node, meta: Meta) -> Node:
    """A matrix with a row a point as the image of `meta`."""
    batch, _, high, wide = meta.shape
    n, channel, y, x = dims_of(IMAGE)
    flat = dot((n, y, x), flat_strides((batch, high, wide)))
    return ctx.view(points, meta.shape, (flat, channel))
