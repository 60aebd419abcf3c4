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

from flambeau_prims._torch_compat import OpOverload, argument_names
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p, spread
from flambeau_prims.decomp.nn.normalization import affine, rstd_of, stat_dtype
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.decomp.reduction import moments
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.layout import Size

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
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    native: bool = False,
) -> Normalized:
    """One batch-norm forward; in training by the batch's statistics, else by the running ones.

    The result is laid out as an image, but as `x` is by torch's own (`native`) kernels for a GPU.
    """
    wide = e.widen(x)
    dims, shape = all_but_channel(x), wide.shape
    new_mean = new_var = None
    if training:
        variance, mean = moments(wide, dims, 0.0)
        number = e.count(shape, dims)
        unbiased = _unbiased(variance, number)
        new_mean = _updated(running_mean, mean, momentum)
        new_var = _updated(running_var, unbiased, momentum)
    else:
        if running_mean is None or running_var is None:
            raise RuntimeError("batch_norm: running statistics are needed outside of training")
        mean, variance = (e.cast(s, wide.dtype) for s in (running_mean, running_var))
    rstd = rstd_of(variance, eps)
    out = p.mul(p.sub(wide, spread(mean, shape, dims)), spread(rstd, shape, dims))
    out = e.cast(affine(out, weight, bias, [1]), x.dtype)
    out = e.laid_out_as(x, out) if native and e.on_gpu(x) else e.in_image_format(x, out)
    return Normalized(out, mean, rstd, new_mean, new_var)


def _saved(
    x: Tensor, weight: Tensor | None, done: Normalized, training: bool
) -> tuple[Tensor, Tensor]:
    """The saved statistics as eager gives them: nothing to save outside of training on CPU."""
    dtype = stat_dtype(x, weight)
    if not training and x.device.type == "cpu":
        nothing = [p.full([0], 0, dtype=dtype, device=x.device) for _ in range(2)]
        return nothing[0], nothing[1]
    return e.cast(done.mean, dtype), e.cast(done.rstd, dtype)


def _write_back(running: Tensor | None, new: Tensor | None) -> None:
    if running is not None and new is not None:
        p.copy_(running, new)


def _reserve(x: Tensor) -> Tensor:
    return p.full([0], 0, dtype=torch.uint8, device=x.device)


def _or_copy(new: Tensor | None, old: Tensor | None) -> Tensor | None:
    return p.clone(old) if new is None and old is not None else new


def _register_forward(op: OpOverload, training: bool | None, *, writes: bool, after: str) -> None:
    """A forward overload; what it takes is found by its arguments' names.

    `training` is given where the overload does not take it. `writes` says that the running
    statistics are written in place; `after` what is returned after the result and the saved
    statistics: "running" ones, a "reserve" for another library, both in that order, or nothing.
    """
    names, _ = argument_names(op)

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        x, weight, bias = given["input"], given.get("weight"), given.get("bias")
        mean, var = given.get("running_mean"), given.get("running_var")
        flag = given["training"] if training is None else training
        momentum, eps = given["momentum"], given["eps"]
        native = "native_batch_norm" in str(op)
        done = normalize(x, weight, bias, mean, var, flag, momentum, eps, native)
        results: list[Any] = [done.out, *_saved(x, weight, done, flag)]
        if writes:
            _write_back(mean, done.running_mean)
            _write_back(var, done.running_var)
        if "reserve" in after:
            results.append(_reserve(x))
        if "running" in after:
            results += [_or_copy(done.running_mean, mean), _or_copy(done.running_var, var)]
        return tuple(results)

    decomposition(op, keep="batch_norm")(forward)


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


@decomposition(aten.cudnn_batch_norm.default, keep="batch_norm")
def cudnn_batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> Any:
    done = normalize(
        x, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon
    )
    _write_back(running_mean, done.running_mean)
    _write_back(running_var, done.running_var)
    if training:
        return done.out, done.mean, done.rstd, _reserve(x)
    nothing = [p.full([0], 0, dtype=weight.dtype, device=x.device) for _ in range(2)]
    return done.out, nothing[0], nothing[1], _reserve(x)


