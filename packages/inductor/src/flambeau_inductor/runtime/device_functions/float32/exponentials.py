"""Exponentials, logarithms, and the functions that are made of them.

In: float32, or float64 where it says so. Out: Triton tensors of the same shape. Invariant: the
accuracy is stated at each function.

Trigonometric functions and their inverses. In: float32 or float64. Out: Triton tensors of the same
shape. Invariant: zero keeps its sign.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions.float32.instructions import (
    exp2,
    inverse,
    inverse_with_denormals,
    polynomial,
    reciprocal,
)
from flambeau_inductor.runtime.device_functions.float32.reductions import minimum
from flambeau_inductor.runtime.device_functions.float32.rounding import (
    copysign,
    sign_bit,
    with_sign,
)


@triton.jit
def exp(x):
    """e**x of float32 within 2 ulp, denormal results included.

    Of x = n ln 2 + r: 2**(r / ln 2) by the device's instruction, and 2**n in two factors. Without
    taking n out the rounding of x / ln 2 alone is 40 ulp at 80.
    """
    bounded = tl.where(x < -104.0, -104.0, tl.where(x > 89.0, 89.0, x))
    n = tl.fma(bounded, 1.4426950408889634, 12582912.0) - 12582912.0
    r = tl.fma(n, -0.693147182464599609375, bounded)
    r = tl.fma(n, 1.904654299957767e-09, r)
    whole = tl.where(x == x, n, 0.0).to(tl.int32)
    half = whole >> 1
    first = ((half + 127) << 23).to(tl.float32, bitcast=True)
    second = ((whole - half + 127) << 23).to(tl.float32, bitcast=True)
    return exp2(r * 1.4426950408889634) * first * second


@triton.jit
def exp_of(x):
    """e**x of float32 or float64."""
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        return exp(x)


@triton.jit
def log1p(x):
    """log(1 + x) without cancellation near zero (W. Kahan's correction), about 2 ulp."""
    u = 1.0 + x
    big = (u - u) != 0  # infinite or NaN: the correction would make NaN of infinity
    safe = tl.where((u == 1.0) | big, 2.0, u)
    corrected = tl.log(safe) * (x / (safe - 1.0))
    return tl.where(u == 1.0, x, tl.where(big, tl.log(u), corrected))


@triton.jit
def expm1(x):
    """exp(x) - 1 without cancellation near zero, about 2 ulp.

    Small arguments by their series (terms to x^9 within |x| < 0.5), others directly.
    """
    p = polynomial(x, (
        2.7557319e-6, 2.4801587e-5, 1.9841270e-4, 1.3888889e-3, 8.3333333e-3, 4.1666667e-2,
        1.6666667e-1, 0.5,
    ))  # fmt: skip
    small = x + x * x * p
    return tl.where(x == 0, x, tl.where(tl.abs(x) < 0.5, small, exp_of(x) - 1.0))


@triton.jit
def tanh(x):
    """Hyperbolic tangent of float32, within 1.8 ulp where the exponential and the reciprocal are
    exact (0.8 below 0.6), at every seventh float32 from 1e-4 to 9.2; the device's add as much as
    they are off themselves.

    Below 0.6: a + a^3 * (a polynomial of a^2, fitted to the relative error); else
    1 - 2 / (exp(2a) + 1).
    """
    a = tl.abs(x)
    s = a * a
    p = polynomial(s, (
        -5.895150360e-03, 2.079596370e-02, -5.378382653e-02, 1.333192438e-01, -3.333329856e-01,
    ))  # fmt: skip
    tail = 1.0 - 2.0 * inverse(1.0 + tl.exp2(a * 2.8853900817779268))
    return with_sign(tl.where(a < 0.6, p * (s * a) + a, tail), x)


@triton.jit
def tanh_double(x):
    """Hyperbolic tangent of float64, within 1e-14 of itself: its series below 0.02."""
    a = tl.abs(x)
    s = a * a
    p = polynomial(s, (
        0.021869488536155203, -0.053968253968253971, 0.13333333333333333, -0.33333333333333333,
    ))  # fmt: skip
    tail = 1.0 - 2.0 / (tl.exp(2.0 * a) + 1.0)
    value = tl.where(a < 0.02, p * s * a + a, tail)
    return tl.where(x == 0, x, tl.where(x < 0, -value, value))


@triton.jit
def erf(x):
    """Error function of float32, within 1.2 ulp.

    Below 1: x + x*p(x^2). From 1 on: 1 - exp2(-q(|x|)), where q is fitted to -log2(erfc) on [1, 4]
    with errors weighted by erfc/erf, so that they count as errors of erf. About half the
    instructions of the usual two-range routine, with one exponential and no division.
    """
    a = tl.abs(x)
    s = a * a
    p = polynomial(s, (
        7.889115074e-05, -8.020839945e-04, 5.189535190e-03, -2.685444451e-02, 1.128360017e-01,
        -3.761262714e-01, 1.283791659e-01,
    ))  # fmt: skip
    t = minimum(a, 4.0)
    q = polynomial(t, (
        -2.688912381e-04, 4.252599633e-03, -3.150577381e-02, 1.487518207e-01, 9.206481429e-01,
        1.626046127e00, 4.926796040e-04,
    ))  # fmt: skip
    tail = 1.0 - tl.exp2(-q)
    return tl.where(a < 1.0, x * p + x, tl.where(x < 0, -tail, tail))


@triton.jit
def one_plus_erf(x):
    """1 + erf(x), which is erfc(-x), of float32, rounded as eager's sum of the two is: to a
    multiple of what erf is rounded to, which is nothing far below zero. The absolute error is below
    1.8e-7.

    erfc(|x|) = exp2(-q(|x|)) with q(t) = t * (a polynomial of degree 7) fitted to -log2(erfc) on
    [0, 5], errors weighted by erfc. Its leading coefficient is positive and q grows throughout, so
    that the exponential goes to zero for large arguments with no bounds checked.
    """
    t = tl.abs(x)
    q = polynomial(t, (
        2.448598189e-05, -2.895770332e-04, 1.034035839e-03, 1.438429879e-03, -2.876439618e-02,
        1.486828515e-01, 9.183805178e-01, 1.627910649e00,
    ))  # fmt: skip
    e = tl.exp2(q * -t)
    return tl.where(x < 0, (e - 1.0) + 1.0, 2.0 - e)


@triton.jit
def one_plus_tanh(x):
    """1 + tanh(x), which is 2 / (1 + exp(-2x)), of float32, rounded as eager's sum of the two is:
    to a multiple of what tanh is rounded to. The absolute error is below 3.1e-7."""
    return (2.0 * inverse(1.0 + tl.exp2(x * -2.8853900817779268)) - 1.0) + 1.0


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)) of float32."""
    return reciprocal(1.0 + exp(-x))


@triton.jit
def sigmoid_to_half(x):
    """1 / (1 + exp(-x)) that will be rounded to half precision, of which bfloat16 has float32's
    denormal numbers."""
    return inverse_with_denormals(1.0 + tl.exp2(x * -1.4426950408889634))


@triton.jit
def sigmoid_double(x):
    """1 / (1 + exp(-x)) of float64."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh_to_half(x):
    """Hyperbolic tangent that will be rounded to half precision: the relative error is below 5e-5.

    Where 1 - 2 / (exp(2x) + 1) would cancel, the argument itself.
    """
    tail = 1.0 - 2.0 * inverse(1.0 + tl.exp2(x * 2.8853900817779268))
    return tl.where(tl.abs(x) < 0.0122, x, tail)


