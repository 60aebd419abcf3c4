"""Decompositions of pointwise operators.

In: tensors and numbers of any shapes and dtypes that ATen takes. Out: prims on equal ones.
Invariant: shape, strides and dtype of the result are eager's; half precision rounds once.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims._torch_compat import parameters
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import NUMBERS, Number, Operand, elementwise, is_number, p
from flambeau_prims.decomposition_table import decomposition, same
from flambeau_prims.ops.pointwise import INTS, POINTWISE
from flambeau_prims.promotion import Promotion, compute_dtype, is_inexact, real_dtype, result_type

aten = torch.ops.aten

same(aten.bitwise_not.default, "bitwise_not")
FLOAT, SAME, BOOL = Promotion.FLOAT, Promotion.SAME, Promotion.BOOL

# Primitives with decompositions of their own below, or with none: each of the others is ATen's
# operations that its declaration names, or the one of its own name.
_OWN = frozenset(
    {
        *("abs", "neg", "sign", "bitwise_not", "logical_not", "isfinite", "add", "sub", "mul"),
        *("div", "trunc_div", "floor_div", "pow", "nextafter", "ceil", "floor", "round", "trunc"),
        *("logical_and", "logical_or", "logical_xor"),
    }
)
# Those whose kernels take a number in the operands' dtype, rounded to half precision; the others
# take it in the one that they compute in.
_NARROW = frozenset({"remainder", "fmod", "copysign"})
_OF_TENSORS = ("Tensor", "Scalar", "Scalar_Tensor", "Tensor_Scalar")
_OF_NUMBERS = ("default", "x_scalar", "n_scalar", "self_scalar", "other_scalar")


def overloads(name: str, *kinds: str) -> list[Any]:
    """Those of the named overloads of an operation that this torch has."""
    packet = getattr(aten, name, None)
    known = () if packet is None else packet.overloads()
    return [getattr(packet, kind) for kind in kinds if kind in known]


def _register_functions() -> None:
    for name, function in POINTWISE.items():
        if name in _OWN:
            continue
        promotion = FLOAT if not function.kind & INTS and function.promotes else SAME
        promotion = BOOL if function.result == torch.bool else promotion
        one = len(parameters(PRIMS[name].overload)) == 1
        op = getattr(p, name)
        call = unary(op, promotion) if one else binary(op, promotion, narrow=name in _NARROW)
        for operation in function.aten or (name,):
            kinds = ("default",) if one else _OF_TENSORS
            ops = overloads(operation, *kinds) or overloads(operation, *_OF_NUMBERS)
            decomposition(*ops)(call)
    for name in ("ceil", "floor", "round", "trunc"):  # of integers the identity
        decomposition(getattr(aten, name).default)(_rounding(getattr(p, name)))
    for name in ("logical_and", "logical_or", "logical_xor"):
        decomposition(getattr(aten, name).default)(_logical(getattr(p, name)))


def formula(
    *ops: Any, promotion: Promotion = SAME, keep: str | None = None
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a formula as the decomposition of pointwise operations: its parameters that are
    tensors, the first ones, are the operands, in one shape and the dtype that is computed in."""

    def register(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        kinds = [x.annotation for x in inspect.signature(function).parameters.values()]
        count = kinds.count("Tensor")

        def call(*args: Any, **kwargs: Any) -> Tensor:
            rest = args[count:]
            return elementwise(lambda *xs: function(*xs, *rest, **kwargs), args[:count], promotion)

        decomposition(*ops, keep=keep)(call)
        return function

    return register


def unary(op: Callable[..., Tensor], promotion: Promotion) -> Callable[..., Tensor]:
    """The decomposition of an operation on one tensor."""

    def call(x: Tensor) -> Tensor:
        return elementwise(op, (x,), promotion)

    return call


def _rounding(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(x: Tensor) -> Tensor:
        return elementwise(op, (x,)) if x.dtype.is_floating_point else x

    return call


def binary(
    op: Callable[..., Tensor], promotion: Promotion, *, narrow: bool = False
) -> Callable[..., Any]:
    """The decomposition of an operation on two operands, one of which may be a number."""

    def call(a: Operand, b: Operand) -> Any:
        return elementwise(op, (a, b), promotion, narrow=narrow)

    return call


def _logical(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(a: Tensor, b: Tensor) -> Tensor:
        home = e.home_of((a, b))
        value = op(*e.meet(*(e.brought(e.cast(x, torch.bool), home) for x in (a, b))))
        return e.with_strides(value, e.operand_strides(value.shape, (a, b), result_type((a, b))))

    return call


_register_functions()
decomposition(aten.neg.default)(unary(p.neg, SAME))
decomposition(aten.pow.Tensor_Tensor)(binary(p.pow, SAME))


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
    if e.is_one(alpha):
        return summed(p.add, a, b)
    return _sum_of_multiple(a, b, alpha)


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


def _scaled(
    op: Callable[..., Tensor], a: Operand, b: Operand, promotion: Promotion = SAME
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


@decomposition(aten.div.Tensor, aten.div.Scalar)
def div(a: Operand, b: Operand) -> Tensor:
    if _by_host_scalar(a, b):
        return elementwise(lambda x, y: p.mul(x, _reciprocal(y)), (a, b), FLOAT)
    return _scaled(p.div, a, b, FLOAT)


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
    return p.nextafter(*e.meet(e.cast(a, dtype), e.cast(b, dtype)))


@decomposition(aten.abs.default)
def abs_(x: Tensor) -> Tensor:
    if x.dtype == torch.bool:
        return x
    if x.dtype.is_complex:
        wide = p.abs(e.widen(x))
        return e.cast(wide, real_dtype(x.dtype))
    return elementwise(p.abs, (x,))


@decomposition(aten.sign.default, aten.sgn.default)
def sign(x: Tensor) -> Tensor:
    return x if x.dtype == torch.bool else elementwise(p.sign, (x,))


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


@decomposition(aten.logical_not.default)
def logical_not(x: Tensor) -> Tensor:
    return p.logical_not(e.cast(x, torch.bool))


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


@decomposition(aten.pow.Scalar)
def pow_of_number(base: Number, x: Tensor) -> Tensor:
    return e.in_format(elementwise(p.pow, (base, x), narrow=True), torch.contiguous_format)


@decomposition(aten.pow.Tensor_Scalar)
def pow_scalar(x: Tensor, exponent: Number) -> Any:
    result = result_type((x, exponent))
    # no whole number is such a power of one; an open exponent is guarded by its sign
    if not (isinstance(exponent, bool) or is_inexact(result)) and exponent < 0:  # type: ignore[operator]
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    if result == torch.bool:  # a power of zero is one, and the first is the boolean itself
        return elementwise(lambda y: p.logical_or(*e.meet(y, not exponent)), (x,))
    if isinstance(exponent, complex) or not isinstance(exponent, (int, float)):
        return elementwise(p.pow, (x, exponent), narrow=True)
    e.fitting(exponent, result)
    short = _POWERS.get(exponent)
    exact = exponent in (1, 2, 3) or result.is_floating_point
    if short is not None and exact:
        if result != torch.float16 or e.on_gpu(x):
            return short(e.cast(x, result))  # half precision too: each product is rounded
        if abs(exponent) != 0.5:  # roots are its library's pow, which rounds once: no zero is -0
            return e.cast(short(e.cast(x, torch.float32)), result)
    return elementwise(p.pow, (x, exponent), narrow=True)


def _bool(condition: Tensor) -> Tensor:
    return e.cast(condition, torch.bool)


@decomposition(aten.where.self)
def where(condition: Tensor, a: Operand, b: Operand) -> Tensor:
    dtype = result_type((a, b))
    home = e.home_of([x for x in (condition, a, b) if not isinstance(x, NUMBERS)])
    a, b = (x if isinstance(x, NUMBERS) else e.brought(e.cast(x, dtype), home) for x in (a, b))
    condition = e.brought(condition, home)
    if is_number(a) and is_number(b):
        a = e.filled(condition, [], a, dtype)
    return e.where(_bool(condition), a, b)


@decomposition(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    placed, mask = e.meet(x, mask)
    if isinstance(value, NUMBERS):
        filled = e.const(e.fitting(value, x.dtype), placed)
    else:
        home = value if value.device == x.device else p.device_put(value, device=x.device)
        filled = e.expand(e.cast(home, x.dtype), placed.shape)
    # eager fills a row-major copy
    return e.in_format(p.where(_bool(mask), filled, placed), torch.contiguous_format)


def at_least(x: Tensor, bound: Tensor) -> Tensor:
    """`x`, or the bound where `x` is below it: of equal numbers, zeros of either sign, `x`."""
    return p.where(p.lt(x, bound), bound, x)


def at_most(x: Tensor, bound: Tensor) -> Tensor:
    """`x`, or the bound where `x` is above it: of equal numbers, zeros of either sign, `x`."""
    return p.where(p.lt(bound, x), bound, x)


def _is_nan(number: Any) -> bool:
    return isinstance(number, float) and math.isnan(number)


def clamp_to(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    """`x` between numbers, either of which may be None. NaN among both numbers is the result; as
    the only one it is too on a CPU, and is no bound on a GPU."""
    bounds = [y for y in (low, high) if y is not None]
    for bound in bounds:
        e.fitting(bound, result_type((x, *bounds)))
    if (len(bounds) == 2 or not e.on_gpu(x)) and any(map(_is_nan, bounds)):
        return elementwise(lambda y, *_: e.const(math.nan, y), (x, *bounds))
    both = [b for b in (("low", low), ("high", high)) if b[1] is not None]

    if e.on_gpu(x):  # NaN is no bound there, and 0 is above -0
        both = [b for b in both if not _is_nan(b[1])]
        lift, lower = p.maximum, p.minimum
    else:
        lift, lower = at_least, at_most

    def bounded(y: Tensor, *numbers: Tensor) -> Tensor:
        for (side, _), number in zip(both, numbers, strict=True):
            y = lift(y, number) if side == "low" else lower(y, number)
        return y

    return elementwise(bounded, (x, *(n for _, n in both)), narrow=not e.on_gpu(x))


@decomposition(aten.clamp.default, aten.clamp.Tensor)
def clamp(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Any:
    if min is None and max is None:
        return NotImplemented
    if all(bound is None or is_number(bound) for bound in (min, max)):
        return clamp_to(x, min, max)
    if min is None or max is None:
        op, bound = (p.maximum, min) if max is None else (p.minimum, max)
        return elementwise(op, (x, bound))
    return elementwise(lambda a, low, high: p.minimum(p.maximum(a, low), high), (x, min, max))


@decomposition(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(x: Tensor, min: Operand) -> Tensor:
    return clamp_to(x, min) if is_number(min) else elementwise(p.maximum, (x, min))


@decomposition(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(x: Tensor, max: Operand) -> Tensor:
    return clamp_to(x, None, max) if is_number(max) else elementwise(p.minimum, (x, max))


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
        return elementwise(near_start if abs(weight) < 0.5 else near_end, (start, end, weight))
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


@decomposition(aten.nan_to_num.default)
def nan_to_num(
    x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    if x.dtype.is_complex:
        return NotImplemented
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(x.dtype)
    high = limits.max if posinf is None else posinf
    low = limits.min if neginf is None else neginf

    def replace(y: Tensor) -> Tensor:
        y = e.where(p.isnan(y), 0.0 if nan is None else nan, y)
        y = e.where(e.eq(y, float("inf")), high, y)
        return e.where(e.eq(y, float("-inf")), low, y)

    return elementwise(replace, (x,))


def _log_of_sum(power: Callable[..., Tensor], scale: float) -> Callable[..., Tensor]:
    """The logarithm of the sum of two powers, shifted by the greater exponent."""

    def combine(x: Tensor, y: Tensor) -> Tensor:
        gap = p.log1p(power(p.neg(p.abs(p.sub(x, y)))))
        soft = p.add(p.maximum(x, y), gap if scale == 1.0 else e.mul(gap, scale))
        return p.where(p.logical_and(p.isinf(x), p.eq(x, y)), x, soft)

    return combine


@decomposition(aten.logaddexp.default)
def logaddexp(a: Tensor, b: Tensor) -> Any:
    if result_type((a, b)).is_complex:
        return elementwise(_complex_log_of_sum, (a, b))
    return elementwise(_log_of_sum(p.exp, 1.0), (a, b), FLOAT)


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


@formula(aten.logaddexp2.default, promotion=FLOAT)
def logaddexp2(a: Tensor, b: Tensor) -> Tensor:
    return _log_of_sum(p.exp2, 1.0 / math.log(2.0))(a, b)


@formula(aten.deg2rad.default, promotion=FLOAT)
def deg2rad(x: Tensor) -> Tensor:
    return e.mul(x, math.pi / 180.0)


@formula(aten.rad2deg.default, promotion=FLOAT)
def rad2deg(x: Tensor) -> Tensor:
    return e.mul(x, 180.0 / math.pi)


@formula(aten.heaviside.default)
def heaviside(x: Tensor, at_zero: Tensor) -> Tensor:
    above = e.cast(e.gt(x, 0), x.dtype)
    return p.where(e.eq(x, 0), at_zero, above)


def _infinite(x: Tensor, value: float) -> Tensor:
    if x.dtype.is_floating_point:
        return e.eq(x, value)
    return p.isinf(x)  # an integer never is


@decomposition(aten.isposinf.default)
def isposinf(x: Tensor) -> Tensor:
    return _infinite(x, float("inf"))


@decomposition(aten.isneginf.default)
def isneginf(x: Tensor) -> Tensor:
    return _infinite(x, float("-inf"))
