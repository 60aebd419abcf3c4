"""Decompositions of operators on lists of tensors: foreach, fused optimizer steps.

In: lists of tensors, and lists or single numbers; parameters, gradients and state, as torch's
optimizers hand them to the fused kernels. Out: lists; all of them after the step, in the order of
the functional overloads.
Invariant: an entry's result is what the operation on that entry alone gives by the table; if the
table leaves one of them, the whole stays. A step is computed wide for half precision; with
`found_inf` set nothing changes.

The formulas of the steps are those of torch.optim's documentation (Kingma and Ba 2015; Loshchilov
and Hutter 2019; Sutskever et al. 2013; Duchi et al. 2011).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomposition_table import (
    TABLE,
    Arguments,
    Decomposition,
    by_name,
    decomposition,
    overloads,
)
from flambeau_prims.promotion import compute_dtype

aten = torch.ops.aten

# `_foreach_<name>` on one list: the operation of this name
_UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp"),
    *("expm1", "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal"),
    *("round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)

# `_foreach_<name>.<kind>`: the operation on an entry; a second list, number or tensor follows it
_BINARY: dict[str, dict[str, Any]] = {
    "add": {"Scalar": aten.add.Scalar, "List": aten.add.Tensor, "Tensor": aten.add.Tensor},
    "sub": {"Scalar": aten.sub.Scalar, "List": aten.sub.Tensor},
    "mul": {"Scalar": aten.mul.Scalar, "List": aten.mul.Tensor, "Tensor": aten.mul.Tensor},
    "div": {"Scalar": aten.div.Scalar, "List": aten.div.Tensor, "Tensor": aten.div.Tensor},
    "clamp_max": {"Scalar": aten.clamp_max.default, "List": aten.minimum.default},
    "clamp_min": {"Scalar": aten.clamp_min.default, "List": aten.maximum.default},
    "maximum": {"Scalar": aten.clamp_min.default, "List": aten.maximum.default},
    "minimum": {"Scalar": aten.clamp_max.default, "List": aten.minimum.default},
    "pow": {"Scalar": aten.pow.Tensor_Scalar, "List": aten.pow.Tensor_Tensor},
    "copy": {"default": aten.copy.default},
    "mm": {"default": aten.mm.default},  # new in torch 2.13
}


def _each(op: Any, lists: Sequence[Sequence[Any]], **kwargs: Any) -> Any:
    function = TABLE.get(op)
    if function is None:
        return NotImplemented
    results = [function(*entry, **kwargs) for entry in zip(*lists, strict=True)]
    return NotImplemented if any(r is NotImplemented for r in results) else results


def _repeated(value: Any, like: Sequence[Any]) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value] * len(like)


def _unary(op: Any) -> Decomposition:
    def call(tensors: Sequence[Tensor]) -> Any:
        return _each(op, [tensors])

    return call


def _binary(op: Any) -> Decomposition:
    def call(tensors: Sequence[Tensor], other: Any, *rest: Any, **kwargs: Any) -> Any:
        if kwargs.get("alpha") == 1:
            kwargs.pop("alpha")
        others = _repeated(other, tensors)
        return _each(op, [tensors, others, *(_repeated(r, tensors) for r in rest)], **kwargs)

    return call


for _name in _UNARY:
    decomposition(*overloads(f"_foreach_{_name}", "default"))(_unary(getattr(aten, _name).default))
for _name, _kinds in _BINARY.items():
    for _kind, _op in _kinds.items():
        _also = ["ScalarList"] if _kind == "Scalar" else []
        decomposition(*overloads(f"_foreach_{_name}", _kind, *_also))(_binary(_op))


@decomposition(aten._foreach_pow.ScalarAndTensor)
def pow_of_number(base: Any, exponents: Sequence[Tensor]) -> Any:
    return _each(aten.pow.Scalar, [[base] * len(exponents), exponents])


def _weighted(op: Any) -> Decomposition:
    """`addcmul` and `addcdiv`, whose weights are one number, a list, or a tensor of them."""

    def call(xs: Sequence[Tensor], a: Sequence[Tensor], b: Sequence[Tensor], value: Any = 1) -> Any:
        if isinstance(value, (list, tuple)):
            results = [_each(op, [[x], [s], [t]], value=v) for x, s, t, v in zip(
                xs, a, b, value, strict=True)]  # fmt: skip
            if any(r is NotImplemented for r in results):
                return NotImplemented
            return [r[0] for r in results]
        if not e.is_number(value):
            return NotImplemented  # its entries are Python numbers in eager: they would be read
        return _each(op, [xs, a, b], value=value)

    return call


for _name in ("addcmul", "addcdiv"):
    decomposition(*overloads(f"_foreach_{_name}", "Scalar", "ScalarList", "Tensor"))(
        _weighted(getattr(aten, _name).default)
    )


@decomposition(*overloads("_foreach_lerp", "List", "Scalar", "ScalarList"))
def lerp(starts: Sequence[Tensor], ends: Sequence[Tensor], weight: Any) -> Any:
    op = aten.lerp.Scalar
    if isinstance(weight, (list, tuple)) and not e.is_number(next(iter(weight), 0.0)):
        op = aten.lerp.Tensor
    return _each(op, [starts, ends, _repeated(weight, starts)])


@decomposition(*overloads("_foreach_norm", "Scalar"))
def norm(tensors: Sequence[Tensor], ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
    return _each(aten.linalg_vector_norm.default, [tensors, [ord] * len(tensors)], dtype=dtype)


@decomposition(*overloads("_foreach_powsum", "Scalar"))
def powsum(tensors: Sequence[Tensor], ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
    return _each(aten.linalg__powsum.default, [tensors, [ord] * len(tensors)], dtype=dtype)


@decomposition(*overloads("_foreach_max", "default"))
def largest(tensors: Sequence[Tensor]) -> Any:
    return _each(aten.max.default, [tensors])


@decomposition(*overloads("_foreach_clone", "default"))
def clone(tensors: Sequence[Tensor], *, memory_format: torch.memory_format | None = None) -> Any:
    return [e.copy_in_format(x, memory_format) for x in tensors]


@decomposition(*overloads("_foreach_zero", "default"))
def zero(tensors: Sequence[Tensor]) -> Any:
    return _each(aten.zeros_like.default, [tensors])


@decomposition(*overloads("_amp_foreach_non_finite_check_and_unscale", "default"))
def check_and_unscale(
    tensors: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Scaled gradients by the inverse of the scale, and 1 if one of them is not finite."""
    found, unscaled = found_inf, []
    for x in tensors:
        wide = e.widen(x)
        infinite = TABLE[aten.any.default](p.logical_or(p.isnan(x), p.isinf(x)))
        found = e.where(p.reshape(infinite, list(found.shape)), 1.0, found)
        unscaled.append(e.cast(e.mul(wide, e.cast(p.reshape(inv_scale, []), wide.dtype)), x.dtype))
    return unscaled, found


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
    power = p.pow(e.filled(step, [], beta, torch.float64), count)
    return e.cast(e.sub(1.0, power), dtype)