@triton.jit
def summed_exp(x):
    """exp(x) that is added to others alone: less than the smallest normal float32 is zero."""
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def sinh(x):
    """Hyperbolic sine through expm1."""
    a = tl.abs(x)
    e = expm1(a)
    small = 0.5 * (e + e / (e + 1.0))
    half = exp_of(0.5 * a)
    large = (0.5 * half) * half
    s = tl.where(a > 30.0, large, small)
    return tl.where(x == 0, x, tl.where(x < 0, -s, s))


@triton.jit
def cosh(x):
    """Hyperbolic cosine."""
    a = tl.abs(x)
    half = exp_of(0.5 * a)
    e = exp_of(a)
    return tl.where(a > 30.0, (0.5 * half) * half, 0.5 * e + 0.5 / e)


@triton.jit
def pow(x, y):
    """x ** y with C's rules for signs, zeros and infinities; the magnitude is exp2(y*log2|x|).

    In float32 the logarithm is taken in double, so that large exponents keep their digits.
    """
    magnitude = tl.exp2(y.to(tl.float64) * tl.log2(tl.abs(x).to(tl.float64))).to(x.dtype)
    whole = y == tl.floor(y)
    odd = whole & ((y * 0.5) != tl.floor(y * 0.5))
    negative = sign_bit(x) != 0
    signed = tl.where(negative & odd, -magnitude, magnitude)
    result = tl.where((x < 0) & (whole == 0), float("nan"), signed)
    result = tl.where((x == -float("inf")) & (whole == 0), magnitude, result)
    result = tl.where((tl.abs(x) == 1.0) & (tl.abs(y) == float("inf")), 1.0, result)
    return tl.where((y == 0) | (x == 1.0), 1.0, tl.where((x != x) | (y != y), x + y, result))


