"""Float32 device functions and reductions for Triton kernels.

In: Triton tensors. Out: Triton tensors of the same shape. Invariant: everything here runs under
Triton's interpreter as well as on the device: no call of a vendor library, and a plain form of each
machine instruction. Accuracy (float32, against mpmath) is stated at each function and tested;
float64 goes through the same formulas.
"""

from __future__ import annotations

import os

import triton
import triton.language as tl

DEVICE = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1")
"""False under the interpreter, which knows no machine instructions."""


@triton.jit
def _instruction(NAME, x):
    """A machine instruction of one operand and a result of its dtype, float32 or float64."""
    KINDS: tl.constexpr = "=d,d" if x.dtype == tl.float64 else "=f,f"
    return tl.inline_asm_elementwise(
        f"{NAME} $0, $1;", KINDS, [x], dtype=x.dtype, is_pure=True, pack=1
    )


@triton.jit
def again(x):
    """The same numbers of 16 bits as values of their own, so that what was computed from them
    before need not be kept."""
    if DEVICE:
        return tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2
        )
    else:
        return x


@triton.jit
def as_bfloat16(x):
    """float32 rounded to bfloat16 and kept as float32. Two at a time: one conversion of the
    arithmetic units, where each alone takes one of the few that also compute exponentials."""
    if DEVICE:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 both; cvt.rn.bf16x2.f32 both, $3, $2;"
            " shl.b32 $0, both, 16; and.b32 $1, both, 0xffff0000; }",
            "=&r,=r,r,r",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=2,
        )
    else:
        return x.to(tl.bfloat16).to(tl.float32)


@triton.jit
def inverse(x):
    """1 / x of float32 within 1 ulp; what is smaller than the smallest normal number is zero."""
    if DEVICE:
        return _instruction("rcp.approx.ftz.f32", x)
    else:
        return 1.0 / x


@triton.jit
def inverse_with_denormals(x):
    """The same, denormal results included."""
    if DEVICE:
        return _instruction("rcp.approx.f32", x)
    else:
        return 1.0 / x


@triton.jit
def mad(x, p, c):
    """x * p + c, rounded once in float32: kernels are compiled with no contraction across
    instructions (eager rounds each operator's result), so what may be contracted says so."""
    if x.dtype == tl.float64:
        return x * p + c
    else:
        return tl.fma(x, p, c)


@triton.jit
def polynomial(x, COEFFICIENTS):
    """By Horner's rule, the coefficient of the highest power first."""
    value = mad(x, COEFFICIENTS[0], COEFFICIENTS[1])
    for k in tl.static_range(2, len(COEFFICIENTS)):
        value = mad(x, value, COEFFICIENTS[k])
    return value


@triton.jit
def maximum(a, b):
    """Larger operand; NaN if either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    """Smaller operand; NaN if either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def integer_maximum(a, b):
    """Larger operand of two integers."""
    return tl.where(a > b, a, b)


@triton.jit
def integer_minimum(a, b):
    """Smaller operand of two integers."""
    return tl.where(a < b, a, b)


@triton.jit
def integer_neg(x):
    """-x modulo 2**bits. Of 16 bits as a difference of unsigned numbers: the assembler takes the
    negation of a signed one not to overflow, and widens 32768 (CUDA 12.8 and 13.0)."""
    NARROW: tl.constexpr = DEVICE and x.dtype == tl.int16
    if NARROW:
        return tl.inline_asm_elementwise(
            "{ .reg .b16 zero; mov.b16 zero, 0; sub.u16 $0, zero, $1; }",
            "=h,h",
            [x],
            dtype=tl.int16,
            is_pure=True,
            pack=1,
        )
    else:
        return -x


@triton.jit
def integer_abs(x):
    """|x|; the least value stays as it is."""
    if x.dtype == tl.int16:
        return tl.where(x < 0, integer_neg(x), x)
    else:
        return tl.abs(x)


@triton.jit
def shift_left(a, b):
    """a * 2**b modulo 2**bits; 0 for a count that is negative or of the width and above."""
    WIDTH: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < WIDTH)
    return tl.where(inside, a << tl.where(inside, b, 0).to(a.dtype), 0).to(a.dtype)


@triton.jit
def shift_right(a, b):
    """floor(a / 2**b); for a count that is negative or of the width and above what all bits'
    shifting out leaves: -1 of a negative number, else 0."""
    WIDTH: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < WIDTH)
    if a.dtype == tl.uint8:
        return tl.where(inside, a >> tl.where(inside, b, 0).to(a.dtype), 0).to(a.dtype)
    else:
        return (a >> tl.where(inside, b, WIDTH - 1).to(a.dtype)).to(a.dtype)


@triton.jit
def product(a, b):
    """Combine step of a product."""
    return a * b


