"""Decompositions of sums, products, quotients and roundings.

In: tensors and numbers of any shapes and dtypes that ATen takes. Out: prims on equal ones.
Invariant: shape, strides and dtype of the result are eager's; half precision rounds once.

Decompositions of powers, and of logarithms of sums of powers. In: tensors and numbers. Out: prims.
Invariant: a power that eager computes by products or roots is computed by the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, elementwise, is_number, p
from flambeau_prims.decomp.pointwise.declared import binary, formula
from flambeau_prims.decomposition_table import decomposition, overloads
from flambeau_prims.promotion import Promotion, compute_dtype, is_inexact, real_dtype, result_type

aten = torch.ops.aten


_BOOL_HINT = {  # what eager proposes instead, for one operand of booleans and for two
    1: "with a bool tensor is not supported. If you are trying to invert a mask, use the `~` or"
    " `logical_not()` operator instead.",
    2: "with two bool tensors is not supported. Use the `^` or `logical_xor()` operator instead.",
}


def _alpha_fits(alpha: Number, *operands: Operand) -> None:
    """A factor of a sum is of a kind that the sum holds: refused otherwise, as eager does."""
    result = result_type(operands)
    if isinstance(alpha, bool) and result != torch.bool:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, (float, torch.SymFloat)) and not is_inexact(result):
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if isinstance(alpha, complex) and not result.is_complex:
        raise RuntimeError(
            "For non-complex input tensors, argument alpha must not be a complex number."
        )


def _can_subtract(*operands: Operand) -> None:
    """Booleans have no difference, whatever the other operand promotes them to: refused."""
    bools = sum(isinstance(x, bool) or getattr(x, "dtype", None) == torch.bool for x in operands)
    if bools:
        raise RuntimeError(f"Subtraction, the `-` operator, {_BOOL_HINT[bools]}")


def summed(op: Callable[..., Tensor], a: Operand, b: Operand) -> Tensor:
    """A sum or difference: kernels for a CPU take a number in the operands' dtype."""
    return elementwise(op, (a, b), narrow=not e.on_gpu(a, b))


def _sum_of_multiple(a: Operand, b: Operand, alpha: Number) -> Tensor:
    """`a + alpha b`; kernels for a CPU take the factor in the operands' dtype too."""
    common = result_type((a, b))

    def combine(x: Tensor, y: Tensor) -> Tensor:
        if x.dtype == common or e.on_gpu(x):
            return e.fused(y, alpha, x)
        factor = e.cast(e.filled(x, [], alpha, common), x.dtype)
        return e.fused(y, factor, x)

    return summed(combine, a, b)


@decomposition(aten.add.Tensor, aten.add.Scalar)
def add(a: Operand, b: Operand, alpha: Number = 1) -> Tensor:
    _alpha_fits(alpha, a, b)
    return summed(p.add, a, b) if e.is_one(alpha) else _sum_of_multiple(a, b, alpha)


@decomposition(aten.sub.Tensor, aten.sub.Scalar)
def sub(a: Operand, b: Operand, alpha: Number = 1) -> Tensor:
    _can_subtract(a, b)
    _alpha_fits(alpha, a, b)
    if e.is_one(alpha):
        return summed(p.sub, a, b)
    return _sum_of_multiple(a, b, -alpha)