def differentiate(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    through_statistics: bool,
    output_mask: Sequence[bool],
) -> Any:
    """Gradients of input, scale and shift, given the statistics that the forward normalized by."""
    g, wide = e.widen(grad, x)
    dims, shape, dtype = all_but_channel(x), wide.shape, wide.dtype
    mean, rstd = e.cast(mean, dtype), e.cast(rstd, dtype)
    normal = p.mul(p.sub(wide, spread(mean, shape, dims)), spread(rstd, shape, dims))
    sum_g = p.sum(g, dims)
    sum_gn = p.sum(p.mul(g, normal), dims)
    scale = rstd if weight is None else p.mul(rstd, e.cast(weight, dtype))
    first = None
    if output_mask[0]:
        inner = g
        if through_statistics:
            number = e.as_number(e.count(shape, dims))
            inner = p.sub(g, spread(e.div(sum_g, number), shape, dims))
            pull = spread(e.div(sum_gn, number), shape, dims)
            inner = p.sub(inner, p.mul(normal, pull))
        first = e.cast(p.mul(inner, spread(scale, shape, dims)), x.dtype)
        first = e.in_image_format(x, first)
    own = dtype if weight is None else weight.dtype
    return (
        first,
        e.cast(sum_gn, own) if output_mask[1] else None,
        e.cast(sum_g, own) if output_mask[2] else None,
    )


@decomposition(aten.native_batch_norm_backward.default, keep="batch_norm")
def native_batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    if train:
        mean, rstd = save_mean, save_invstd
    elif running_mean is not None and running_var is not None:
        mean, rstd = running_mean, rstd_of(e.widen(running_var), eps)
    else:
        return NotImplemented
    if mean is None or rstd is None:
        return NotImplemented
    return differentiate(grad, x, weight, mean, rstd, train, output_mask)


@decomposition(aten.cudnn_batch_norm_backward.default, keep="batch_norm")
def cudnn_batch_norm_backward(
    x: Tensor,
    grad: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    epsilon: float,
    reserve: Tensor,
) -> Any:
    del reserve  # cudnn's notes to itself
    return native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_var, True, epsilon,
        [True, True, True],
    )  # fmt: skip


@decomposition(aten.batch_norm_backward.default, keep="batch_norm")
def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Tensor,
) -> Any:
    del reserve
    return native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


@decomposition(*overloads("batch_norm_stats", "default"))
def stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = moments(e.widen(x), all_but_channel(x), 0.0)
    return mean, rstd_of(variance, eps)


@decomposition(*overloads("batch_norm_elemt", "default"))
def normalize_by_sums(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    del eps  # `invstd` has it
    wide, dims = e.widen(x), all_but_channel(x)
    shift, scale = (spread(e.cast(t, wide.dtype), wide.shape, dims) for t in (mean, invstd))
    out = affine(p.mul(p.sub(wide, shift), scale), weight, bias, [1])
    return e.in_image_format(x, e.cast(out, x.dtype))


@decomposition(*overloads("batch_norm_backward_reduce", "default"))
def backward_reduce(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> Any:
    """(sum of g, sum of g (x - mean), gradient of the weight, of the bias)."""
    g, wide = e.widen(grad, x)
    dims = all_but_channel(x)
    centred = p.sub(wide, spread(e.cast(mean, wide.dtype), wide.shape, dims))
    total, along = p.sum(g, dims), p.sum(p.mul(g, centred), dims)
    own = wide.dtype if weight is None else weight.dtype
    none = p.full([0], 0, dtype=own, device=x.device)
    return (
        total if input_g else none,
        along if input_g else none,
        e.cast(p.mul(along, e.cast(invstd, along.dtype)), own) if weight_g else none,
        e.cast(total, own) if bias_g else none,
    )


@decomposition(*overloads("batch_norm_backward_elemt", "default"))
def backward_elemt(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    """(g - mean(g) - (x - mean) invstd**2 mean(g (x - mean))) invstd weight."""
    g, wide = e.widen(grad, x)
    dims, dtype = all_but_channel(x), wide.dtype
    number = p.sum(e.cast(count, dtype), list(range(count.ndim)))
    scale, shift = e.cast(invstd, dtype), e.cast(mean, dtype)
    average, along = (e.div(e.cast(t, dtype), number) for t in (sum_dy, sum_dy_xmu))
    pull = p.mul(along, p.mul(scale, scale))
    gain = scale if weight is None else p.mul(scale, e.cast(weight, dtype))
    average, shift, pull, gain = (spread(t, wide.shape, dims) for t in (average, shift, pull, gain))
    inner = p.sub(p.sub(g, average), p.mul(p.sub(wide, shift), pull))
    return e.in_image_format(x, e.cast(p.mul(inner, gain), x.dtype))