@triton.jit
def _kept(beats, value, index, other, other_index):
    """Which pair a combine step keeps: NaN beats numbers, ties go to the smaller index."""
    value_nan = value != value
    better = beats | (value_nan & (other == other))
    equal = (value == other) | (value_nan & (other != other))
    keep = better | (equal & (index < other_index))
    return tl.where(keep, value, other), tl.where(keep, index, other_index)


@triton.jit
def argmax_step(value, index, other, other_index):
    """Combine step: the larger value wins."""
    return _kept(value > other, value, index, other, other_index)


@triton.jit
def argmin_step(value, index, other, other_index):
    """Combine step: the smaller value wins."""
    return _kept(value < other, value, index, other, other_index)


@triton.jit
def sign_bit(x):
    """The sign bit of a float in its place, all others 0."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) & -0x8000000000000000
    else:
        return x.to(tl.int32, bitcast=True) & -0x80000000


@triton.jit
def copysign(a, b):
    """Magnitude of `a`, sign bit of `b`."""
    BITS: tl.constexpr = tl.int64 if a.dtype == tl.float64 else tl.int32
    magnitude = a.to(BITS, bitcast=True) & ~sign_bit(a)
    return (magnitude | sign_bit(b)).to(a.dtype, bitcast=True)


@triton.jit
def _rounded(HOW, x):
    """To an integer by the device's conversion: Triton's own takes denormal numbers for zero."""
    WIDTH: tl.constexpr = x.dtype.primitive_bitwidth
    return _instruction(f"cvt.{HOW}.f{WIDTH}.f{WIDTH}", x)


@triton.jit
def floor(x):
    """The greatest integer not above, with the sign of `x`."""
    if DEVICE:
        return _rounded("rmi", x)
    else:
        return copysign(tl.floor(x), x)


@triton.jit
def ceil(x):
    """The least integer not below, with the sign of `x`."""
    if DEVICE:
        return _rounded("rpi", x)
    else:
        return copysign(tl.ceil(x), x)


@triton.jit
def trunc(x):
    """Round towards zero, with the sign of `x`."""
    if DEVICE:
        return _rounded("rzi", x)
    else:
        return copysign(tl.floor(tl.abs(x)), x)


@triton.jit
def round_half_even(x):
    """Round to the nearest integer, halves to the even one, with the sign of `x`."""
    if DEVICE:
        return _rounded("rni", x)
    else:
        down = tl.floor(x)
        rest = x - down
        odd = (down * 0.5) != tl.floor(down * 0.5)
        up = (rest > 0.5) | ((rest == 0.5) & odd)
        return copysign(tl.where(up, down + 1.0, down), x)


@triton.jit
def quotient(a, b):
    """a / b of float32 or float64, correctly rounded."""
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)


@triton.jit
def reciprocal(x):
    """1 / x of float32, correctly rounded."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), x)


@triton.jit
def rsqrt(x):
    """1 / sqrt(x) of float32 by the instruction that eager's kernels use (2 ulp), which takes
    denormal numbers as they are."""
    if DEVICE:
        return _instruction("rsqrt.approx.f32", x)
    else:
        return 1.0 / tl.sqrt_rn(x)


@triton.jit
def exp2(x):
    """2**x of float32 within 2 ulp, denormal results included."""
    if DEVICE:
        return _instruction("ex2.approx.f32", x)
    else:
        return tl.exp2(x)


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
def with_sign(magnitude, x):
    """`magnitude`, which is not negative, of float32 with the sign bit of `x`."""
    return (magnitude.to(tl.int32, bitcast=True) | sign_bit(x)).to(tl.float32, bitcast=True)


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
def exponent(x):
    """The exponent of 2 in a positive float64, denormal numbers included."""
    field = x.to(tl.int64, bitcast=True) >> 52
    scaled = ((x * 18014398509481984.0).to(tl.int64, bitcast=True) >> 52) - 54
    return (tl.where(field == 0, scaled, field) - 1023).to(tl.int32)


