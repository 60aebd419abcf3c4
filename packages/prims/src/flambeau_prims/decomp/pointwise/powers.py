"""Decompositions of powers, and of logarithms of sums of powers.

In: tensors and numbers. Out: prims. Invariant: a power that eager computes by products or roots is
computed by the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, elementwise, p
from flambeau_prims.decomp.pointwise.declared import binary, formula
from flambeau_prims.decomposition_table import decomposition
from flambeau_prims.promotion import Promotion, is_inexact, result_type

aten = torch.ops.aten


# Exponents that eager computes by products and roots rather than by `pow`.
_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    0.5: lambda x: p.sqrt(x),
    -0.5: lambda x: p.rsqrt(x),
    -1: lambda x: p.reciprocal(x),
    -2: lambda x: p.reciprocal(p.mul(x, x)),
    1: lambda x: p.mul(*e.meet(x, 1)),
    2: lambda x: p.mul(x, x),
    3: lambda x: p.mul(p.mul(x, x), x),
}
_COMPLEX_POWERS: dict[complex, Callable[[Tensor], Tensor]] = {
    **{complex(exponent): power for exponent, power in _POWERS.items()},
    0: lambda x: e.const(1, x),
    1: lambda x: p.clone(x),
    -2: lambda x: e.div(1, p.mul(x, x)),
}


@decomposition(aten.pow.Scalar)
def pow_of_number(base: Number, x: Tensor) -> Tensor:
    return e.in_format(elementwise(p.pow, (base, x), narrow=True), torch.contiguous_format)


@decomposition(aten.pow.Tensor_Tensor)
def pow_tensor(x: Tensor, exponent: Tensor) -> Any:
    if e.is_host_scalar(exponent, x) and not is_inexact(result_type((x, exponent))):
        return NotImplemented  # by its value: eager has no reciprocal of a whole number
    return binary(p.pow, Promotion.SAME)(x, exponent)


@decomposition(aten.pow.Tensor_Scalar)
def pow_scalar(x: Tensor, exponent: Number) -> Any:
    result = result_type((x, exponent))
    # no whole number is such a power of one; an open exponent is guarded by its sign
    if not (isinstance(exponent, bool) or is_inexact(result)) and exponent < 0:  # type: ignore[operator]
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    if result == torch.bool:  # a power of zero is one, and the first is the boolean itself
        return elementwise(lambda y: p.logical_or(*e.meet(y, not exponent)), (x,))
    if result.is_complex:
        return _complex_power(x, exponent)
    if not isinstance(exponent, (int, float)):
        return elementwise(p.pow, (x, exponent), narrow=True, parameters=True)
    e.fitting(exponent, result)
    short = _POWERS.get(exponent)
    exact = exponent in (1, 2, 3) or result.is_floating_point
    if short is not None and exact:
        if result != torch.float16 or e.on_gpu(x):
            return short(e.cast(x, result))  # half precision too: each product is rounded
        if abs(exponent) != 0.5:  # roots are its library's pow, which rounds once: no zero is -0
            return e.cast(short(e.cast(x, torch.float32)), result)
    return elementwise(p.pow, (x, exponent), narrow=True, parameters=True)


def _complex_power(x: Tensor, exponent: Number) -> Tensor:
    """Whether the exponent is a complex number does not matter, but to a kernel for a GPU, which
    takes no products either."""
    power = None if e.is_symbolic(exponent) else _COMPLEX_POWERS.get(exponent)
    if e.on_gpu(x) and exponent not in (0, 1):
        power = None if isinstance(exponent, complex) or abs(exponent) >= 2 else power
    if power is None:
        return elementwise(p.pow, (x, exponent), narrow=True, parameters=True)
    return elementwise(lambda base, _: power(base), (x, exponent), parameters=True)


def _log_of_sum(power: Callable[..., Tensor], scale: float) -> Callable[..., Tensor]:
    """The logarithm of the sum of two powers, shifted by the greater exponent; eager's kernels are
    contracted where they scale it."""

    def combine(x: Tensor, y: Tensor) -> Tensor:
        gap = p.log1p(power(p.neg(p.abs(p.sub(x, y)))))
        top = p.maximum(x, y)
        soft = p.add(top, gap) if scale == 1.0 else e.fused(gap, scale, top)
        return p.where(p.logical_and(p.isinf(x), p.eq(x, y)), x, soft)

    return combine


@decomposition(aten.logaddexp.default)
def logaddexp(a: Tensor, b: Tensor) -> Any:
    if result_type((a, b)).is_complex:
        return elementwise(_complex_log_of_sum, (a, b))
    return elementwise(_log_of_sum(p.exp, 1.0), (a, b), Promotion.FLOAT)


def _complex_log_of_sum(x: Tensor, y: Tensor) -> Tensor:
    """log(exp(x) + exp(y)), shifted by the operand of the greater real part, which it is where the
    other vanishes in the sum; of two that are infinite as it is written."""
    re, other = p.clone(p.real(x)), p.clone(p.real(y))
    first = p.ge(re, other)
    top, low = p.where(first, x, y), p.where(first, y, x)
    vanishes = e.eq(p.sub(p.minimum(re, other), p.maximum(re, other)), -math.inf)
    soft = p.where(vanishes, top, p.add(top, p.log1p(p.exp(p.sub(low, top)))))
    plain = p.log(e.sum_of_parts(_exp_by_parts(x), _exp_by_parts(y)))
    ends = p.where(e.lt(re, 0), low, plain)
    value = p.where(p.logical_and(p.isinf(re), p.eq(re, other)), ends, soft)
    none = e.const(math.nan, re)
    return p.where(p.logical_or(p.isnan(x), p.isnan(y)), p.complex(none, none), value)


def _exp_by_parts(x: Tensor) -> Tensor:
    """As C has it: of an infinite real part each part is that, with a sign, unless it is zero."""
    size, turn = p.exp(p.clone(p.real(x))), p.clone(p.imag(x))
    re = p.where(p.isfinite(turn), p.mul(size, p.cos(turn)), size)
    return p.complex(re, p.where(e.eq(turn, 0), turn, p.mul(size, p.sin(turn))))


@formula(aten.logaddexp2.default, promotion=Promotion.FLOAT)
def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    return _log_of_sum(p.exp2, 1.0 / math.log(2.0))(a, b)
