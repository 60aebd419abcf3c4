"""Decompositions of layer, RMS and group normalisation.

In: an input and optional scale and shift. Out: the result and the statistics its backward needs.
Invariant: statistics are computed in float32 for half precision, and given in eager's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import surely
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p, spread
from flambeau_prims.decomp.reduction import moments
from flambeau_prims.decomposition_table import TABLE, Arguments, by_name, decomposition
from flambeau_prims.promotion import compute_dtype, same_shape

aten = torch.ops.aten


def stat_dtype(x: Tensor, weight: Tensor | None) -> torch.dtype:
    """The dtype in which eager hands out statistics of `x`."""
    if x.device.type == "cpu" and (weight is None or weight.dtype == x.dtype):
        return x.dtype
    return compute_dtype(x.dtype)


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, dims: Sequence[int]) -> Tensor:
    """`x * weight + bias`, whose dimensions are those of `x` listed in `dims`."""
    shape = list(x.shape)
    if weight is not None:
        x = p.mul(x, p.broadcast_in_dim(e.cast(weight, x.dtype), shape, list(dims)))
    if bias is not None:
        x = p.add(x, p.broadcast_in_dim(e.cast(bias, x.dtype), shape, list(dims)))
    return x


def rstd_of(variance: Tensor, eps: float) -> Tensor:
    """1 / sqrt(variance + eps)."""
    return p.rsqrt(e.add(variance, eps))


def standardized(
    x: Tensor, mean: Tensor, rstd: Tensor, dims: Sequence[int], *, expanded: bool = False
) -> Tensor:
    """(x - mean) rstd, of statistics over `dims`. expanded: as x rstd - mean rstd, which is nan
    where rstd is infinite."""
    average, scale = spread(mean, x.shape, dims), spread(rstd, x.shape, dims)
    if expanded:
        return p.sub(p.mul(x, scale), p.mul(average, scale))
    return p.mul(p.sub(x, average), scale)


def scaled_and_shifted(x: Tensor, mean: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """x scale + (bias - mean scale), of operands of one shape: where eager's kernels for a CPU have
    a scale and a constant for each channel."""
    shift = p.neg(mean)
    shift = p.mul(scale, shift) if bias is None else e.fused(scale, shift, bias)
    return e.fused(scale, x, shift)


def row_moments(x: Tensor, home: Tensor, dims: list[int]) -> tuple[Tensor, Tensor]:
    """Variance and mean, as of the operand `home`: eager's kernel for rows on a CPU goes on by
    differences from the mean, and there is none to an infinite one."""
    variance, mean = moments(x, dims, 0.0)
    return variance, mean if e.on_gpu(home) else e.where(p.isinf(mean), math.nan, mean)


@by_name(aten.native_layer_norm.default, keep="layer_norm")
def layer_norm(a: Arguments) -> Any:
    x, axis = a.input, a.input.ndim - len(a.normalized_shape)
    if not a.normalized_shape or axis < 0 or not same_shape(x.shape[axis:], a.normalized_shape):
        return NotImplemented  # eager has the message
    dims = list(range(axis, x.ndim))
    wide = e.widen(x)
    variance, average = row_moments(wide, x, dims)
    rstd = rstd_of(variance, a.eps)
    expanded = wide is not x and a.eps <= 0 and not e.on_gpu(x)  # the scale may be infinite
    normal = standardized(wide, average, rstd, dims, expanded=expanded)
    out = affine(normal, a.weight, a.bias, dims)
    kept = [*x.shape[:axis], *[1] * len(dims)]
    stats = [e.cast(spread(s, kept, dims), stat_dtype(x, a.weight)) for s in (average, rstd)]
    # the library kernel writes row-major whatever the layout of its input
    return e.in_format(e.cast(out, x.dtype), torch.contiguous_format), stats[0], stats[1]


@by_name(aten.native_layer_norm_backward.default, keep="layer_norm")
def layer_norm_backward(a: Arguments) -> Any:
    x, weight, bias, mask = a.input, a.weight, a.bias, a.output_mask
    axis = x.ndim - len(a.normalized_shape)
    inner, outer = list(range(axis, x.ndim)), list(range(axis))
    shape = list(x.shape)
    g, wide = e.widen(a.grad_out, x)
    scale = e.expand(e.cast(a.rstd, wide.dtype), shape)
    centered = p.sub(wide, e.expand(e.cast(a.mean, wide.dtype), shape))
    normal = p.mul(centered, scale)
    return _in_rows(
        e.cast(_through(affine(g, weight, None, inner), normal, scale, inner), x.dtype)
        if mask[0]
        else None,
        e.cast(p.sum(p.mul(g, normal), outer), weight.dtype)
        if mask[1] and weight is not None
        else None,
        e.cast(p.sum(g, outer), bias.dtype) if mask[2] and bias is not None else None,
    )


def _in_rows(*found: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients as the library kernel writes them, row-major whatever the layout of its input."""
    return tuple(y if y is None else e.in_format(y, torch.contiguous_format) for y in found)