@triton.jit
def power_of_two(n):
    """2**n in float64, 0 <= n <= 1023."""
    return ((n.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def fmod(a, b):
    """Remainder with the sign of `a`, exact for all numbers.

    Long division in float64, 25 bits of the quotient a step: a digit times either half of the
    divisor's bits is exact, and so is each difference. As many steps as the block's largest
    quotient has digits, for most programs one.
    """
    x = tl.abs(a.to(tl.float64))
    y = tl.abs(b.to(tl.float64))
    proper = (x < float("inf")) & (y > 0) & (y < float("inf"))
    rest = tl.where(proper, x, 0.0)
    y = tl.where(proper, y, 1.0)
    gap = tl.where(rest > 0, exponent(rest) - exponent(y), 0)
    for _ in range(tl.max(gap) // 24 + 1):
        above = exponent(rest) - exponent(y) - 24
        above = tl.where((rest > 0) & (above > 0), above, 0)
        lower = tl.where(above > 1000, 1000, above)
        upper = tl.where(above - lower > 1000, 1000, above - lower)
        scaled = y * power_of_two(lower) * power_of_two(upper)
        scaled = scaled * power_of_two(above - lower - upper)
        digit = tl.floor(rest / scaled)
        high = (scaled.to(tl.int64, bitcast=True) & -0x8000000).to(tl.float64, bitcast=True)
        rest = (rest - digit * high) - digit * (scaled - high)
        rest = tl.where(rest < 0, rest + scaled, rest)
        rest = tl.where(rest >= scaled, rest - scaled, rest)
    whole = (y == 1.0) & (x < float("inf")) & (tl.abs(b) == float("inf"))
    invalid = (x == float("inf")) | (b == 0) | (x != x) | (b != b)
    found = tl.where(invalid, float("nan"), tl.where(whole, x, rest)).to(a.dtype)
    return copysign(found, a)


@triton.jit
def remainder(a, b):
    """Remainder with the sign of `b` (Python's rule) for floating point."""
    rest = fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def floor_div(a, b):
    """Quotient rounded down, from the remainder: a / b alone may round up to a whole number."""
    rest = fmod(a, b)
    share = quotient(a - rest, b)
    share = tl.where((rest != 0) & ((b < 0) != (rest < 0)), share - 1.0, share)
    down = floor(share)
    down = tl.where(share - down > 0.5, down + 1.0, down)
    down = tl.where(share == 0, copysign(share, quotient(a, b)), down)
    return tl.where(b == 0, quotient(a, b), down)


@triton.jit
def integer_floor_div(a, b):
    """Quotient rounded down."""
    quotient = a // b
    return tl.where((quotient * b != a) & ((a < 0) != (b < 0)), quotient - 1, quotient)


@triton.jit
def integer_remainder(a, b):
    """Remainder with the sign of `b`."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def integer_pow(a, b):
    """a ** b modulo 2**bits; to a negative power 0, but 1 for 1, and 1 or -1 for -1."""
    WIDTH: tl.constexpr = a.dtype.primitive_bitwidth
    one = ((a == a) | (b == b)).to(a.dtype)  # of both shapes: what a loop carries keeps its own
    power, square, left = one, a, b
    for _ in range(WIDTH):
        power = tl.where((left & 1) != 0, power * square, power)
        square = square * square
        left = left >> 1
    if a.dtype == tl.uint8:
        return power
    else:
        inverse = tl.where(a == -1, tl.where((b & 1) != 0, a, one), (a == 1).to(a.dtype))
        return tl.where(b < 0, inverse, power)


@triton.jit
def sign(x):
    """-1, 0 or 1; zero for NaN, as ATen has it."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


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
def sin(x):
    """Sine; of what is small the argument itself, for Triton's takes denormal numbers for zero."""
    return tl.where(tl.abs(x) < 1e-4, x, tl.sin(x)) if x.dtype == tl.float32 else tl.sin(x)


@triton.jit
def tan(x):
    """Tangent as a quotient."""
    return sin(x) / tl.cos(x)


LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The least finite number of float32: what a lane of `online_sum` begins with."""


@triton.jit
def online_sum(top, total, value):
    """The larger of `top`, which is not -inf, and `value`, and `total` below that one."""
    higher = maximum(top, value)
    kept = total * tl.exp2((top - higher) * 1.4426950408889634)
    return higher, kept + tl.exp2((value - higher) * 1.4426950408889634)


@triton.jit
def online_share(top, total, highest):
    """What a lane's `total` below its own `top` is below `highest`; NaN where that is infinite."""
    return total * tl.exp2((top - highest) * 1.4426950408889634)


@triton.jit
def online_result(total, highest):
    """The maximum and the sum of a row: -inf and NaN where nothing was larger than -inf."""
    nothing = total == 0
    return tl.where(nothing, float("-inf"), highest), tl.where(nothing, float("nan"), total)


@triton.jit
def philox_lane(seed, position):
    """Lane `position` mod 4 of Philox4x32-10's block with the counter `position` div 4 (64 bits
    both), as flambeau_prims.philox defines it."""
    counter = position >> 2
    low = (counter & 0xFFFFFFFF).to(tl.uint32)
    high = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    zero = tl.zeros_like(low)
    a, b, c, d = tl.philox(seed, low, high, zero, zero, n_rounds=10)
    lane = position & 3
    return tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))


@triton.jit
def philox_uniform(seed, position, bits):
    """Uniform in [0, 1) with so many bits, in float32, exactly."""
    drawn = philox_lane(seed, position) >> (32 - bits)
    return drawn.to(tl.int32).to(tl.float32) * (1.0 / (1 << bits))


@triton.jit
def philox_bits(seed, position):
    """32 random bits."""
    return philox_lane(seed, position).to(tl.int32, bitcast=True)
