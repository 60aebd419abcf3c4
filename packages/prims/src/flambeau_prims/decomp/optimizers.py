"""Decompositions of fused optimizer steps: Adam, AdamW, SGD, Adagrad.

In: parameters, gradients and state, as torch's optimizers hand them to the fused kernels.
Out: all of them after the step, in the order of the functional overloads.
Invariant: computed wide for half precision; with `found_inf` set nothing changes.

The formulas are those of torch.optim's documentation (Kingma and Ba 2015; Loshchilov and Hutter
2019; Sutskever et al. 2013; Duchi et al. 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.promotion import compute_dtype
from flambeau_prims.table import decomposition

aten = torch.ops.aten
Tensors = Sequence[Tensor]


def _number(value: Any, dtype: torch.dtype) -> Any:
    """A hyperparameter as an operand: a Python number, or a tensor without dimensions."""
    return value if e.is_number(value) else p.reshape(e.cast(value, dtype), [])


def _unscaled(grad: Tensor, scale: Tensor | None) -> Tensor:
    if scale is None:
        return p.clone(grad)
    wide = e.widen(grad)
    return e.cast(e.div(wide, _number(scale, wide.dtype)), grad.dtype)


def _unless(found_inf: Tensor | None, old: Tensor, new: Tensor) -> Tensor:
    """`new`, in the dtype of `old`; `old` if an infinity was found among the gradients."""
    new = e.cast(new, old.dtype)
    if found_inf is None:
        return new
    stop = e.ne(p.reshape(found_inf, []), 0)
    return e.where(stop, old, new)


def _gradient(grad: Tensor, param: Tensor, weight_decay: float, maximize: bool) -> Tensor:
    """The direction to go against: negated to maximize, with the decay of the weights added."""
    direction = p.neg(grad) if maximize else grad
    return p.add(direction, e.mul(param, weight_decay)) if weight_decay else direction


def _correction(beta: float, step: Tensor, dtype: torch.dtype) -> Tensor:
    """1 - beta**step, computed in float64 as the kernel does."""
    count = p.reshape(e.cast(step, torch.float64), [])
    power = p.pow(p.full([], beta, dtype=torch.float64, device=step.device), count)
    return e.cast(e.sub(1.0, power), dtype)


def _adam_one(
    param: Tensor,
    grad: Tensor,
    mean: Tensor,
    square: Tensor,
    largest: Tensor | None,
    step: Tensor,
    *,
    decoupled: bool,
    lr: Any,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    dtype = compute_dtype(param.dtype)
    w, g, m, v = (e.cast(t, dtype) for t in (param, grad, mean, square))
    rate = _number(lr, dtype)
    g = _gradient(g, w, 0.0 if decoupled else weight_decay, maximize)
    if decoupled and weight_decay:
        shrink = 1.0 - lr * weight_decay if e.is_number(lr) else e.sub(
            1.0, e.mul(rate, weight_decay))  # fmt: skip
        w = e.mul(w, shrink)
    m = p.add(m, e.mul(p.sub(g, m), 1.0 - beta1))
    v = p.add(e.mul(v, beta2), e.mul(p.mul(g, g), 1.0 - beta2))
    top = None if largest is None else p.maximum(e.cast(largest, dtype), v)
    size = e.div(rate, _correction(beta1, step, dtype))
    root = p.sqrt(_correction(beta2, step, dtype))
    below = e.add(e.div(p.sqrt(v if top is None else top), root), eps)
    return p.sub(w, e.mul(p.div(m, below), size)), m, v, top


def _adam(decoupled: bool) -> Any:
    def call(
        params: Tensors,
        grads: Tensors,
        means: Tensors,
        squares: Tensors,
        largest: Tensors,
        steps: Tensors,
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> Any:
        rows: list[list[Tensor]] = [[], [], [], [], []]
        for i, param in enumerate(params):
            grad = _unscaled(grads[i], grad_scale)
            old = (param, means[i], squares[i], largest[i] if amsgrad else None)
            new = _adam_one(
                param, grad, means[i], squares[i], old[3], steps[i], decoupled=decoupled,
                lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay, eps=eps,
                maximize=maximize,
            )  # fmt: skip
            rows[1].append(grad)
            for row, before, after in zip((0, 2, 3, 4), old, new, strict=True):
                if before is not None and after is not None:
                    rows[row].append(_unless(found_inf, before, after))
        if not amsgrad:
            rows[4] = [p.clone(t) for t in largest]
        return tuple(rows)

    return call


decomposition(*overloads("_fused_adam", "default", "tensor_lr"))(_adam(False))
decomposition(*overloads("_fused_adamw", "default", "tensor_lr"))(_adam(True))


@decomposition(*overloads("_fused_sgd", "default", "tensor_lr"))
def sgd(
    params: Tensors,
    grads: Tensors,
    buffers: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> Any:
    rows: list[list[Tensor]] = [[], [], []]
    for i, param in enumerate(params):
        grad = _unscaled(grads[i], grad_scale)
        dtype = compute_dtype(param.dtype)
        w = e.cast(param, dtype)
        g = _gradient(e.cast(grad, dtype), w, weight_decay, maximize)
        if momentum:
            kept = g
            if not is_first_step:
                kept = p.add(e.mul(e.cast(buffers[i], dtype), momentum), e.mul(g, 1.0 - dampening))
            rows[2].append(_unless(found_inf, buffers[i], kept))
            g = p.add(g, e.mul(kept, momentum)) if nesterov else kept
        new = p.sub(w, e.mul(g, _number(lr, dtype)))
        rows[0].append(_unless(found_inf, param, new))
        rows[1].append(grad)
    if not momentum:
        rows[2] = [p.clone(t) for t in buffers]
    return tuple(rows)


@decomposition(*overloads("_fused_adagrad", "default", "tensor_lr"))
def adagrad(
    params: Tensors,
    grads: Tensors,
    sums: Tensors,
    steps: Tensors,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> Any:
    rows: list[list[Tensor]] = [[], [], [], [p.clone(t) for t in steps]]
    for i, param in enumerate(params):
        grad = _unscaled(grads[i], grad_scale)
        dtype = compute_dtype(param.dtype)
        w = e.cast(param, dtype)
        g = _gradient(e.cast(grad, dtype), w, weight_decay, maximize)
        total = p.add(e.cast(sums[i], dtype), p.mul(g, g))
        before = e.sub(p.reshape(e.cast(steps[i], dtype), []), 1.0)
        rate = e.div(_number(lr, dtype), e.add(e.mul(before, lr_decay), 1.0))
        step = p.div(g, e.add(p.sqrt(total), eps))
        rows[0].append(_unless(found_inf, param, p.sub(w, e.mul(step, rate))))
        rows[1].append(grad)
        rows[2].append(_unless(found_inf, sums[i], total))
    return tuple(rows) if e.is_number(lr) else tuple(rows[:3])
