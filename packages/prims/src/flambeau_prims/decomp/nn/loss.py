"""Decompositions of loss functions.

In: predictions and targets. Out: prims. `reduction` is ATen's 0 none, 1 mean, 2 sum.
Invariant: the reduction happens in float32 for half precision, with one rounding at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import soft_margin_by_log1p
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.indexing.indexing import LONG, positions, within
from flambeau_prims.decomp.views.view import unsqueezed
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition
from flambeau_prims.promotion import compute_dtype, result_type
from flambeau_prims.shape_rules import Size

aten = torch.ops.aten
NONE, MEAN, SUM = 0, 1, 2


def reduce_loss(loss: Tensor, reduction: int) -> Tensor:
    """Mean or sum over everything, or the losses as they are."""
    if reduction == NONE:
        return loss
    total = p.sum(loss, list(range(loss.ndim)))
    return e.div(total, e.as_number(loss.numel())) if reduction == MEAN else total


def _pairwise(
    x: Tensor, target: Tensor, reduction: int, loss: Callable[[Tensor, Tensor], Tensor]
) -> Any:
    dtype = result_type((x, target))
    if not dtype.is_floating_point:
        return NotImplemented
    a, b = e.meet(*(e.cast(t, compute_dtype(dtype)) for t in (x, target)))
    found = e.cast(reduce_loss(loss(a, b), reduction), dtype)
    return e.laid_out_by((x, target), found, dtype) if reduction == NONE else found


def _as_judged(x: Tensor, loss: Any) -> Any:
    """A loss in the dtype of what is judged, whatever the target's."""
    return loss if loss is NotImplemented else e.cast(loss, x.dtype)


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
    if delta <= 0 or not torch.can_cast(result_type((x, target)), x.dtype):
        return NotImplemented  # eager has the message

    def loss(a: Tensor, b: Tensor) -> Tensor:
        gap = p.abs(p.sub(a, b))
        near = e.mul(_square(gap), 0.5)
        return p.where(e.lt(gap, delta), near, e.mul(e.sub(gap, 0.5 * delta), delta))

    found = _as_judged(x, _pairwise(x, target, reduction, loss))
    none = found is not NotImplemented and reduction == NONE
    return e.laid_out_as(x, found) if none else found