def _adam_one(
    a: Arguments, i: int, grad: Tensor, decoupled: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(parameter, mean, square, largest square) after a step of one entry."""
    param, step = a.self[i], a.state_steps[i]
    dtype = compute_dtype(param.dtype)
    w, g, m, v = (e.cast(t, dtype) for t in (param, grad, a.exp_avgs[i], a.exp_avg_sqs[i]))
    rate = _number(a.lr, dtype)
    g = _gradient(g, w, 0.0 if decoupled else a.weight_decay, a.maximize)
    if decoupled and a.weight_decay:
        shrink = 1.0 - a.lr * a.weight_decay if e.is_number(a.lr) else e.sub(
            1.0, e.mul(rate, a.weight_decay))  # fmt: skip
        w = e.mul(w, shrink)
    m = p.add(m, e.mul(p.sub(g, m), 1.0 - a.beta1))
    v = p.add(e.mul(v, a.beta2), e.mul(p.mul(g, g), 1.0 - a.beta2))
    top = p.maximum(e.cast(a.max_exp_avg_sqs[i], dtype), v) if a.amsgrad else None
    size = e.div(rate, _correction(a.beta1, step, dtype))
    root = p.sqrt(_correction(a.beta2, step, dtype))
    below = e.add(e.div(p.sqrt(v if top is None else top), root), a.eps)
    return p.sub(w, e.mul(p.div(m, below), size)), m, v, top


def _adam(a: Arguments, decoupled: bool) -> Any:
    rows: list[list[Tensor]] = [[], [], [], [], []]
    for i, param in enumerate(a.self):
        grad = _unscaled(a.grads[i], a.grad_scale)
        new = _adam_one(a, i, grad, decoupled)
        old = (param, a.exp_avgs[i], a.exp_avg_sqs[i], a.max_exp_avg_sqs[i] if a.amsgrad else None)
        rows[1].append(grad)
        for row, before, after in zip((0, 2, 3, 4), old, new, strict=True):
            if before is not None and after is not None:
                rows[row].append(_unless(a.found_inf, before, after))
    if not a.amsgrad:
        rows[4] = [p.clone(t) for t in a.max_exp_avg_sqs]
    return tuple(rows)


@by_name(*overloads("_fused_adam", "default", "tensor_lr"))
def adam(a: Arguments) -> Any:
    return _adam(a, decoupled=False)


@by_name(*overloads("_fused_adamw", "default", "tensor_lr"))
def adamw(a: Arguments) -> Any:
    return _adam(a, decoupled=True)


def _entries(a: Arguments) -> Iterator[tuple[int, Tensor, Tensor, Tensor, Tensor]]:
    """(number, parameter, unscaled gradient, both as they are computed with) of each entry."""
    for i, param in enumerate(a.self):
        grad = _unscaled(a.grads[i], a.grad_scale)
        dtype = compute_dtype(param.dtype)
        w = e.cast(param, dtype)
        yield i, param, grad, w, _gradient(e.cast(grad, dtype), w, a.weight_decay, a.maximize)


@by_name(*overloads("_fused_sgd", "default", "tensor_lr"))
def sgd(a: Arguments) -> Any:
    rows: list[list[Tensor]] = [[], [], []]
    buffers = a.momentum_buffer_list
    for i, param, grad, w, g in _entries(a):
        if a.momentum:
            kept = g
            if not a.is_first_step:
                old = e.mul(e.cast(buffers[i], w.dtype), a.momentum)
                kept = p.add(old, e.mul(g, 1.0 - a.dampening))
            rows[2].append(_unless(a.found_inf, buffers[i], kept))
            g = p.add(g, e.mul(kept, a.momentum)) if a.nesterov else kept
        new = p.sub(w, e.mul(g, _number(a.lr, w.dtype)))
        rows[0].append(_unless(a.found_inf, param, new))
        rows[1].append(grad)
    if not a.momentum:
        rows[2] = [p.clone(t) for t in buffers]
    return tuple(rows)


@by_name(*overloads("_fused_adagrad", "default", "tensor_lr"))
def adagrad(a: Arguments) -> Any:
    rows: list[list[Tensor]] = [[], [], [], [p.clone(t) for t in a.state_steps]]
    for i, param, grad, w, g in _entries(a):
        total = p.add(e.cast(a.state_sums[i], w.dtype), p.mul(g, g))
        before = e.sub(p.reshape(e.cast(a.state_steps[i], w.dtype), []), 1.0)
        rate = e.div(_number(a.lr, w.dtype), e.add(e.mul(before, a.lr_decay), 1.0))
        step = p.div(g, e.add(p.sqrt(total), a.eps))
        rows[0].append(_unless(a.found_inf, param, p.sub(w, e.mul(step, rate))))
        rows[1].append(grad)
        rows[2].append(_unless(a.found_inf, a.state_sums[i], total))
    return tuple(rows) if e.is_number(a.lr) else tuple(rows[:3])
