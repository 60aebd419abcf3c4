"""Leaves of pooling and its backward.

In: images of shape [N, C, ...] or [C, ...]. Out: pooled images; a position counts within the
spatial dimensions of one image, row-major.
Invariant: geometry lists have one entry per spatial dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import flops_per_input, flops_per_output, require
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.pointwise import FLOATS, INTS
from flambeau_prims.shape_rules import (
    Size,
    Sizes,
    TensorMeta,
    channels_last_strides,
    suggests_channels_last,
)

aten = torch.ops.aten
Ints = Sequence[int]

_IMAGE = "leading dimensions of the operand, then the windows along each spatial one"
_OPERAND = "that of the operand"
_MAX_EDGES = {
    "nan": "wins over any number; its first position is given",
    "ties": "the first position in row-major order",
    "infinity": "padding counts as minus infinity",
}
_NO_DERIVATIVE = "by the matching backward primitive"
_SUMMED = {"duplicates": "windows that share a largest element: their gradients add up"}
_leaf = partial(
    leaf,
    family="pooling",
    reason="windows of a third dimension or of uneven sizes: the library's kernels hold the ties",
    source="torch.nn documentation",
)
_fractional = partial(_leaf, source="Graham: Fractional max-pooling, 2014")


def pooled_size(
    size: Size, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> Size:
    """Number of windows along one dimension; with `ceil_mode` the last may hang over the end,
    but must start inside the image or its left padding."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (out - 1) * stride >= size + padding:
        out = out - 1
    return out


def _require_image(a: TensorMeta, spatial: int, kind: Any = FLOATS | INTS) -> None:
    require(a.ndim in (spatial + 1, spatial + 2), f"{a.ndim}-d is not an image")
    require(a.dtype in kind, f"not defined on {a.dtype}")
    require(all(n != 0 for n in a.shape[-spatial - 1 :]), f"an image of shape {a.shape}")


