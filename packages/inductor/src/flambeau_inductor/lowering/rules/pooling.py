"""Lowering of pooling over small windows, unrolled, and of convolutions.

In: an image `[N, C, H, W]` or `[C, H, W]` and the windows' geometry. Out: pointwise nodes over
guarded views, which fuse with their operands and readers. Invariant: a value is the library's: NaN
wins, padding is never an element, the position is that of the largest element found first. Windows
of more than `MOST_ELEMENTS`, and dilated ones, stay the library's.

Lowering of convolutions: library calls, or products for pointwise windows. In: images and weights.
Out: `LibraryCall`s. Invariant: results have the layouts that the primitive's shape rule promised. A
convolution of 1 x 1 over channels-last images is a product of matrices, for which no weight is
reordered; where torch would multiply the matrix of all windows (single small images, one thread)
oneDNN's convolution is taken if there is enough to compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import torch

from flambeau_inductor._torch_compat import convolved_by_onednn, onednn_convolution
from flambeau_inductor.indexing import Expr, as_expr, decide_equal, hint, is_open, static_sizes
from flambeau_inductor.ir.program import Layout
from flambeau_inductor.ir.tensors import (
    Choose,
    IndexCondition,
    Node,
    Position,
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
from flambeau_inductor.lowering.rules.shape import shifted
from flambeau_inductor.tuning import host_tuning

MOST_ELEMENTS = 25
"""Largest window that is written out."""

SPATIAL = 2

Ints = Sequence[int]


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one pooling: of an image of `size`, there are `count`."""

    size: Shape
    count: Shape
    kernel: Ints
    stride: Ints
    padding: Ints

    def offsets(self) -> list[tuple[int, int]]:
        """The elements of a window in the order in which the library looks at them."""
        return [(i, j) for i in range(self.kernel[0]) for j in range(self.kernel[1])]

    def places(self, first: int, offset: tuple[int, int]) -> tuple[Expr, Expr]:
        """Where in the image element `offset` of a window is; its dimensions start at `first`."""
        d = dims_of(first + SPATIAL)[first:]
        high, wide = (d[k] * self.stride[k] + (offset[k] - self.padding[k]) for k in range(SPATIAL))
        return high, wide

    def inside(
        self, places: tuple[Expr, Expr], margin: Ints = (0, 0)
    ) -> tuple[IndexCondition, ...]:
        """Conditions under which `places` are in the image with a margin around it."""
        return tuple(
            IndexCondition(op, place, bound)
            for place, size, more in zip(places, self.size, margin, strict=True)
            for op, bound in (("ge", -more), ("lt", size + more))
        )


def windows_of(
    a: Node, count: Shape, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints = (1, 1)
) -> Windows | None:
    """The geometry, if the windows are to be written out."""
    small = len(kernel) == SPATIAL and prod(kernel) <= MOST_ELEMENTS
    if not small or any(step != 1 for step in dilation) or decide_equal(a.numel, 0):
        return None
    spatial = len(a.shape) - SPATIAL
    return Windows(a.shape[spatial:], count[spatial:], kernel, stride, padding)


def element(
    ctx: Context, a: Node, windows: Windows, shape: Shape, offset: tuple[int, int], other: Node
) -> Node:
    """Element `offset` of every window; `other` where that is padding."""
    return where_inside(ctx, a, shape, windows.places(len(shape) - SPATIAL, offset), other)


@rule("max_pool2d_with_indices")
def max_pool(ctx: Context, a: Node, *geometry: Any) -> Lowered:
    shape = ctx.meta.shape
    windows = windows_of(a, shape, *geometry[:4])
    if windows is None:
        return called(ctx, "aten.max_pool2d_with_indices.default", a, *geometry)
    first = len(shape) - SPATIAL
    least = ctx.literal(_least(a.dtype), shape, a.dtype, a.device)
    best = found = None
    for offset in windows.offsets():
        value = element(ctx, a, windows, shape, offset, least)
        high, wide = windows.places(first, offset)
        flat = high * windows.size[1] + wide
        # Where nothing is larger than minus infinity, the first element inside is the one.
        place = ctx.node(shape, torch.int64, a.device, Position(flat))
        if best is None or found is None:
            best, found = value, place
            continue
        larger = ctx.point("gt", (value, best), torch.bool)
        if a.dtype.is_floating_point:
            nan = ctx.point("isnan", (value,), torch.bool)
            larger = ctx.point("logical_or", (larger, nan), torch.bool)
        if (outside := _outside(ctx, windows, found, shape, offset)) is not None:
            larger = ctx.point("logical_or", (larger, outside), torch.bool)
        found = ctx.point("where", (larger, place, found), torch.int64)
        best = ctx.point("maximum", (best, value))
    assert best is not None and found is not None
    return best, found