@triton.jit
def asinh(x):
    """Inverse hyperbolic sine."""
    a = tl.abs(x)
    large = a > 1.0e9
    b = tl.where(large, 1.0, a)
    t = log1p(b + b * b / (1.0 + tl.sqrt(b * b + 1.0)))
    t = tl.where(large, tl.log(a) + 0.6931471805599453, t)
    return tl.where(x == 0, x, tl.where(x < 0, -t, t))


@triton.jit
def acosh(x):
    """Inverse hyperbolic cosine."""
    large = x > 1.0e9
    t = tl.where(large, 1.0, x - 1.0)
    value = log1p(t + tl.sqrt(2.0 * t + t * t))
    value = tl.where(x < 1.0, float("nan"), value)
    return tl.where(large, tl.log(x) + 0.6931471805599453, value)


@triton.jit
def atanh(x):
    """Inverse hyperbolic tangent."""
    a = tl.abs(x)
    t = 0.5 * log1p(2.0 * a / (1.0 - a))
    return tl.where(x < 0, -t, t)


@triton.jit
def atan(x):
    """Arc tangent: reduction to |x| <= tan(pi/8), then an odd minimax polynomial, about 2 ulp."""
    a = tl.abs(x)
    inverse = a > 2.414213562373095
    middle = (a > 0.4142135623730951) & (a <= 2.414213562373095)
    z = tl.where(
        inverse, -1.0 / tl.where(inverse, a, 1.0), tl.where(middle, (a - 1.0) / (a + 1.0), a)
    )
    offset = tl.where(inverse, 1.5707963267948966, tl.where(middle, 0.7853981633974483, 0.0))
    s = z * z
    p = polynomial(s, (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1))
    t = offset + (p * s * z + z)
    return tl.where(x == 0, x, tl.where(x < 0, -t, t))


@triton.jit
def atan2(y, x):
    """Angle of the point (x, y), with C's rules for signed zeros and infinities."""
    infinite = (tl.abs(x) == float("inf")) & (tl.abs(y) == float("inf"))
    top = tl.where(infinite, 1.0, tl.abs(y))
    bottom = tl.where(infinite, 1.0, tl.abs(x))
    both_zero = (top == 0) & (bottom == 0)
    t = atan(top / tl.where(both_zero, 1.0, bottom))
    x_negative = sign_bit(x) != 0
    t = tl.where(x_negative, 3.141592653589793 - t, t)
    return tl.where((x != x) | (y != y), x + y, copysign(t, y))


@triton.jit
def asin(x):
    """Arc sine through atan2(x, sqrt((1-x)(1+x)))."""
    return atan2(x, tl.sqrt((1.0 - x) * (1.0 + x)))


@triton.jit
def acos(x):
    """Arc cosine through 2*atan2(sqrt(1-x), sqrt(1+x))."""
    return 2.0 * atan2(tl.sqrt(1.0 - x), tl.sqrt(1.0 + x))


@triton.jit
def sin(x):
    """Sine; of what is small the argument itself, for Triton's takes denormal numbers for zero."""
    return tl.where(tl.abs(x) < 1e-4, x, tl.sin(x)) if x.dtype == tl.float32 else tl.sin(x)


@triton.jit
def tan(x):
    """Tangent as a quotient."""
    return sin(x) / tl.cos(x)