def _through(g: Tensor, normal: Tensor, scale: Tensor, dims: list[int]) -> Tensor:
    """Gradient through normalization to mean 0 and variance 1 over `dims`.

    With n the normalized input: (g - mean(g) - n * mean(g * n)) * scale.
    """
    shape = g.shape
    number = e.as_number(e.count(shape, dims))
    mean_g = e.div(p.sum(g, dims), number)
    mean_gn = e.div(p.sum(p.mul(g, normal), dims), number)
    centered = p.sub(g, spread(mean_g, shape, dims))
    return p.mul(p.sub(centered, p.mul(normal, spread(mean_gn, shape, dims))), scale)


def _squares_alone(x: Tensor, dims: Sequence[int]) -> bool:
    """Whether the GPU's kernel for RMSNorm sums squares: it reads four elements at a time."""
    return x.dtype != torch.float64 and surely(e.count(x.shape, dims) % 4 == 0)


@decomposition(aten._fused_rms_norm.default, keep="rms_norm")
def rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> Any:
    dims = list(range(x.ndim - len(normalized_shape), x.ndim))
    wide = e.widen(x)
    small = torch.finfo(wide.dtype).eps if eps is None else eps
    square = e.div(p.sum(p.mul(wide, wide), dims), e.as_number(e.count(x.shape, dims)))
    if e.on_gpu(x) and not _squares_alone(x, dims):  # a mean is part of it there, which is NaN
        square = p.add(square, p.sum(p.mul(wide, e.const(0.0, wide)), dims))
    rstd = rstd_of(square, small)
    out = affine(p.mul(wide, spread(rstd, wide.shape, dims)), weight, None, dims)
    kept = [1 if d in dims else n for d, n in enumerate(x.shape)]
    out = e.cast(out, x.dtype)
    if e.on_gpu(x):  # one kernel there, which writes row by row; formulas on a CPU
        out = e.in_format(out, torch.contiguous_format)
    return out, spread(rstd, kept, dims)


@by_name(aten._fused_rms_norm_backward.default, keep="rms_norm")
def rms_norm_backward(a: Arguments) -> Any:
    x, weight, axis = a.input, a.weight, a.input.ndim - len(a.normalized_shape)
    dims = list(range(axis, x.ndim))
    g, wide = e.widen(a.grad_out, x)
    scale = e.expand(e.cast(a.rstd, wide.dtype), wide.shape)
    normal = p.mul(wide, scale)
    first = second = None
    if a.output_mask[0]:
        h = affine(g, weight, None, dims)
        mean = e.div(p.sum(p.mul(h, normal), dims), e.as_number(e.count(x.shape, dims)))
        inner = p.sub(h, p.mul(normal, spread(mean, h.shape, dims)))
        first = e.cast(p.mul(inner, scale), x.dtype)
    if a.output_mask[1] and weight is not None:
        second = e.cast(p.sum(p.mul(g, normal), list(range(axis))), weight.dtype)
    return _in_rows(first, second)


