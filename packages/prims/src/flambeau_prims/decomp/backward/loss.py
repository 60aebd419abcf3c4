"""Decompositions of loss gradients.

In: the gradient of the loss (0-d if it was reduced), predictions, targets. Out: the gradient of
the predictions. Invariant: `reduction` means what it meant in the forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.nn.loss import (
    MEAN,
    NONE,
    class_weights,
    likely_classes,
    margins,
    multilabel_gaps,
    multilabels,
    weighed,
)
from flambeau_prims.decomp.views.view import unsqueezed
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition
from flambeau_prims.promotion import compute_dtype, result_type

aten = torch.ops.aten


def _pairwise(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    reduction: int,
    slope: Callable[[Tensor, Tensor], Tensor],
) -> Any:
    """grad * slope(x, target), over the number of elements if the loss was their mean."""
    dtype = result_type((x, target, grad))
    if not dtype.is_floating_point:
        return NotImplemented
    a, b, g = e.meet(*(e.cast(t, compute_dtype(dtype)) for t in (x, target, grad)))
    each = p.mul(slope(a, b), g)
    if reduction == MEAN:
        each = e.div(each, e.as_number(a.numel()))
    return e.cast(each, dtype)


def _in_rows(found: Any) -> Any:
    """A gradient that eager's kernel writes row-major whatever the layout of its operands."""
    return found if found is NotImplemented else e.in_format(found, torch.contiguous_format)


@decomposition(aten.mse_loss_backward.default)
def mse_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    return _in_rows(_pairwise(grad, x, target, reduction, lambda a, b: e.mul(p.sub(a, b), 2.0)))


@decomposition(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float
) -> Any:
    def slope(a: Tensor, b: Tensor) -> Tensor:
        gap = p.sub(a, b)
        if beta == 0.0:
            return p.sign(gap)
        return p.where(e.ge(p.abs(gap), beta), p.sign(gap), e.div(gap, beta))

    return _in_rows(_pairwise(grad, x, target, reduction, slope))


@decomposition(aten.huber_loss_backward.default)
def huber_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, delta: float
) -> Any:
    def slope(a: Tensor, b: Tensor) -> Tensor:
        return e.minimum(e.maximum(p.sub(a, b), -delta), delta)

    return _in_rows(_pairwise(grad, x, target, reduction, slope))


@decomposition(aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Any:
    def slope(a: Tensor, t: Tensor) -> Tensor:
        floor = e.maximum(p.mul(e.sub(1.0, a), a), 1e-12)
        each = p.div(p.sub(a, t), floor)
        return each if weight is None else e.mul(each, e.cast(weight, each.dtype))

    return e.laid_out_as(x, _pairwise(grad, x, target, reduction, slope))


@by_name(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(a: Arguments) -> Any:
    x, target = a.self, likely_classes(a.self, a.target)
    classes = 0 if x.ndim == 1 else 1
    if x.ndim == 1 and target.ndim == 1:
        target = p.reshape(target, [])
    dtype = compute_dtype(x.dtype)
    safe, weights, kept = class_weights(a.weight, target, a.ignore_index, dtype)
    g = e.cast(a.grad_output, dtype)
    if a.reduction == MEAN:
        g = p.div(g, e.cast(a.total_weight, dtype))
    if a.reduction != NONE or x.ndim == 1:
        g = e.expand(p.reshape(g, []), weights.shape)
    # where, not a product: with every target ignored the mean's gradient is 0 / 0
    each = e.where(kept, p.neg(p.mul(g, weights)), 0.0)
    # The one-hot product fuses; a scatter would not.
    shape = list(x.shape)
    count = e.counted(x.shape[classes], x.device)
    number = p.broadcast_in_dim(count, shape, [classes])
    hit = p.eq(number, e.expand(unsqueezed(safe, classes), shape))
    slope = e.cast(e.where(hit, e.expand(unsqueezed(each, classes), shape), 0.0), x.dtype)
    return e.laid_out_as(x, slope) if x.ndim == 4 else slope


@by_name(aten._ctc_loss_backward.default)
def ctc_loss_backward(a: Arguments) -> Any:
    lengths = list(a.input_lengths), list(a.target_lengths)
    results = (a.neg_log_likelihood, a.log_alpha)
    return p.ctc_loss_backward(
        a.grad, a.log_probs, a.targets, *lengths, *results, a.blank, a.zero_infinity
    )


@decomposition(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(grad: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    """By eager's operators, each rounded to the dtype: where the power overflows the slope is NaN,
    and the mean's factor is a number of the dtype, multiplied before the quotient."""
    dtype = result_type((x, target, grad))
    if not dtype.is_floating_point:
        return NotImplemented
    wide = compute_dtype(dtype)
    a, t, g = e.meet(*(e.cast(y, wide) for y in (x, target, grad)))

    def rounded(y: Tensor) -> Tensor:
        return e.cast(e.cast(y, dtype), wide)

    power = rounded(p.exp(rounded(p.mul(p.neg(t), a))))
    norm = 1.0 / float(a.numel()) if reduction == MEAN else 1.0
    above = rounded(p.mul(rounded(p.mul(t, power)), rounded(e.const(-norm, power))))
    slope = rounded(p.div(above, rounded(e.add(power, 1.0))))
    return e.cast(p.mul(slope, g), dtype)


def _per_row(grad: Tensor, rows: int, x: Tensor, reduction: int) -> Tensor:
    """The gradient of each row's loss, in the dtype that it is computed in."""
    g = e.cast(grad, compute_dtype(x.dtype))
    if reduction == NONE and x.ndim > 1:
        return g
    g = p.broadcast_in_dim(p.reshape(g, []), [rows], [])
    return e.div(g, float(rows)) if reduction == MEAN else g


@by_name(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward(a: Arguments) -> Any:
    x = a.self
    if e.count(x.shape, range(x.ndim)) == 0:
        return NotImplemented
    gap, hit, factor, classes = margins(a)
    slope = e.const(1.0, gap) if a.p == 1 else e.mul(gap, 2.0)
    shape = list(gap.shape)
    g = p.broadcast_in_dim(_per_row(a.grad_output, shape[0], x, a.reduction), shape, [0])
    each = e.div(p.mul(weighed(gap, slope, factor), g), float(classes))
    own = p.broadcast_in_dim(p.neg(p.sum(each, [1])), shape, [0])
    return e.cast(p.reshape(p.where(hit, own, each), list(x.shape)), x.dtype)


@decomposition(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Any:
    del is_target  # found again from the targets
    if e.count(x.shape, range(x.ndim)) == 0:
        return NotImplemented
    rows, named, is_label = multilabels(e.widen(x), target)
    violated = e.cast(e.gt(multilabel_gaps(rows, named, is_label), 0.0), rows.dtype)
    shape = list(named.shape)
    lost = p.broadcast_in_dim(p.sum(violated, [2]), shape, [0, 1])
    of_labels = p.sum(e.where(named, lost, 0.0), [1])
    slope = e.div(p.sub(p.sum(violated, [1]), of_labels), e.as_number(shape[2]))
    g = p.broadcast_in_dim(_per_row(grad, shape[0], x, reduction), list(slope.shape), [0])
    return e.cast(p.reshape(p.mul(slope, g), list(x.shape)), x.dtype)
