"""Decompositions of foreach operators on lists of tensors.

In: lists of tensors, and lists or single numbers. Out: a list.
Invariant: an entry's result is what the operation on that entry alone gives by the table; if the
table leaves one of them, the whole stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.pointwise import overloads
from flambeau_prims.table import TABLE, Decomposition, decomposition

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
