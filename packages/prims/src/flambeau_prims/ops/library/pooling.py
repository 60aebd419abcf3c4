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
from flambeau_prims.layout import Size, TensorMeta, channels_last_strides, suggests_channels_last
from flambeau_prims.ops.library.leaf import leaf
from flambeau_prims.ops.pointwise import FLOATS, INTS

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


def _require_image(name: str, a: TensorMeta, spatial: int, kind: Any = FLOATS | INTS) -> None:
    require(a.ndim in (spatial + 1, spatial + 2), f"{name}: {a.ndim}-d is not an image")
    require(a.dtype in kind, f"{name}: not defined on {a.dtype}")
    require(all(n != 0 for n in a.shape[-spatial - 1 :]), f"{name}: an image of shape {a.shape}")


def _pooled(
    name: str,
    spatial: int,
    a: TensorMeta,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> TensorMeta:
    _require_image(name, a, spatial)
    lists = (kernel, stride, padding, dilation)
    require(
        all(len(x) == spatial for x in lists), f"{name}: geometry must have {spatial} numbers each"
    )
    positive = all(n > 0 for x in (kernel, stride, dilation) for n in x)
    require(positive, f"{name}: kernel, stride and dilation must be positive")
    for k, pad in zip(kernel, padding, strict=True):
        require(0 <= pad <= k // 2, f"{name}: padding {pad} for a window of {k}; half is the most")
    first = a.ndim - spatial
    sizes = [
        pooled_size(a.shape[first + i], kernel[i], stride[i], padding[i], dilation[i], ceil_mode)
        for i in range(spatial)
    ]
    require(all(size > 0 for size in sizes), f"{name}: the window does not fit into {a.shape}")
    return in_format_of(a, (*a.shape[:first], *sizes))


def _in_library_format(a: TensorMeta, shape: Sequence[Size], spatial: int) -> TensorMeta:
    """Metadata of windows that the library writes: row-major of volumes, whatever `a` is like."""
    return in_format_of(a, shape) if spatial == 2 else a.like(shape)


def in_format_of(a: TensorMeta, shape: Sequence[Size]) -> TensorMeta:
    """Metadata of `shape`, channels-last if `a` is a batch of images that suggests it."""
    if len(shape) in (4, 5) and len(shape) == a.ndim and suggests_channels_last(a):
        return a.like(shape, channels_last_strides(shape))
    return a.like(shape)


def _in_single(op: Callable[..., Any]) -> Callable[..., Any]:
    """`op`, in float32 for half precision on CPU, where some of the library has no kernel."""

    def call(a: torch.Tensor, *rest: Any) -> Any:
        if a.device.type != "cpu" or a.dtype not in (torch.float16, torch.bfloat16):
            return op(a, *rest)
        wide = [x.float() if isinstance(x, torch.Tensor) else x for x in rest]
        return op(a.float(), *wide).to(a.dtype)

    return call


def _require_gradient(name: str, grad: TensorMeta, a: TensorMeta, shape: Sequence[Size]) -> None:
    require(grad.dtype == a.dtype, f"{name}: gradient of {grad.dtype} for {a.dtype}")
    require(a.dtype in FLOATS, f"{name}: not defined on {a.dtype}")
    require(grad.shape == tuple(shape), f"{name}: gradient {grad.shape}, windows {tuple(shape)}")


def _require_positions(name: str, indices: TensorMeta, grad: TensorMeta) -> None:
    require(indices.dtype == torch.int64, f"{name}: positions are {indices.dtype}, not int64")
    require(indices.shape == grad.shape, f"{name}: positions {indices.shape} for {grad.shape}")


def _define_max(n: int) -> None:
    name = f"max_pool{n}d_with_indices"
    back = f"{name}_backward"

    def rule(a: TensorMeta, *geometry: Any) -> tuple[TensorMeta, TensorMeta]:
        values = _pooled(name, n, a, *geometry)
        return values, values.like(dtype=torch.int64)

    def backward_rule(grad: TensorMeta, a: TensorMeta, *rest: Any) -> TensorMeta:
        *geometry, indices = rest
        _require_gradient(back, grad, a, _pooled(back, n, a, *geometry).shape)
        _require_positions(back, indices, grad)
        return in_format_of(a, a.shape)

    _leaf(
        f"{name}(Tensor a, int[] kernel, int[] stride, int[] padding, int[] dilation,"
        " bool ceil_mode) -> (Tensor, Tensor)",
        rule,
        getattr(aten, name).default,
        "The largest of each window, and its position (int64) within the image.",
        flops=flops_per_output(3**n),
        shape=f"both: {_IMAGE}; channels-last if the operand is",
        edge_cases=_MAX_EDGES,
        differentiable=_NO_DERIVATIVE,
    )
    _leaf(
        f"{back}(Tensor grad, Tensor a, int[] kernel, int[] stride, int[] padding,"
        " int[] dilation, bool ceil_mode, Tensor indices) -> Tensor",
        backward_rule,
        getattr(aten, back).default,
        "Each gradient added at the position its window's largest element came from.",
        flops=flops_per_input(1),
        shape=f"{_OPERAND} `a`; channels-last if it is",
        edge_cases=_SUMMED,
    )


def _define_avg(n: int) -> None:
    name = f"avg_pool{n}d"
    back = f"{name}_backward"

    def rule(
        a: TensorMeta,
        kernel: Ints,
        stride: Ints,
        padding: Ints,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor: int | None,
    ) -> TensorMeta:
        del count_include_pad
        require(divisor != 0, f"{name}: a divisor of 0")
        require(a.dtype in FLOATS | {torch.int64}, f"{name}: not defined on {a.dtype}")
        found = _pooled(name, n, a, kernel, stride, padding, (1,) * n, ceil_mode)
        return _in_library_format(a, found.shape, n)

    def backward_rule(grad: TensorMeta, a: TensorMeta, *geometry: Any) -> TensorMeta:
        _require_gradient(back, grad, a, rule(a, *geometry).shape)
        return _in_library_format(a, a.shape, n)

    geometry = (
        "int[] kernel, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad,"
        " int? divisor"
    )
    edges = {
        "note": "the count is of the window inside the padded image, or inside the image if"
        " `count_include_pad` is false"
    }
    _leaf(
        f"{name}(Tensor a, {geometry}) -> Tensor",
        rule,
        _in_single(getattr(aten, name).default),
        "The mean of each window, or its sum over `divisor`; padding counts as 0.",
        flops=flops_per_output(3**n),
        shape=_IMAGE + ("; channels-last if the operand is" if n == 2 else ""),
        edge_cases=edges,
        differentiable=_NO_DERIVATIVE,
    )
    _leaf(
        f"{back}(Tensor grad, Tensor a, {geometry}) -> Tensor",
        backward_rule,
        _in_single(getattr(aten, back).default),
        "Each gradient spread evenly over the window it came from.",
        flops=flops_per_input(3**n),
        shape=f"{_OPERAND} `a`" + ("; channels-last if it is" if n == 2 else ""),
        edge_cases=edges,
    )


for _n in (2, 3):
    _define_max(_n)
    _define_avg(_n)


def _windows(name: str, a: TensorMeta, output: Sequence[Size], kind: Any = FLOATS) -> TensorMeta:
    """Metadata of an image cut into `output` windows."""
    require(len(output) in (2, 3), f"{name}: {len(output)} spatial dimensions, not 2 or 3")
    _require_image(name, a, len(output), kind)
    require(all(n > 0 for n in output), f"{name}: {list(output)} windows")
    shape = (*a.shape[: a.ndim - len(output)], *output)
    return _in_library_format(a, shape, len(output))


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


def _adaptive_avg_rule(a: TensorMeta, output: Sequence[Size]) -> TensorMeta:
    return _windows("adaptive_avg_pool", a, output)


_leaf(
    "adaptive_avg_pool(Tensor a, SymInt[] output) -> Tensor",
    _adaptive_avg_rule,
    _by_rank("_adaptive_avg_pool"),
    "The mean of each of `output` windows that cover a 2-d or 3-d image.",
    flops=flops_per_input(1),
    shape="leading dimensions of the operand, then `output`; channels-last if a 2-d operand is",
    edge_cases=_ADAPTIVE,
    differentiable=_NO_DERIVATIVE,
)


def _adaptive_avg_back_rule(grad: TensorMeta, a: TensorMeta, spatial: int) -> TensorMeta:
    name = "adaptive_avg_pool_backward"
    require(grad.ndim == a.ndim, f"{name}: gradient {grad.shape} for {a.shape}")
    pooled = _windows(name, a, grad.shape[grad.ndim - spatial :])
    _require_gradient(name, grad, a, pooled.shape)
    return _in_library_format(a, a.shape, spatial)


_leaf(
    "adaptive_avg_pool_backward(Tensor grad, Tensor a, int spatial) -> Tensor",
    _adaptive_avg_back_rule,
    _by_rank("_adaptive_avg_pool_backward"),
    "Each gradient spread evenly over its window; `spatial` dimensions were pooled.",
    flops=flops_per_input(1),
    shape=f"{_OPERAND} `a`; channels-last if that is a 2-d image that is",
    edge_cases=_ADAPTIVE,
)


def _adaptive_max_rule(a: TensorMeta, output: Sequence[Size]) -> tuple[TensorMeta, TensorMeta]:
    values = _windows("adaptive_max_pool", a, output)
    return values, values.like(dtype=torch.int64)


_leaf(
    "adaptive_max_pool(Tensor a, SymInt[] output) -> (Tensor, Tensor)",
    _adaptive_max_rule,
    _by_rank("adaptive_max_pool"),
    "The largest of each of `output` windows that cover a 2-d or 3-d image, and its position.",
    flops=flops_per_input(1),
    shape="both: leading dimensions of the operand, then `output`; channels-last if a 2-d one is",
    edge_cases={**_MAX_EDGES, "note": _ADAPTIVE},
    differentiable=_NO_DERIVATIVE,
)


def _adaptive_max_back_rule(
    grad: TensorMeta, a: TensorMeta, indices: TensorMeta, spatial: int
) -> TensorMeta:
    name = "adaptive_max_pool_backward"
    require(grad.ndim == a.ndim, f"{name}: gradient {grad.shape} for {a.shape}")
    pooled = _windows(name, a, grad.shape[grad.ndim - spatial :])
    _require_gradient(name, grad, a, pooled.shape)
    _require_positions(name, indices, grad)
    return _in_library_format(a, a.shape, spatial)


_leaf(
    "adaptive_max_pool_backward(Tensor grad, Tensor a, Tensor indices, int spatial) -> Tensor",
    _adaptive_max_back_rule,
    _by_rank("adaptive_max_pool_backward"),
    "Each gradient added at its window's position; `spatial` dimensions were pooled.",
    flops=flops_per_input(1),
    shape=f"{_OPERAND} `a`; channels-last if that is a 2-d image that is",
    edge_cases=_SUMMED,
)


def _fractional_rule(
    a: TensorMeta, kernel: Ints, output: Ints, samples: TensorMeta
) -> tuple[TensorMeta, TensorMeta]:
    name = "fractional_max_pool"
    values = a.like(_windows(name, a, output).shape)
    spatial = len(output)
    require(len(kernel) == spatial, f"{name}: {len(kernel)} window sizes for {spatial} dimensions")
    for size, window, count in zip(a.shape[a.ndim - spatial :], kernel, output, strict=True):
        spare = size - (count + window - 1)  # a place more is wanted in three dimensions
        require(window > 0 and bool(spare >= spatial - 2), f"{name}: windows do not fit")
    batch = a.shape[0] if a.ndim == spatial + 2 else 1
    wanted = (batch, a.shape[a.ndim - spatial - 1], spatial)
    require(samples.shape == wanted, f"{name}: samples {samples.shape}, not {wanted}")
    require(samples.dtype == a.dtype, f"{name}: samples of {samples.dtype} for {a.dtype}")
    return values, values.like(dtype=torch.int64)


_fractional(
    "fractional_max_pool(Tensor a, int[] kernel, int[] output, Tensor samples) -> (Tensor, Tensor)",
    _fractional_rule,
    _by_rank("fractional_max_pool"),
    "The largest of windows of size `kernel` at places that `samples` in [0, 1) decide.",
    flops=flops_per_output(9),
    shape="both: leading dimensions of the operand, then `output`; row-major",
    edge_cases=_MAX_EDGES,
    differentiable=_NO_DERIVATIVE,
)


def _fractional_back_rule(
    grad: TensorMeta, a: TensorMeta, kernel: Ints, output: Ints, indices: TensorMeta
) -> TensorMeta:
    name = "fractional_max_pool_backward"
    pooled = _windows(name, a, output)
    require(len(kernel) == len(output), f"{name}: {len(kernel)} window sizes")
    _require_gradient(name, grad, a, pooled.shape)
    _require_positions(name, indices, grad)
    return a.like(a.shape)


_fractional(
    "fractional_max_pool_backward(Tensor grad, Tensor a, int[] kernel, int[] output,"
    " Tensor indices) -> Tensor",
    _fractional_back_rule,
    _by_rank("fractional_max_pool_backward"),
    "Each gradient added at the position its window's largest element came from.",
    flops=flops_per_input(1),
    shape=f"{_OPERAND} `a`; row-major",
    edge_cases=_SUMMED,
)
