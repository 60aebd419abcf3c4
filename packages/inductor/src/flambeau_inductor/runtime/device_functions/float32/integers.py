"""Arithmetic of integers, modulo two to the power of their bits.

In: integers of any width. Out: Triton tensors of the same shape. Invariant: what eager has for the
same operands, the least value and counts that are too large included.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions.float32.instructions import DEVICE


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