@decomposition(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(a: Tensor, b: Operand, alpha: Number = 1) -> Tensor:
    _can_subtract(a, b)
    _alpha_fits(alpha, a, b)
    return sub(b, a, alpha)


def _by_host_scalar(a: Operand, b: Operand) -> bool:
    """Whether eager multiplies by the reciprocal of `b`, as its kernels for CUDA do."""
    return e.is_host_scalar(b, a) and not result_type((a, b)).is_complex


def _complex_by_host_scalar(a: Operand, b: Operand) -> bool:
    """The same of complex numbers, by a real one."""
    real = not isinstance(b, complex) and not getattr(b, "dtype", torch.float32).is_complex
    return real and e.is_host_scalar(b, a) and result_type((a, b)).is_complex


def _scaled(
    op: Callable[..., Tensor], a: Operand, b: Operand, promotion: Promotion = Promotion.SAME
) -> Tensor:
    """A product or quotient: kernels for a CPU take the second operand as it is if it is one
    element, and a number before a tensor in the dtype of their result."""
    cpu = not e.on_gpu(a, b)
    real = cpu and not result_type((a, b)).is_complex
    return elementwise(op, (a, b), promotion, narrow=cpu and is_number(a), last_unrounded=real)


@decomposition(*overloads("mul", "Tensor", "Scalar"))
def mul_of(a: Operand, b: Operand) -> Tensor:
    """ATen's product."""
    return _scaled(p.mul, a, b)


def _reciprocal(x: Tensor) -> Tensor:
    return p.div(e.const(1, x), x)


def _host_reciprocal(x: Operand, like: Tensor) -> Tensor:
    """The reciprocal of what a kernel for CUDA is handed as a number: computed in double precision,
    then rounded to the dtype of `like`."""
    if isinstance(x, int | float):
        info = torch.finfo(like.dtype)
        value = 1.0 / x if x else math.copysign(math.inf, x)
        fits = abs(value) <= info.max * (1 + info.eps / 4)  # else it is rounded to infinity
        return e.const(value if fits else math.copysign(math.inf, x), like)
    double = torch.float64
    if is_number(x):
        wide = e.filled(like, [], x, double)
    else:
        wide = e.cast(e.brought(x, like.device), double)  # type: ignore[arg-type]
    return e.expand(e.cast(_reciprocal(wide), like.dtype), like.shape)


def _by_reciprocal(x: Tensor, by: Operand) -> Tensor:
    """A complex number by a real one that is a number to the kernel: of zero, the reciprocal is
    infinite in its real part and NaN in the other, so that no quotient is a number."""
    like = p.real(x)
    if not is_number(by):
        number = e.cast(e.brought(by, like.device), torch.float64)  # type: ignore[arg-type]
        nothing = e.eq(number, 0.0)
        rest = e.where(e.expand(nothing, like.shape), e.const(math.nan, like), e.const(0.0, like))
    else:
        rest = e.const(math.nan if isinstance(by, int | float) and by == 0 else 0.0, like)
    return p.mul(x, p.complex(_host_reciprocal(by, like), rest))


@decomposition(aten.div.Tensor, aten.div.Scalar)
def div(a: Operand, b: Operand) -> Tensor:
    if _by_host_scalar(a, b):
        return elementwise(lambda x, _: p.mul(x, _host_reciprocal(b, x)), (a, b), Promotion.FLOAT)
    if _complex_by_host_scalar(a, b):
        return elementwise(lambda x, _: _by_reciprocal(x, b), (a, b), Promotion.FLOAT)
    return _scaled(p.div, a, b, Promotion.FLOAT)


def _floor_div_in(
    dtype: torch.dtype, steps: bool, by_reciprocal: bool
) -> Callable[[Tensor, Tensor], Tensor]:
    """The quotient from the remainder, rounded as eager's kernels round it in half precision: the
    whole number on a GPU, each of the `steps` before it on a CPU."""

    def rounded(x: Tensor) -> Tensor:
        return e.cast(e.cast(x, dtype), compute_dtype(dtype))

    def step(x: Tensor) -> Tensor:
        return rounded(x) if steps else x

    def divided(x: Tensor, y: Tensor) -> Tensor:
        return step(p.mul(x, _reciprocal(y)) if by_reciprocal else p.div(x, y))

    def quotient(x: Tensor, y: Tensor) -> Tensor:
        rest = p.fmod(x, y)
        share = divided(step(p.sub(x, rest)), y)
        lower = p.logical_and(e.ne(rest, 0), p.ne(e.lt(y, 0), e.lt(rest, 0)))
        share = p.where(lower, step(e.sub(share, 1)), share)
        down = rounded(p.floor(share))
        down = p.where(e.gt(p.sub(share, down), 0.5), rounded(e.add(down, 1)), down)
        whole = divided(x, y)
        down = p.where(e.eq(share, 0), p.copysign(e.const(0, share), whole), down)
        return p.where(e.eq(y, 0), whole, down)

    return quotient


def _is_one_divisor(a: Operand, b: Operand) -> bool:
    """Whether eager divides by a single number in the dtype that it computes in."""
    return is_number(b) or (e.is_one(b.numel()) and not e.on_gpu(a, b))  # type: ignore[union-attr]


@decomposition(*overloads("floor_divide", "default", "Scalar"))
def floor_divide(a: Operand, b: Operand) -> Tensor:
    dtype = result_type((a, b))
    by_reciprocal = _by_host_scalar(a, b)
    if by_reciprocal and is_inexact(dtype):
        return elementwise(_floor_div_in(dtype, False, True), (a, b))
    gpu = e.on_gpu(a, b)
    if compute_dtype(dtype) != dtype and not _is_one_divisor(a, b):
        return elementwise(_floor_div_in(dtype, not gpu, False), (a, b), narrow=True)
    return elementwise(p.floor_div, (a, b), last_unrounded=not gpu)


@decomposition(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(a: Operand, b: Operand, *, rounding_mode: str | None) -> Tensor:
    if rounding_mode is None:
        return div(a, b)
    if rounding_mode == "floor":
        return floor_divide(a, b)
    dtype = result_type((a, b))
    if is_inexact(dtype):

        def quotient(x: Tensor, y: Tensor) -> Tensor:
            # In half precision kernels round before they truncate, but a CPU's for one divisor.
            share = p.div(x, y)
            return share if _is_one_divisor(a, b) else e.cast(e.cast(share, dtype), share.dtype)

        if _by_host_scalar(a, b):
            return elementwise(lambda x, y: p.trunc(p.mul(x, _reciprocal(y))), (a, b))
        truncated = elementwise(
            lambda x, y: p.trunc(quotient(x, y)), (a, b), last_unrounded=not e.on_gpu(a, b)
        )
        return truncated
    return elementwise(p.trunc_div, (a, b))


@decomposition(aten.nextafter.default)
def nextafter(a: Tensor, b: Tensor) -> Tensor:
    """Neighbours are those of the operands' own dtype, so nothing is widened."""
    dtype = result_type((a, b))
    found = p.nextafter(*e.meet(e.cast(a, dtype), e.cast(b, dtype)))
    return e.laid_out_by((a, b), found, dtype)


@decomposition(aten.abs.default)
def abs_(x: Tensor) -> Tensor:
    if x.dtype == torch.bool:
        return elementwise(p.clone, (x,))
    if x.dtype.is_complex:
        wide = p.abs(e.widen(x))
        return e.cast(wide, real_dtype(x.dtype))
    return elementwise(p.abs, (x,))


@decomposition(aten.sign.default, aten.sgn.default)
def sign(x: Tensor) -> Tensor:
    return elementwise(p.sign if x.dtype != torch.bool else p.clone, (x,))


@decomposition(aten.round.decimals)
def round_decimals(x: Tensor, *, decimals: int) -> Any:
    if not x.dtype.is_floating_point:
        return NotImplemented
    scale = 10.0 ** abs(decimals)
    up, down = (e.mul, e.div) if decimals >= 0 else (e.div, e.mul)
    return elementwise(lambda y: down(p.round(up(y, scale)), scale), (x,))


@formula(aten.frac.default)
def frac(x: Tensor) -> Tensor:
    return p.sub(x, p.trunc(x))


@decomposition(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(start: Tensor, end: Tensor, weight: Operand) -> Tensor:
    # of the two ways to write it, the one that is exact at the nearer end
    def near_start(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return e.fused(w, p.sub(b, a), a)

    def near_end(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        return e.fused(p.sub(b, a), e.sub(w, 1), b)

    def blend(a: Tensor, b: Tensor, w: Tensor) -> Tensor:
        size = p.abs(w)
        near = p.lt(size, e.const(0.5, size))
        return p.where(near, near_start(a, b, w), near_end(a, b, w))

    if isinstance(weight, (int, float, complex)):
        near = near_start if abs(weight) < 0.5 else near_end
        return elementwise(near, (start, end, weight), parameters=True)
    return elementwise(blend, (start, end, weight))


def _by_complex_rules(*operands: Tensor) -> bool:
    """Whether eager's kernel multiplies by C's rules for infinite complex numbers, which the
    primitives do not know: kernels for a GPU that are compiled when they are called."""
    return e.on_gpu(*operands) and result_type(operands).is_complex


@decomposition(aten.addcmul.default)
def addcmul(x: Tensor, a: Tensor, b: Tensor, *, value: Number = 1) -> Any:
    if _by_complex_rules(x, a, b):
        return NotImplemented

    def combine(y: Tensor, s: Tensor, t: Tensor) -> Tensor:
        if e.is_one(value) and not y.dtype.is_complex:  # one times infinity has a part that is NaN
            return e.fused(s, t, y)
        if e.on_gpu(y):  # both factors first, which may overflow or vanish
            return e.fused(p.mul(s, t), value, y)
        return e.fused(e.mul(s, value), t, y)

    return elementwise(combine, (x, a, b))


@decomposition(aten.addcdiv.default)
def addcdiv(x: Tensor, a: Tensor, b: Tensor, *, value: Number = 1) -> Any:
    if not is_inexact(result_type((x, a, b))) or _by_complex_rules(x, a, b):
        return NotImplemented

    def combine(y: Tensor, s: Tensor, t: Tensor) -> Tensor:
        if y.dtype.is_complex:
            return e.sum_of_parts(y, p.div(e.mul(s, value), t))
        if e.is_one(value):
            return p.add(y, p.div(s, t))
        if e.on_gpu(y):
            return e.fused(p.div(s, t), value, y)
        return p.add(y, p.div(e.mul(s, value), t))

    return elementwise(combine, (x, a, b))


def _scaled_by(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda x: e.laid_out_as(x, elementwise(p.mul, (x, factor), Promotion.FLOAT))


decomposition(aten.deg2rad.default)(_scaled_by(math.pi / 180.0))
decomposition(aten.rad2deg.default)(_scaled_by(180.0 / math.pi))


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
