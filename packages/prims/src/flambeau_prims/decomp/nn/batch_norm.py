"""Decompositions of batch normalisation, synchronised or not.

In: [N, C, ...] inputs, optional scale, shift and running statistics. Out: the result, the saved
statistics, and where the overload returns them the updated running ones.
Invariant: running statistics are never dropped: an overload that writes them in place writes them
here with `copy_`, a functional one returns them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p, spread
from flambeau_prims.decomp.nn.normalization import (
    affine,
    rstd_of,
    scaled_and_shifted,
    standardized,
    stat_dtype,
)
from flambeau_prims.decomp.reduction import moments
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition, overloads
from flambeau_prims.shape_rules import Size, is_channels_last

aten = torch.ops.aten


class Normalized(NamedTuple):
    """What one forward computes; the running statistics are None if there are none to update."""

    out: Tensor
    mean: Tensor
    rstd: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None


def all_but_channel(x: Tensor) -> list[int]:
    return [d for d in range(x.ndim) if d != 1]


def _updated(running: Tensor | None, batch: Tensor, momentum: float) -> Tensor | None:
    if running is None:
        return None
    old, new = e.widen(running), e.cast(batch, e.widen(running).dtype)
    return e.cast(p.add(e.mul(old, 1.0 - momentum), e.mul(new, momentum)), running.dtype)


def _unbiased(variance: Tensor, number: Size) -> Tensor:
    """The variance of a sample of so many."""
    if e.is_symbolic(number):
        return e.div(e.mul(variance, number), number - 1)
    return e.mul(variance, float(number) / float(max(number - 1, 1)))


def normalize(
    a: Arguments, training: bool, momentum: float, eps: float, native: bool = False
) -> Normalized:
    """One batch-norm forward; in training by the batch's statistics, else by the running ones.

    The result is laid out as an image, but as the input is by torch's own (`native`) kernels for a
    GPU.
    """
    x, wide = a.input, e.widen(a.input)
    dims, shape = all_but_channel(x), wide.shape
    new_mean = new_var = None
    if training:
        variance, mean = moments(wide, dims, 0.0)
        if not e.on_gpu(x):  # eager divides a sum there: the mean of infinities is infinite
            # summed in the pass of the moments: those go by differences, of which infinity has none
            total = e.div(p.sum(wide, dims), e.as_number(e.count(shape, dims)))
            mean = e.where(p.isfinite(mean), mean, total)
        unbiased = _unbiased(variance, e.count(shape, dims))
        new_mean = _updated(a.running_mean, mean, momentum)
        new_var = _updated(a.running_var, unbiased, momentum)
    else:
        if a.running_mean is None or a.running_var is None:
            raise RuntimeError("batch_norm: running statistics are needed outside of training")
        mean, variance = (e.cast(s, wide.dtype) for s in (a.running_mean, a.running_var))
    rstd = rstd_of(variance, eps)
    if training and eps == 0:  # a channel of one value is all zeros
        rstd = e.where(e.eq(variance, 0), 0, rstd)
    if not e.on_gpu(x) and (e.contiguous(x) or is_channels_last(shape, x.stride())):
        scale = rstd if a.weight is None else p.mul(rstd, e.cast(a.weight, wide.dtype))
        bias = None if a.bias is None else spread(e.cast(a.bias, wide.dtype), shape, dims)
        mean_of, scale_of = (spread(t, shape, dims) for t in (mean, scale))
        out = scaled_and_shifted(wide, mean_of, scale_of, bias)
    else:
        out = affine(standardized(wide, mean, rstd, dims), a.weight, a.bias, [1])
    out = e.cast(out, x.dtype)
    out = e.laid_out_as(x, out) if native and e.on_gpu(x) else e.in_image_format(x, out)
    return Normalized(out, mean, rstd, new_mean, new_var)


def _saved(a: Arguments, done: Normalized, training: bool) -> tuple[Tensor, Tensor]:
    """The saved statistics as eager gives them: nothing to save outside of training on CPU."""
    dtype = stat_dtype(a.input, a.weight)
    if not training and a.input.device.type == "cpu":
        return e.filled(a.input, [0], 0, dtype), e.filled(a.input, [0], 0, dtype)
    return e.cast(done.mean, dtype), e.cast(done.rstd, dtype)


def _write_back(a: Arguments, done: Normalized) -> None:
    for running, new in ((a.running_mean, done.running_mean), (a.running_var, done.running_var)):
        if running is not None and new is not None:
            p.copy_(running, new)


def _or_copy(new: Tensor | None, old: Tensor | None) -> Tensor | None:
    return p.clone(old) if new is None and old is not None else new


def _register_forward(op: OpOverload, training: bool | None, *, writes: bool, after: str) -> None:
    """A forward overload.

    `training` is given where the overload does not take it. `writes` says that the running
    statistics are written in place; `after` what is returned after the result and the saved
    statistics: "running" ones, a "reserve" for another library, both in that order, or nothing.
    """

    @by_name(op, keep="batch_norm", absent=("running_mean", "running_var"))
    def forward(a: Arguments) -> Any:
        flag = a.training if training is None else training
        done = normalize(a, flag, a.momentum, a.eps, "native_batch_norm" in str(op))
        results: list[Any] = [done.out, *_saved(a, done, flag)]
        if writes:
            _write_back(a, done)
        if "reserve" in after:
            results.append(e.filled(a.input, [0], 0, torch.uint8))
        if "running" in after:
            results += [_or_copy(done.running_mean, a.running_mean)]
            results += [_or_copy(done.running_var, a.running_var)]
        return tuple(results)


for _op, _training, _writes, _after in (
    (aten.native_batch_norm.default, None, True, ""),
    (aten._native_batch_norm_legit.default, None, True, ""),
    (aten._native_batch_norm_legit.no_stats, None, False, ""),
    (aten._native_batch_norm_legit_no_training.default, False, False, ""),
    (aten._native_batch_norm_legit_functional.default, None, False, "running"),
    (aten._batch_norm_with_update_functional.default, True, False, "reserve running"),
    (aten._batch_norm_with_update.default, True, True, "reserve"),
    (aten._batch_norm_no_update.default, False, False, "reserve"),
):
    _register_forward(_op, _training, writes=_writes, after=_after)


@by_name(aten.cudnn_batch_norm.default, keep="batch_norm")
def cudnn_batch_norm(a: Arguments) -> Any:
    done = normalize(a, a.training, a.exponential_average_factor, a.epsilon)
    _write_back(a, done)
    saved = [done.mean, done.rstd]
    if not a.training:
        saved = [e.filled(a.input, [0], 0, a.weight.dtype) for _ in saved]
    return done.out, *saved, e.filled(a.input, [0], 0, torch.uint8)


def _differentiate(
    a: Arguments,
    grad: Tensor,
    rstd: Tensor | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    """Gradients of input, scale and shift, by the statistics that the forward normalized by: the
    saved ones, of which `rstd` is one, or outside of `training` the running ones."""
    x, weight, mean = a.input, a.weight, a.save_mean
    if not training:
        mean, variance = a.running_mean, a.running_var
        rstd = None if variance is None else rstd_of(e.widen(variance), eps)
    if mean is None or rstd is None:
        return NotImplemented
    g, wide = e.widen(grad, x)
    dims, shape, dtype = all_but_channel(x), wide.shape, wide.dtype
    mean, rstd = e.cast(mean, dtype), e.cast(rstd, dtype)
    centred = p.sub(wide, spread(mean, shape, dims))
    sum_g = p.sum(g, dims)
    # the scale is outside of the sum, as in eager's kernel: what cancels exactly there does here
    along = p.sum(p.mul(g, centred), dims)
    sum_gn = p.mul(along, rstd)
    scale = rstd if weight is None else p.mul(rstd, e.cast(weight, dtype))
    first = None
    if mask[0]:
        inner = g
        if training:
            number = e.as_number(e.count(shape, dims))
            inner = p.sub(g, spread(e.div(sum_g, number), shape, dims))
            pull = p.mul(e.div(along, number), p.mul(rstd, rstd))
            inner = p.sub(inner, p.mul(centred, spread(pull, shape, dims)))
        first = e.cast(p.mul(inner, spread(scale, shape, dims)), x.dtype)
        if e.on_gpu(x) and not training:  # whose kernel writes row-major there
            first = e.in_format(first, torch.contiguous_format)
        else:
            first = e.in_image_format(x, first)
    own = dtype if weight is None else weight.dtype
    return (
        first,
        e.cast(sum_gn, own) if mask[1] else None,
        e.cast(sum_g, own) if mask[2] else None,
    )


@by_name(aten.native_batch_norm_backward.default, keep="batch_norm")
def native_batch_norm_backward(a: Arguments) -> Any:
    return _differentiate(a, a.grad_out, a.save_invstd, a.train, a.eps, a.output_mask)


@by_name(aten.cudnn_batch_norm_backward.default, keep="batch_norm")
def cudnn_batch_norm_backward(a: Arguments) -> Any:
    return _differentiate(a, a.grad_output, a.save_var, True, a.epsilon, [True, True, True])


@by_name(aten.batch_norm_backward.default, keep="batch_norm")
def batch_norm_backward(a: Arguments) -> Any:
    return _differentiate(a, a.grad_out, a.save_var, a.update, a.eps, a.output_mask)


@decomposition(*overloads("batch_norm_stats", "default"))
def stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = moments(e.widen(x), all_but_channel(x), 0.0)
    return mean, rstd_of(variance, eps)


@by_name(*overloads("batch_norm_elemt", "default"))
def normalize_by_sums(a: Arguments) -> Tensor:
    x = a.input
    wide, dims = e.widen(x), all_but_channel(x)
    shift, scale = (spread(e.cast(t, wide.dtype), wide.shape, dims) for t in (a.mean, a.invstd))
    out = affine(p.mul(p.sub(wide, shift), scale), a.weight, a.bias, [1])
    return e.in_image_format(x, e.cast(out, x.dtype))


@by_name(*overloads("batch_norm_backward_reduce", "default"))
def backward_reduce(a: Arguments) -> Any:
    """(sum of g, sum of g (x - mean), gradient of the weight, of the bias)."""
    x, weight = a.input, a.weight
    g, wide = e.widen(a.grad_out, x)
    dims = all_but_channel(x)
    centred = p.sub(wide, spread(e.cast(a.mean, wide.dtype), wide.shape, dims))
    total, along = p.sum(g, dims), p.sum(p.mul(g, centred), dims)
    own = wide.dtype if weight is None else weight.dtype
    none = e.filled(x, [0], 0, own)
    return (
        total if a.input_g else none,
        along if a.input_g else none,
        e.cast(p.mul(along, e.cast(a.invstd, along.dtype)), own) if a.weight_g else none,
        e.cast(total, own) if a.bias_g else none,
    )


@by_name(*overloads("batch_norm_backward_elemt", "default"))
def backward_elemt(a: Arguments) -> Tensor:
    """(g - mean(g) - (x - mean) invstd**2 mean(g (x - mean))) invstd weight."""
    x = a.input
    g, wide = e.widen(a.grad_out, x)
    dims, dtype = all_but_channel(x), wide.dtype
    number = p.sum(e.cast(a.count, dtype), list(range(a.count.ndim)))
    scale, shift = e.cast(a.invstd, dtype), e.cast(a.mean, dtype)
    average, along = (e.div(e.cast(t, dtype), number) for t in (a.sum_dy, a.sum_dy_xmu))
    pull = p.mul(along, p.mul(scale, scale))
    gain = scale if a.weight is None else p.mul(scale, e.cast(a.weight, dtype))
    average, shift, pull, gain = (spread(t, wide.shape, dims) for t in (average, shift, pull, gain))
    inner = p.sub(p.sub(g, average), p.mul(p.sub(wide, shift), pull))
    return e.in_image_format(x, e.cast(p.mul(inner, gain), x.dtype))
