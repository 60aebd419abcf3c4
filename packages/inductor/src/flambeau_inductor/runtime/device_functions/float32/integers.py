"""Arithmetic of integers, modulo two to the power of their bits.

In: integers of any width. Out: Triton tensors of the same shape. Invariant: what eager has for the
same operands, the least value and counts that are too large included.

Exact remainders, and the quotients that follow from them. In: two floats. Out: Triton tensors of
the same shape. Invariant: a remainder is not rounded.

Random numbers by Philox, as functions of a seed and a position. In: a seed, positions. Out: Triton
tensors of the same shape. Invariant: those of `flambeau_prims.philox`, bit for bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions.float32.instructions import DEVICE, quotient
from flambeau_inductor.runtime.device_functions.float32.rounding import copysign, floor


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
def byte_to_float32(x):
    """int8 or uint8 as float32, exact. Four at a time, each as the low bits of a number of 2**23
    from which 2**23 is taken: the conversion is one of the slow instructions."""
    PACKED: tl.constexpr = DEVICE and x.numel % 4 == 0
    if PACKED:
        FLIP: tl.constexpr = "0" if x.dtype == tl.uint8 else "0x80808080"  # adds 128
        LESS: tl.constexpr = "0f4B000000" if x.dtype == tl.uint8 else "0f4B000080"
        return tl.inline_asm_elementwise(
            f"{{ .reg .b32 all, one; xor.b32 all, $4, {FLIP};"
            f" prmt.b32 one, all, 0x4B000000, 0x7440; sub.f32 $0, one, {LESS};"
            f" prmt.b32 one, all, 0x4B000000, 0x7441; sub.f32 $1, one, {LESS};"
            f" prmt.b32 one, all, 0x4B000000, 0x7442; sub.f32 $2, one, {LESS};"
            f" prmt.b32 one, all, 0x4B000000, 0x7443; sub.f32 $3, one, {LESS}; }}",
            "=&f,=&f,=&f,=&f,r",
            [x],
            dtype=tl.float32,
            is_pure=True,
            pack=4,
        )
    else:
        return x.to(tl.float32)


@triton.jit
def small_to_float32(x):
    """A whole number of at most 2**22, of either sign, as float32, exact: as the low bits of a
    number of 2**23. The conversion is one of the slow instructions."""
    return (x.to(tl.int32) + 0x4B400000).to(tl.float32, bitcast=True) - 12582912.0


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