def _grouped(a: Arguments, x: Tensor) -> Tensor:
    return p.reshape(x, [a.N, a.group, a.C // a.group, a.HxW])


def _per_channel(w: Tensor, like: Tensor) -> Tensor:
    """A vector of C entries over [N, groups, C / groups, HxW]."""
    _, group, size, _ = like.shape
    return p.broadcast_in_dim(
        p.reshape(e.cast(w, like.dtype), [group, size]), list(like.shape), [1, 2]
    )


@by_name(aten.native_group_norm.default, keep="group_norm")
def group_norm(a: Arguments) -> Any:
    if any(t is not None and t.ndim != 1 for t in (a.weight, a.bias)):
        return NotImplemented
    if a.input.device.type == "cpu" and e.in_image_format(a.input, a.input) is not a.input:
        return NotImplemented  # eager takes no other layout
    x, wide = a.input, _grouped(a, e.widen(a.input))
    variance, average = row_moments(wide, x, [2, 3])
    rstd = rstd_of(variance, a.eps)
    weight, bias = (t if t is None else _per_channel(t, wide) for t in (a.weight, a.bias))
    if e.on_gpu(x) or (weight is None and bias is None and e.contiguous(x)):
        out = standardized(wide, average, rstd, [2, 3])
        out = out if weight is None else p.mul(out, weight)
        out = out if bias is None else p.add(out, bias)
    else:
        mean, scale = (spread(s, wide.shape, [2, 3]) for s in (average, rstd))
        scale = scale if weight is None else p.mul(scale, weight)
        out = scaled_and_shifted(wide, mean, scale, bias)
    stats = stat_dtype(x, a.weight)
    result = e.cast(p.reshape(out, list(x.shape)), x.dtype)
    if not e.on_gpu(x):
        result = e.in_image_format(x, result)  # a group of one image is a view of any steps
    return result, e.cast(average, stats), e.cast(rstd, stats)


@by_name(aten.native_group_norm_backward.default, keep="group_norm")
def group_norm_backward(a: Arguments) -> Any:
    x, weight, mask = a.input, a.weight, a.output_mask
    g, wide = (_grouped(a, t) for t in e.widen(a.grad_out, x))
    shape, dtype = wide.shape, wide.dtype
    m, r = (p.reshape(e.cast(s, dtype), [a.N, a.group]) for s in (a.mean, a.rstd))
    scale = spread(r, shape, [2, 3])
    normal = p.mul(p.sub(wide, spread(m, shape, [2, 3])), scale)
    first = None
    if mask[0]:
        h = g if weight is None else p.mul(g, _per_channel(weight, g))
        first = p.reshape(e.cast(_through(h, normal, scale, [2, 3]), x.dtype), list(x.shape))
        first = first if e.on_gpu(x) else e.in_image_format(x, first)
    own = x.dtype if weight is None else weight.dtype

    def vector(t: Tensor) -> Tensor:
        return e.cast(p.reshape(p.sum(t, [0, 3]), [a.C]), own)

    return (first, vector(p.mul(g, normal)) if mask[1] else None, vector(g) if mask[2] else None)


@decomposition(aten.renorm.default)
def renorm(x: Tensor, order: Any, dim: int, maxnorm: Any) -> Any:
    """Slices along `dim` of a norm above `maxnorm` scaled down to it."""
    if x.ndim < 2:
        return NotImplemented  # eager has the message
    where = e.canonical(dim, x.ndim)
    wide = e.widen(x)
    dims = [d for d in range(x.ndim) if d != where]
    norms = vector_norm(wide, order, dims)
    if norms is NotImplemented:
        return NotImplemented
    factor = e.div(maxnorm, e.add(norms, 1e-7))
    factor = e.where(e.gt(norms, maxnorm), factor, 1.0)
    factor = e.cast(factor, wide.dtype)
    scaled = e.cast(p.mul(wide, spread(factor, wide.shape, dims)), x.dtype)
    return e.in_format(scaled, torch.contiguous_format)


def vector_norm(x: Tensor, order: Any, dims: list[int]) -> Any:
    """The table's vector norm over `dims`."""
    norm = TABLE.get(aten.linalg_vector_norm.default)
    return NotImplemented if norm is None else norm(x, order, dims)


def _outer(v: Tensor, dim: int) -> list[int]:
    """The dimensions that a weight's norm is taken over: all but the first or last."""
    kept = e.canonical(dim, v.ndim)
    return [d for d in range(v.ndim) if d != kept]


@decomposition(aten._weight_norm_interface.default)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    """g v / |v|, and the norms."""
    dims = _outer(v, dim)
    wide, gain = e.widen(v), e.cast(g, compute_dtype(v.dtype))
    shape = [1 if d in dims else n for d, n in enumerate(v.shape)]
    norms = p.reshape(p.sqrt(p.sum(p.mul(wide, wide), dims)), shape)
    factor = p.div(p.reshape(gain, shape), norms)
    out = p.mul(wide, e.expand(factor, wide.shape))
    stats = compute_dtype(g.dtype) if v.device.type != "cpu" else g.dtype
    return e.cast(out, v.dtype), e.cast(norms, stats)


@decomposition(aten._weight_norm_interface_backward.default)
def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> Any:
    dims = _outer(v, dim)
    wide, dw = e.widen(v, grad)
    shape = [1 if d in dims else n for d, n in enumerate(v.shape)]
    size, gain = (p.reshape(e.cast(t, wide.dtype), shape) for t in (norms, g))
    along = p.reshape(p.sum(p.mul(dw, wide), dims), shape)
    dg = p.div(along, size)
    # dv = g / |v| (dw - v <dw, v> / |v|**2)
    pull = e.expand(p.div(along, p.mul(size, size)), wide.shape)
    dv = p.mul(p.sub(dw, p.mul(wide, pull)), e.expand(p.div(gain, size), wide.shape))
    return e.cast(dv, v.dtype), e.cast(p.reshape(dg, list(g.shape)), g.dtype)
