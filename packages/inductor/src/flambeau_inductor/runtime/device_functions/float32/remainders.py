"""Exact remainders, and the quotients that follow from them.

In: two floats. Out: Triton tensors of the same shape. Invariant: a remainder is not rounded.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions.float32.instructions import quotient
from flambeau_inductor.runtime.device_functions.float32.rounding import copysign, floor


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
