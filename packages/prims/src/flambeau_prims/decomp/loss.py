"""Loss functions.

In: predictions and targets. Out: prims. `reduction` is ATen's 0 none, 1 mean, 2 sum.
Invariant: the reduction happens in float32 for half precision, with one rounding at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.view import unsqueezed
from flambeau_prims.promotion import compute_dtype, result_type
from flambeau_prims.table import decomposition

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2


def reduce_loss(loss: Tensor, reduction: int) -> Tensor:
    """Mean or sum over everything, or the losses as they are."""
    if reduction == NONE:
        return loss
    total = p.sum(loss, list(range(loss.ndim)))
    return e.div(total, float(loss.numel())) if reduction == MEAN else total


def _pairwise(
    x: Tensor, target: Tensor, reduction: int, loss: Callable[[Tensor, Tensor], Tensor]
) -> Any:
    dtype = result_type((x, target))
    if not dtype.is_floating_point:
        return NotImplemented
    a, b = e.meet(*(e.cast(t, compute_dtype(dtype)) for t in (x, target)))
    return e.cast(reduce_loss(loss(a, b), reduction), dtype)


def _square(x: Tensor) -> Tensor:
    return p.mul(x, x)


@decomposition(aten.mse_loss.default)
def mse_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Any:
    return _pairwise(x, target, reduction, lambda a, b: _square(p.sub(a, b)))


@decomposition(aten.smooth_l1_loss.default)
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Any:
    def loss(a: Tensor, b: Tensor) -> Tensor:
        gap = p.abs(p.sub(a, b))
        if beta == 0.0:
            return gap
        near = e.div(e.mul(_square(gap), 0.5), beta)
        return p.where(e.lt(gap, beta), near, e.sub(gap, 0.5 * beta))

    return _pairwise(x, target, reduction, loss)


@decomposition(aten.huber_loss.default)
def huber_loss(x: Tensor, target: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Any:
    def loss(a: Tensor, b: Tensor) -> Tensor:
        gap = p.abs(p.sub(a, b))
        near = e.mul(_square(gap), 0.5)
        return p.where(e.lt(gap, delta), near, e.mul(e.sub(gap, 0.5 * delta), delta))

    return _pairwise(x, target, reduction, loss)


@decomposition(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    a, t = e.widen(x, target)
    # logarithms are cut off at -100, so that no loss is infinite
    yes = e.maximum(p.log(a), -100.0)
    no = e.maximum(p.log1p(p.neg(a)), -100.0)
    loss = p.sub(p.mul(e.sub(t, 1.0), no), p.mul(t, yes))
    if weight is not None:
        loss = e.mul(loss, e.widen(weight))
    return e.cast(reduce_loss(loss, reduction), x.dtype)


@decomposition(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Any:
    dtype = result_type([t for t in (x, target, weight, pos_weight) if t is not None])
    if not dtype.is_floating_point:
        return NotImplemented
    a, t = (e.cast(v, compute_dtype(dtype)) for v in (x, target))
    log_sigmoid = p.sub(e.minimum(a, 0.0), p.log1p(p.exp(p.neg(p.abs(a)))))
    if pos_weight is not None:
        factor = e.add(e.mul(e.sub(e.cast(pos_weight, a.dtype), 1.0), t), 1.0)
        log_sigmoid = e.mul(log_sigmoid, factor)
    loss = e.sub(e.mul(e.sub(1.0, t), a), log_sigmoid)
    if weight is not None:
        loss = e.mul(loss, e.cast(weight, a.dtype))
    return e.cast(reduce_loss(loss, reduction), dtype)


def class_weights(
    weight: Tensor | None, target: Tensor, ignore_index: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """(targets made safe to gather by, weight of each target: 0 if ignored, kept or not)."""
    kept = e.ne(target, ignore_index)
    safe = e.where(kept, target, 0)
    if weight is None:
        return safe, e.cast(kept, dtype), kept
    flat = p.reshape(safe, [safe.numel()])
    chosen = p.reshape(p.index_select(e.cast(weight, dtype), 0, flat), list(safe.shape))
    return safe, e.where(kept, chosen, 0.0), kept


@decomposition(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> Any:
    """`x` is [C], [N, C] or [N, C, ...] of log-probabilities, `target` the same without C."""
    if target.dtype != torch.int64:
        target = e.cast(target, torch.int64)
    classes = 0 if x.ndim == 1 else 1
    wide = e.widen(x)
    if x.ndim == 1 and target.ndim == 1:  # one sample, its target in a vector of one
        target = p.reshape(target, [])
    safe, weights, kept = class_weights(weight, target, ignore_index, wide.dtype)
    picked = p.gather(wide, classes, unsqueezed(safe, classes))
    picked = p.reshape(picked, list(target.shape))
    # where, not a product: an ignored log-probability may be infinite
    losses = e.where(kept, p.neg(p.mul(picked, weights)), 0.0)
    everything = list(range(losses.ndim))
    if reduction == NONE and x.ndim > 1:
        return e.cast(losses, x.dtype), p.full([], 0, dtype=x.dtype, device=x.device)
    total_weight = p.sum(weights, everything)
    total = p.sum(losses, everything)
    if reduction == MEAN:
        total = p.div(total, total_weight)
    return e.cast(total, x.dtype), e.cast(total_weight, x.dtype)