def _outside(
    ctx: Context, windows: Windows, found: Node, shape: Shape, offset: tuple[int, int]
) -> Node | None:
    """Whether what was found before `offset` is padding and `offset` is not; None: never."""
    if not any(windows.padding):
        return None
    yes = ctx.literal(True, shape, torch.bool, found.device)
    no = ctx.literal(False, shape, torch.bool, found.device)
    first = len(shape) - SPATIAL
    here = windows.inside(windows.places(first, offset))
    before = [o for o in windows.offsets() if o < offset]
    branches = [(windows.inside(windows.places(first, o)), no) for o in before]
    return ctx.node(shape, torch.bool, found.device, Choose((*branches, (here, yes)), no))


def _least(dtype: torch.dtype) -> float | int:
    return -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def where_inside(ctx: Context, x: Node, shape: Shape, places: Sequence[Expr], other: Node) -> Node:
    """An image's elements at `places` of its last dimensions, `other` where they are outside."""
    first = len(shape) - SPATIAL
    inside = tuple(
        IndexCondition(op, place, bound)
        for place, size in zip(places, x.shape[first:], strict=True)
        for op, bound in (("ge", 0), ("lt", size))
    )
    found = shifted(ctx, x, shape, (*dims_of(first), *places))
    return ctx.node(shape, x.dtype, x.device, Choose(((inside, found),), other))


@rule("max_pool2d_with_indices_backward")
def max_pool_backward(
    ctx: Context, grad: Node, a: Node, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints,
    ceil_mode: bool, indices: Node,
) -> Lowered:  # fmt: skip
    """On a GPU: the sum, in the windows' order, of the derivatives of those windows that an element
    of the image is the largest of, gathered. A CPU's library adds to memory, in a fifteenth of the
    time where rows are contiguous: divided places do not vectorise."""
    shape, first = a.shape, len(a.shape) - SPATIAL
    covering = [-(-k // step) for k, step in zip(kernel, stride, strict=True)]
    dilated = any(step != 1 for step in dilation)
    large = dilated or prod(covering) > MOST_ELEMENTS
    if large or a.device.type == "cpu" or decide_equal(a.numel, 0):
        name = "aten.max_pool2d_with_indices_backward.default"
        return called(ctx, name, grad, a, kernel, stride, padding, dilation, ceil_mode, indices)
    wide = torch.float32 if grad.dtype.itemsize < 4 else grad.dtype
    high, across = dims_of(first + SPATIAL)[first:]
    here = ctx.node(shape, torch.int64, a.device, Position(high * shape[-1] + across))
    none = ctx.literal(-1, shape, torch.int64, a.device)
    nothing = ctx.literal(0.0, shape, grad.dtype, grad.device)
    total = ctx.literal(0.0, shape, wide, grad.device)
    last = [(d + pad) // step for d, pad, step in zip((high, across), padding, stride)]
    for i, j in product(*(range(count - 1, -1, -1) for count in covering)):
        window = last[0] - i, last[1] - j
        index = where_inside(ctx, indices, shape, window, none)
        value = where_inside(ctx, grad, shape, window, nothing)
        largest = ctx.point("eq", (index, here), torch.bool)
        own = ctx.point("where", (largest, value, nothing), grad.dtype)
        total = ctx.point("add", (total, ctx.cast(own, wide)))
    return ctx.cast(total, grad.dtype)


@rule("avg_pool2d")
def avg_pool(ctx: Context, a: Node, *geometry: Any) -> Lowered:
    shape = ctx.meta.shape
    windows = windows_of(a, shape, *geometry[:3])
    if windows is None or not a.dtype.is_floating_point:
        return called(ctx, "aten.avg_pool2d.default", a, *geometry)
    _, count_include_pad, divisor = geometry[3:]
    wide = a.dtype if a.dtype.itemsize >= 4 else torch.float32
    zero = ctx.literal(0.0, shape, a.dtype, a.device)
    values = (ctx.cast(element(ctx, a, windows, shape, o, zero), wide) for o in windows.offsets())
    total = reduce(lambda x, y: ctx.point("add", (x, y)), values, ctx.cast(zero, wide))
    if divisor is not None:
        count = ctx.like(float(divisor), total)
    else:
        count = _elements(ctx, windows, total, count_include_pad)
    return ctx.cast(ctx.point("div", (total, count)), a.dtype)


def _elements(ctx: Context, windows: Windows, like: Node, with_padding: bool) -> Node:
    first = len(like.shape) - SPATIAL
    margin = windows.padding if with_padding else (0, 0)
    factors: list[Node] = []
    for k in range(SPATIAL):
        count = None
        for i in range(windows.kernel[k]):
            offset = (i, 0) if k == 0 else (0, i)
            guards = windows.inside(windows.places(first, offset), margin)[2 * k : 2 * k + 2]
            one, none = ctx.like(1.0, like), ctx.like(0.0, like)
            part = ctx.node(like.shape, like.dtype, like.device, Choose(((guards, one),), none))
            count = part if count is None else ctx.point("add", (count, part))
        assert count is not None
        factors.append(count)
    return ctx.point("mul", tuple(factors))


IMAGE = 4
"""Dimensions of a batch of images."""

ONEDNN = "mkldnn._convolution_pointwise.default"


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
