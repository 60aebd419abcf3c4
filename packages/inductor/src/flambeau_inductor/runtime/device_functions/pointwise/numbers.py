"""Numbers and their bits: distances, divisors, parts of a float.

In: Triton tensors of floats, or of integers for `gcd` and `lcm`. Out: the same shape.
Invariant: all but `hypot` are exact.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions import blocks


@triton.jit
def hypot(x, y):
    """sqrt(x*x + y*y) without overflow in between; infinite if either is, NaN or not."""
    a = tl.abs(x.to(tl.float64))
    b = tl.abs(y.to(tl.float64))
    high = tl.where(a > b, a, b)
    low = tl.where(a > b, b, a)
    scaled = low / tl.where(high == 0, 1.0, high)
    value = high * tl.sqrt(1.0 + scaled * scaled)
    value = tl.where((a != a) | (b != b), float("nan"), value)
    infinite = (a == float("inf")) | (b == float("inf"))
    return tl.where(infinite, float("inf"), value).to(x.dtype)


@triton.jit
def gcd(x, y):
    """The greatest common divisor, by Euclid's algorithm."""
    a = tl.where(x < 0, 0 - x, x)
    b = tl.where(y < 0, 0 - y, y)
    while blocks.some(a != 0):
        rest = b % tl.where(a == 0, 1, a)
        b = tl.where(a == 0, b, a)
        a = tl.where(a == 0, a, rest)
    return b


@triton.jit
def lcm(x, y):
    """The least common multiple; 0 if either is 0. What does not fit wraps around, as in C: after
    the sign is taken away where the product of two such numbers is an int, else before it."""
    common = gcd(x, y).to(tl.int64)
    common = tl.where(common < 0, 0 - common, common)
    product = x.to(tl.int64) // tl.where(common == 0, 1, common) * y.to(tl.int64)
    result = tl.where(product < 0, 0 - product, product).to(x.dtype)
    return tl.where((result < 0) & (x.dtype.primitive_bitwidth >= 32), 0 - result, result)


@triton.jit
def signbit(x):
    """Whether the sign bit is set, of NaN too."""
    return x.to(tl.float64).to(tl.int64, bitcast=True) < 0


@triton.jit
def _scaled_bits(x):
    """The bits in float64 of x, or of 2**54 x where that is below the least normal number."""
    wide = x.to(tl.float64)
    tiny = tl.abs(wide) < 2.2250738585072014e-308
    return tl.where(tiny, wide * 18014398509481984.0, wide).to(tl.int64, bitcast=True)


@triton.jit
def frexp_mantissa(x):
    """The mantissa in [1/2, 1), with the sign; zeros, infinities and NaN are their own."""
    wide = x.to(tl.float64)
    bits = _scaled_bits(wide)
    mantissa = (bits & -9218868437227405313) | 4602678819172646912
    itself = (wide == 0) | (wide != wide) | (tl.abs(wide) == float("inf"))
    return tl.where(itself, wide, mantissa.to(tl.float64, bitcast=True)).to(x.dtype)


@triton.jit
def frexp_exponent(x):
    """The exponent as an int32; 0 where the mantissa is the number itself."""
    wide = x.to(tl.float64)
    tiny = tl.abs(wide) < 2.2250738585072014e-308
    exponent = ((_scaled_bits(wide) >> 52) & 2047) - tl.where(tiny, 1076, 1022)
    itself = (wide == 0) | (wide != wide) | (tl.abs(wide) == float("inf"))
    return tl.where(itself, 0, exponent).to(tl.int32)
