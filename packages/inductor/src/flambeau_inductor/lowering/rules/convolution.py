"""Lowering of convolutions: library calls, or products for pointwise windows.

In: images and weights. Out: `LibraryCall`s. Invariant: results have the layouts that the
primitive's shape rule promised. A convolution of 1 x 1 over channels-last images is a product of
matrices, for which no weight is reordered; where torch would multiply the matrix of all windows
(single small images, one thread) oneDNN's convolution is taken if there is enough to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from flambeau_inductor._torch_compat import convolved_by_onednn, onednn_convolution
from flambeau_inductor.indexing import as_expr, hint, is_open, static_sizes
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.ir.tensors import (
    Node,
    Reduction,
    Shape,
    dim_ranges,
    dims_of,
    dot,
    flat_strides,
    unflatten,
)
from flambeau_inductor.lowering.context import Context
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.library import called
from flambeau_inductor.lowering.rules.matmul import PART, by_onednn, multiplied
from flambeau_inductor.tuning import host_tuning

IMAGE = 4
"""Dimensions of a batch of images."""

ONEDNN = "mkldnn._convolution_pointwise.default"

Ints = Sequence[int]


@rule("convolution")
def convolution(ctx: Context, a: Node, w: Node, bias: Node | None, *geometry: Any) -> Lowered:
    meta = ctx.meta
    if _is_product(a, w, meta, geometry):
        weights = _matrix(ctx, w)
        whole = ctx.view(weights, weights.shape[::-1], dims_of(2)[::-1])
        points = _points(ctx, a, meta.shape[2:], geometry[0])
        return _image(ctx, multiplied(ctx, points, whole, bias), meta)
    if _by_onednn(ctx, a, w, bias, meta, geometry):
        stride, padding, dilation, _, _, groups = geometry
        how = (padding, stride, dilation, groups, *ctx.epilogue)
        return called(ctx, ONEDNN, a, w, bias, *how)
    return called(ctx, "aten.convolution.default", a, w, bias, *geometry)


@rule("convolution_backward")
def convolution_backward(ctx: Context, grad: Node, a: Node, w: Node, *rest: Any) -> Lowered:
    biases, *geometry, wanted = rest
    of_image, of_weight, of_bias = (
        meta if asked else None for meta, asked in zip(ctx.metas, wanted, strict=True)
    )
    seen = of_image or ctx.graph.layout(a)
    once = all(n == 1 for n in geometry[0])
    if of_weight is not None and once and _is_product(grad, w, seen, geometry):
        rows, points, weights = _points(ctx, grad), _points(ctx, a), _matrix(ctx, w)
        across = ctx.view(rows, rows.shape[::-1], dims_of(2)[::-1])
        fast = by_onednn(ctx, rows, weights) and by_onednn(ctx, across, points)
        if (
            fast
            or hint(rows.shape[0] * prod(weights.shape)) <= host_tuning().gradient_multiplications
        ):
            image = None
            if of_image is not None:
                image = _image(ctx, multiplied(ctx, rows, weights), of_image)
            moved = multiplied(ctx, across, points)
            weight = ctx.view(moved, w.shape, dims_of(2))
            bias = None
            if of_bias is not None:
                bias = ctx.result(of_bias, Reduction("sum", rows, (0,)))
            return image, weight, bias
    target = "aten.convolution_backward.default"
    return called(ctx, target, grad, a, w, biases, *geometry, wanted)


def _by_onednn(
    ctx: Context, a: Node, w: Node, bias: Node | None, result: Layout, geometry: Sequence[Any]
) -> bool:
    """Whether oneDNN is faster than what torch would take, or can apply the epilogue."""
    stride, padding, dilation, transposed, _, groups = geometry
    known = not is_open((*a.shape, *w.shape, *result.shape))
    if a.device.type != "cpu" or not known or len(a.shape) != IMAGE or transposed:
        return False
    if a.dtype != torch.float32 or w.dtype != torch.float32 or onednn_convolution() is None:
        return False
    sooner = _sooner_by_onednn(ctx, w, result)
    if not sooner and ctx.after is None:
        return False
    row = None if bias is None else _empty(ctx, bias).contiguous()
    if convolved_by_onednn(_empty(ctx, a), _empty(ctx, w), row, stride, padding, dilation, groups):
        return ctx.after is not None
    return sooner


def _empty(ctx: Context, node: Node) -> torch.Tensor:
    shape, stride, _ = ctx.graph.layout(node).static()
    return torch.empty_strided(shape, stride, dtype=node.dtype)


def _sooner_by_onednn(ctx: Context, w: Node, result: Layout) -> bool:
    """Whether oneDNN computes this convolution faster than a product of windows."""
    columns, terms = hint(result.shape[1]), hint(prod(w.shape[1:]))
    points = hint(prod(result.shape)) // max(columns, 1)
    single = prod(w.shape[2:]) == 1  # its matrix of windows is the image
    tuning = host_tuning()
    least = tuning.point_multiplications if single else tuning.window_multiplications
    if points < tuning.window_points or points * columns * terms < least or terms > PART:
        return False
    return not single or ctx.choices.onednn_products((points, terms, columns))


def _is_product(a: Node, w: Node, image: Layout, geometry: Sequence[Any]) -> bool:
    """Whether every window is one point of a channels-last image. `image`: the larger of them."""
    _, padding, _, transposed, _, groups = geometry
    if len(image.shape) != IMAGE or transposed or groups != 1 or prod(w.shape[2:]) != 1:
        return False
    sizes = static_sizes(image.shape)
    if sizes is None or is_open((*image.stride, *a.shape, *w.shape)) or not prod(sizes):
        return False
    if a.device.type != "cpu" or a.dtype != torch.float32 or w.dtype != torch.float32:
        return False
    if any(padding):
        return False
    _, channels, high, wide = sizes
    last = (high * wide * channels, 1, wide * channels, channels)
    strides = zip(sizes, image.stride, last, strict=True)
    return channels > 1 and all(n == 1 or found == step for n, found, step in strides)


def _points(ctx: Context, image: Node, size: Shape | None = None, stride: Ints = (1, 1)) -> Node:
    """The image as a matrix with a row a point: `size` of them, at these steps."""
    batch, channels = image.shape[:2]
    high, wide = image.shape[2:] if size is None else size
    shape = (batch * high * wide, channels)
    d = dims_of(2)
    n, y, x = unflatten(d[0], (batch, high, wide), dim_ranges(shape))
    return ctx.view(image, shape, (n, d[1], y * stride[0], x * stride[1]))


def _matrix(ctx: Context, w: Node) -> Node:
    d = dims_of(2)
    return ctx.view(w, w.shape[:2], (d[0], d[1], as_expr(0), as_expr(0)))


def _image(ctx: Context, points: Node, meta: Layout) -> Node:
    batch, _, high, wide = meta.shape
    n, channel, y, x = dims_of(IMAGE)
    flat = dot((n, y, x), flat_strides((batch, high, wide)))
    return ctx.view(points, meta.shape, (flat, channel))