@decomposition(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    a, t = e.widen(x, target)
    likely = p.logical_and(e.ge(a, 0.0), e.le(a, 1.0))
    p.assert_true(
        p.all(likely, list(range(a.ndim))), "all elements of input should be between 0 and 1"
    )
    # logarithms are cut off at -100, so that no loss is infinite
    yes = e.maximum(p.log(a), -100.0)
    no = e.maximum(p.log1p(p.neg(a)), -100.0)
    loss = p.sub(p.mul(e.sub(t, 1.0), no), p.mul(t, yes))
    if weight is not None:
        loss = e.mul(loss, e.widen(weight))
    if reduction == NONE:
        loss = e.laid_out_as(x, loss)
    return e.cast(reduce_loss(loss, reduction), x.dtype)


@by_name(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(a: Arguments) -> Any:
    given = [t for t in (a.self, a.target, a.weight, a.pos_weight) if t is not None]
    dtype, result = result_type(given), a.target.dtype  # the loss is written like the target
    if not (dtype.is_floating_point and result.is_floating_point):
        return NotImplemented
    if not e.fits(*given):
        return NotImplemented  # eager multiplies the loss of each element in place
    x, t = (e.cast(v, compute_dtype(dtype)) for v in (a.self, a.target))
    log_sigmoid = p.sub(e.minimum(x, 0.0), p.log1p(p.exp(p.neg(p.abs(x)))))
    if a.pos_weight is not None:
        factor = e.add(e.mul(e.sub(e.cast(a.pos_weight, x.dtype), 1.0), t), 1.0)
        log_sigmoid = e.mul(log_sigmoid, factor)
    loss = e.sub(e.mul(e.sub(1.0, t), x), log_sigmoid)
    if a.weight is not None:
        loss = e.mul(loss, e.cast(a.weight, x.dtype))
    if a.reduction == NONE:  # eager writes to one minus the target
        loss = e.laid_out_by((1.0, a.target), loss)
    return e.cast(reduce_loss(loss, a.reduction), result)


def likely_classes(x: Tensor, target: Tensor) -> Tensor:
    """The targets of `nll_loss` in int64; those of images (`x` is 4-d) may not be bytes."""
    taken = LONG if x.ndim == 4 else (*LONG, torch.uint8)
    return positions("nll_loss", target, taken)


def class_weights(
    weight: Tensor | None,
    target: Tensor,
    ignore_index: int,
    dtype: torch.dtype,
    classes: Size | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(targets made safe to gather by, weight of each target: 0 if ignored, kept or not).

    Those that are kept are looked at where the number of `classes` is given.
    """
    kept = e.ne(target, ignore_index)
    safe = e.where(kept, target, 0)
    if classes is not None:
        safe = within(safe, classes, "IndexError", "Target {index} is out of bounds.")
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
    target = likely_classes(x, target)
    classes = 0 if x.ndim == 1 else 1
    wide = e.widen(x)
    if x.ndim == 1 and target.ndim == 1:  # one sample, its target in a vector of one
        target = p.reshape(target, [])
    size = x.shape[classes]
    safe, weights, kept = class_weights(weight, target, ignore_index, wide.dtype, size)
    picked = p.gather(wide, classes, unsqueezed(safe, classes))
    picked = p.reshape(picked, list(target.shape))
    # where, not a product: an ignored log-probability may be infinite
    losses = e.where(kept, p.neg(p.mul(picked, weights)), 0.0)
    everything = list(range(losses.ndim))
    if reduction == NONE and x.ndim > 1:
        losses = e.in_format(e.cast(losses, x.dtype), torch.contiguous_format)
        return losses, e.filled(x, [])
    total_weight = p.sum(weights, everything)
    total = p.sum(losses, everything)
    if reduction == MEAN:
        total = p.div(total, total_weight)
    return e.cast(total, x.dtype), e.cast(total_weight, x.dtype)


@by_name(aten._ctc_loss.default)
def ctc_loss(a: Arguments) -> Any:
    lengths = list(a.input_lengths), list(a.target_lengths)
    return tuple(p.ctc_loss(a.log_probs, a.targets, *lengths, a.blank, a.zero_infinity))


def positive_part(gap: Tensor) -> Tensor:
    """What a violated margin counts: a gap above zero; NaN is none."""
    return e.where(e.gt(gap, 0.0), gap, 0.0)


def margins(a: Arguments) -> tuple[Tensor, Tensor, Tensor, int]:
    """([N, C] margins violated, [N, C] which is the target, [N, C] weights, C)."""
    x = e.widen(a.self)
    rows = p.reshape(x, [1, e.count(x.shape, range(x.ndim))]) if x.ndim < 2 else x
    n, classes = rows.shape
    wanted = p.reshape(positions("multi_margin_loss", a.target, LONG), [n])
    wanted = within(wanted, classes, "RuntimeError", "target out of range")
    own = p.gather(rows, 1, p.reshape(wanted, [n, 1]))
    gap = positive_part(e.add(p.sub(rows, e.expand(own, rows.shape)), a.margin))
    hit = p.eq(
        p.broadcast_in_dim(e.counted(classes, x.device),
                           [n, classes], [1]),
        p.broadcast_in_dim(wanted, [n, classes], [0]),
    )  # fmt: skip
    factor = e.const(1.0, rows)
    if a.weight is not None:
        chosen = p.index_select(e.cast(a.weight, x.dtype), 0, wanted)
        factor = p.broadcast_in_dim(chosen, [n, classes], [0])
    return e.where(hit, 0.0, gap), hit, factor, classes


def weighed(gap: Tensor, value: Tensor, factor: Tensor) -> Tensor:
    """`value * factor` where a margin is violated; a weight may be infinite where none is."""
    return e.where(e.gt(gap, 0.0), p.mul(value, factor), 0.0)


@by_name(aten.multi_margin_loss.default)
def multi_margin_loss(a: Arguments) -> Any:
    """Sum over wrong classes of weight * max(0, margin - x[y] + x[i])**p / C."""
    x = a.self
    if e.count(x.shape, range(x.ndim)) == 0:
        return NotImplemented
    gap, _, factor, classes = margins(a)
    each = weighed(gap, gap if a.p == 1 else p.mul(gap, gap), factor)
    losses = e.div(p.sum(each, [1]), float(classes))
    if x.ndim < 2:
        losses = p.reshape(losses, list(a.target.shape))  # the kernel keeps one element
    return e.cast(reduce_loss(losses, a.reduction), x.dtype)


@decomposition(aten.soft_margin_loss.default)
def soft_margin_loss(x: Tensor, target: Tensor, reduction: int = MEAN) -> Any:
    """By eager's operators, each rounded to the tensors' dtype, in which the power overflows; the
    last ones write to what has the shape of the first tensor, whatever the target's."""
    if not e.fits(x, target):
        return NotImplemented

    def loss(a: Tensor, t: Tensor) -> Tensor:
        def rounded(y: Tensor) -> Tensor:
            return e.cast(e.cast(y, x.dtype), y.dtype)

        power = rounded(p.exp(rounded(p.mul(p.neg(a), t))))
        return p.log1p(power) if soft_margin_by_log1p() else p.log(rounded(e.add(power, 1.0)))

    return _as_judged(x, _pairwise(x, target, reduction, loss))


def multilabels(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, [N, K, C] which label is which class, [N, C] whether it is a label).

    A row of `target` lists labels up to the first -1.
    """
    rows = p.reshape(x, [1, e.count(x.shape, range(x.ndim))]) if x.ndim < 2 else x
    n, classes = rows.shape
    labels = p.reshape(positions("multilabel_margin_loss", target, LONG), list(rows.shape))
    # -1, which ends the labels, is a place among one more
    raised = within(
        e.add(labels, 1), classes + 1, "RuntimeError", "argument #2 'target' is out of range"
    )
    labels = e.sub(raised, 1)
    ended = e.gt(p.cumsum(e.cast(e.lt(labels, 0), torch.int64), 1), 0)
    count = e.counted(classes, x.device)
    shape = [n, classes, classes]
    named = p.eq(p.broadcast_in_dim(labels, shape, [0, 1]), p.broadcast_in_dim(count, shape, [2]))
    named = p.logical_and(named, p.broadcast_in_dim(p.logical_not(ended), shape, [0, 1]))
    return rows, named, p.any(named, [1])


def multilabel_gaps(rows: Tensor, named: Tensor, is_label: Tensor) -> Tensor:
    """[N, K, C]: max(0, 1 - x[label k] + x[c]) for each label k and each c that is none."""
    shape = list(named.shape)
    x = p.broadcast_in_dim(rows, shape, [0, 2])
    of_label = p.sum(e.where(named, x, 0.0), [2])
    given = p.any(named, [2])
    gap = p.sub(e.add(x, 1.0), p.broadcast_in_dim(of_label, shape, [0, 1]))
    counts = p.logical_and(
        p.broadcast_in_dim(given, shape, [0, 1]),
        p.broadcast_in_dim(p.logical_not(is_label), shape, [0, 2]),
    )
    return e.where(counts, positive_part(gap), 0.0)


@decomposition(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(x: Tensor, target: Tensor, reduction: int) -> Any:
    if e.count(x.shape, range(x.ndim)) == 0:
        return NotImplemented
    rows, named, is_label = multilabels(e.widen(x), target)
    gaps = multilabel_gaps(rows, named, is_label)
    losses = e.div(p.sum(gaps, [1, 2]), e.as_number(rows.shape[1]))
    if x.ndim < 2:
        losses = p.reshape(losses, [])
    marks = p.reshape(e.cast(is_label, x.dtype), list(target.shape))
    return e.cast(reduce_loss(losses, reduction), x.dtype), marks