def _pooled(spatial: int, a: TensorMeta, lists: Sequence[Ints], ceil_mode: bool) -> TensorMeta:
    """Metadata of windows whose `lists` are kernel, stride, padding and dilation."""
    _require_image(a, spatial)
    require(all(len(x) == spatial for x in lists), f"geometry must have {spatial} numbers each")
    kernel, stride, padding, dilation = lists
    positive = all(n > 0 for x in (kernel, stride, dilation) for n in x)
    require(positive, "kernel, stride and dilation must be positive")
    for k, pad in zip(kernel, padding, strict=True):
        require(0 <= pad <= k // 2, f"padding {pad} for a window of {k}; half is the most")
    lead, image = a.shape[:-spatial], a.shape[-spatial:]
    each = zip(image, kernel, stride, padding, dilation, strict=True)
    sizes = [pooled_size(*numbers, ceil_mode) for numbers in each]
    require(all(size > 0 for size in sizes), f"the window does not fit into {a.shape}")
    return in_format_of(a, (*lead, *sizes))


def _in_library_format(a: TensorMeta, shape: Sizes, spatial: int) -> TensorMeta:
    """Metadata of windows that the library writes: row-major of volumes, whatever `a` is like."""
    return in_format_of(a, shape) if spatial == 2 else a.like(shape)


def in_format_of(a: TensorMeta, shape: Sizes) -> TensorMeta:
    """Metadata of `shape`, channels-last if `a` is a batch of images that suggests it."""
    if len(shape) in (4, 5) and len(shape) == a.ndim and suggests_channels_last(a):
        return a.like(shape, channels_last_strides(shape))
    return a.like(shape)


def _with_positions(values: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    return values, values.like(dtype=torch.int64)


def _in_single(op: Callable[..., Any]) -> Callable[..., Any]:
    """`op`, in float32 for half precision on CPU, where some of the library has no kernel."""

    def call(a: torch.Tensor, *rest: Any) -> Any:
        if a.device.type != "cpu" or a.dtype not in (torch.float16, torch.bfloat16):
            return op(a, *rest)
        wide = [x.float() if isinstance(x, torch.Tensor) else x for x in rest]
        return op(a.float(), *wide).to(a.dtype)

    return call


def _require_gradient(
    grad: TensorMeta, a: TensorMeta, pooled: TensorMeta, *positions: TensorMeta
) -> None:
    require(grad.dtype == a.dtype, f"gradient of {grad.dtype} for {a.dtype}")
    require(a.dtype in FLOATS, f"not defined on {a.dtype}")
    require(grad.shape == pooled.shape, f"gradient {grad.shape}, windows {pooled.shape}")
    for at in positions:
        require(at.dtype == torch.int64, f"positions are {at.dtype}, not int64")
        require(at.shape == grad.shape, f"positions {at.shape} for {grad.shape}")


def _define_max(n: int) -> None:
    name, lists = f"max_pool{n}d_with_indices", "int[] kernel, int[] stride, int[] padding"

    @_leaf(
        f"{name}(Tensor a, {lists}, int[] dilation, bool ceil_mode) -> (Tensor, Tensor)",
        getattr(aten, name).default,
        flops=flops_per_output(3**n),
        shape=f"both: {_IMAGE}; channels-last if the operand is",
        edge_cases=_MAX_EDGES,
        differentiable=_NO_DERIVATIVE,
    )
    def forward(a: TensorMeta, *geometry: Any) -> tuple[TensorMeta, TensorMeta]:
        """The largest of each window, and its position (int64) within the image."""
        return _with_positions(_pooled(n, a, geometry[:-1], geometry[-1]))

    @_leaf(
        f"{name}_backward(Tensor grad, Tensor a, {lists}, int[] dilation, bool ceil_mode,"
        " Tensor indices) -> Tensor",
        getattr(aten, f"{name}_backward").default,
        flops=flops_per_input(1),
        shape=f"{_OPERAND} `a`; channels-last if it is",
        edge_cases=_SUMMED,
    )
    def backward(grad: TensorMeta, a: TensorMeta, *rest: Any) -> TensorMeta:
        """Each gradient added at the position its window's largest element came from."""
        *lists, ceil_mode, indices = rest
        _require_gradient(grad, a, _pooled(n, a, lists, ceil_mode), indices)
        return in_format_of(a, a.shape)


def _define_avg(n: int) -> None:
    name, last = f"avg_pool{n}d", "; channels-last if {} is" if n == 2 else ""
    geometry = (
        "int[] kernel, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad,"
        " int? divisor"
    )
    edges = {
        "note": "the count is of the window inside the padded image, or inside the image if"
        " `count_include_pad` is false"
    }

    @_leaf(
        f"{name}(Tensor a, {geometry}) -> Tensor",
        _in_single(getattr(aten, name).default),
        flops=flops_per_output(3**n),
        shape=_IMAGE + last.format("the operand"),
        edge_cases=edges,
        differentiable=_NO_DERIVATIVE,
    )
    def forward(a: TensorMeta, *geometry: Any) -> TensorMeta:
        """The mean of each window, or its sum over `divisor`; padding counts as 0."""
        *lists, ceil_mode, _, divisor = geometry
        require(divisor != 0, "a divisor of 0")
        require(a.dtype in FLOATS | {torch.int64}, f"not defined on {a.dtype}")
        found = _pooled(n, a, [*lists, (1,) * n], ceil_mode)
        return _in_library_format(a, found.shape, n)

    @_leaf(
        f"{name}_backward(Tensor grad, Tensor a, {geometry}) -> Tensor",
        _in_single(getattr(aten, f"{name}_backward").default),
        flops=flops_per_input(3**n),
        shape=f"{_OPERAND} `a`" + last.format("it"),
        edge_cases=edges,
    )
    def backward(grad: TensorMeta, a: TensorMeta, *geometry: Any) -> TensorMeta:
        """Each gradient spread evenly over the window it came from."""
        _require_gradient(grad, a, forward(a, *geometry))
        return _in_library_format(a, a.shape, n)


for _n in (2, 3):
    _define_max(_n)
    _define_avg(_n)


def _windows(a: TensorMeta, output: Sizes) -> TensorMeta:
    """Metadata of an image cut into `output` windows."""
    require(len(output) in (2, 3), f"{len(output)} spatial dimensions, not 2 or 3")
    _require_image(a, len(output), FLOATS)
    require(all(n > 0 for n in output), f"{list(output)} windows")
    return _in_library_format(a, (*a.shape[: a.ndim - len(output)], *output), len(output))


def _cut_back(grad: TensorMeta, a: TensorMeta, spatial: int, *positions: TensorMeta) -> TensorMeta:
    """Metadata of the gradient through windows that cover an image, as many as `grad` has."""
    require(grad.ndim == a.ndim, f"gradient {grad.shape} for {a.shape}")
    _require_gradient(grad, a, _windows(a, grad.shape[grad.ndim - spatial :]), *positions)
    return _in_library_format(a, a.shape, spatial)


def _by_rank(name: str) -> Callable[..., Any]:
    """ATen's operator for images or volumes: as many dimensions as `output` has, or as `spatial`,
    which ATen does not take, says."""

    def call(*args: Any) -> Any:
        sizes = next((x for x in reversed(args) if isinstance(x, (int, list, tuple))), 0)
        spatial = sizes if isinstance(sizes, int) else len(sizes)
        packet = getattr(aten, name.replace("pool", f"pool{spatial}d"))
        return packet.default(*(args[:-1] if isinstance(sizes, int) else args))

    return call


_ADAPTIVE = "window i of n along a size s is [floor(i s / n), ceil((i + 1) s / n))"


@_leaf(
    "adaptive_avg_pool(Tensor a, SymInt[] output) -> Tensor",
    _by_rank("_adaptive_avg_pool"),
    flops=flops_per_input(1),
    shape="leading dimensions of the operand, then `output`; channels-last if a 2-d operand is",
    edge_cases=_ADAPTIVE,
    differentiable=_NO_DERIVATIVE,
)
def adaptive_avg_pool(a: TensorMeta, output: Sizes) -> TensorMeta:
    """The mean of each of `output` windows that cover a 2-d or 3-d image."""
    return _windows(a, output)


@_leaf(
    "adaptive_avg_pool_backward(Tensor grad, Tensor a, int spatial) -> Tensor",
    _by_rank("_adaptive_avg_pool_backward"),
    flops=flops_per_input(1),
    shape=f"{_OPERAND} `a`; channels-last if that is a 2-d image that is",
    edge_cases=_ADAPTIVE,
)
def adaptive_avg_pool_backward(grad: TensorMeta, a: TensorMeta, spatial: int) -> TensorMeta:
    """Each gradient spread evenly over its window; `spatial` dimensions were pooled."""
    return _cut_back(grad, a, spatial)


@_leaf(
    "adaptive_max_pool(Tensor a, SymInt[] output) -> (Tensor, Tensor)",
    _by_rank("adaptive_max_pool"),
    flops=flops_per_input(1),
    shape="both: leading dimensions of the operand, then `output`; channels-last if a 2-d one is",
    edge_cases={**_MAX_EDGES, "note": _ADAPTIVE},
    differentiable=_NO_DERIVATIVE,
)
def adaptive_max_pool(a: TensorMeta, output: Sizes) -> tuple[TensorMeta, TensorMeta]:
    """The largest of each of `output` windows that cover a 2-d or 3-d image, and its position."""
    return _with_positions(_windows(a, output))


@_leaf(
    "adaptive_max_pool_backward(Tensor grad, Tensor a, Tensor indices, int spatial) -> Tensor",
    _by_rank("adaptive_max_pool_backward"),
    flops=flops_per_input(1),
    shape=f"{_OPERAND} `a`; channels-last if that is a 2-d image that is",
    edge_cases=_SUMMED,
)
def adaptive_max_pool_backward(
    grad: TensorMeta, a: TensorMeta, indices: TensorMeta, spatial: int
) -> TensorMeta:
    """Each gradient added at its window's position; `spatial` dimensions were pooled."""
    return _cut_back(grad, a, spatial, indices)


@_fractional(
    "fractional_max_pool(Tensor a, int[] kernel, int[] output, Tensor samples) -> (Tensor, Tensor)",
    _by_rank("fractional_max_pool"),
    flops=flops_per_output(9),
    shape="both: leading dimensions of the operand, then `output`; row-major",
    edge_cases=_MAX_EDGES,
    differentiable=_NO_DERIVATIVE,
)
def fractional_max_pool(
    a: TensorMeta, kernel: Ints, output: Ints, samples: TensorMeta
) -> tuple[TensorMeta, TensorMeta]:
    """The largest of windows of size `kernel` at places that `samples` in [0, 1) decide."""
    pooled = _windows(a, output)
    spatial = len(output)
    require(len(kernel) == spatial, f"{len(kernel)} window sizes for {spatial} dimensions")
    for size, window, count in zip(a.shape[a.ndim - spatial :], kernel, output, strict=True):
        spare = size - (count + window - 1)  # a place more is wanted in three dimensions
        require(window > 0 and bool(spare >= spatial - 2), "windows do not fit")
    batch = a.shape[0] if a.ndim == spatial + 2 else 1
    wanted = (batch, a.shape[a.ndim - spatial - 1], spatial)
    require(samples.shape == wanted, f"samples {samples.shape}, not {wanted}")
    require(samples.dtype == a.dtype, f"samples of {samples.dtype} for {a.dtype}")
    return _with_positions(a.like(pooled.shape))


@_fractional(
    "fractional_max_pool_backward(Tensor grad, Tensor a, int[] kernel, int[] output,"
    " Tensor indices) -> Tensor",
    _by_rank("fractional_max_pool_backward"),
    flops=flops_per_input(1),
    shape=f"{_OPERAND} `a`; row-major",
    edge_cases=_SUMMED,
)
def fractional_max_pool_backward(
    grad: TensorMeta, a: TensorMeta, kernel: Ints, output: Ints, indices: TensorMeta
) -> TensorMeta:
    """Each gradient added at the position its window's largest element came from."""
    require(len(kernel) == len(output), f"{len(kernel)} window sizes")
    _require_gradient(grad, a, _windows(a, output), indices)
    return a.like(a.shape)
