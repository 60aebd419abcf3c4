"""Signs of floats, roundings and conversions to integers.

In: float32 or float64. Out: Triton tensors of the same shape. Invariant: the sign of zero is the
operand's, and denormal numbers are no zeros.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions.float32.instructions import DEVICE, instruction


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
def _rounded(HOW: tl.constexpr, x):
    """To an integer by the device's conversion: Triton's own takes denormal numbers for zero."""
    WIDTH: tl.constexpr = x.dtype.primitive_bitwidth
    # Triton 3.6 takes a text for a call's argument by this annotation alone
    NAME: tl.constexpr = f"cvt.{HOW}.f{WIDTH}.f{WIDTH}"
    return instruction(NAME, x)


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
def whole(x, BITS: tl.constexpr):
    """The integer of 32 or 64 bits towards zero, by the device's conversion: what is beyond these
    bits is the nearest that they hold. To a compiler such a conversion is undefined, so that of
    Triton's own, of a constant, it may make any number."""
    INTEGER: tl.constexpr = tl.int64 if BITS == 64 else tl.int32
    if DEVICE:
        WIDTH: tl.constexpr = x.dtype.primitive_bitwidth
        FROM: tl.constexpr = "d" if WIDTH == 64 else "f"
        TO: tl.constexpr = "l" if BITS == 64 else "r"
        return tl.inline_asm_elementwise(
            f"cvt.rzi.s{BITS}.f{WIDTH} $0, $1;",
            f"={TO},{FROM}",
            [x],
            dtype=INTEGER.value,
            is_pure=True,
            pack=1,
        )
    else:
        return x.to(INTEGER)


@triton.jit
def with_sign(magnitude, x):
    """`magnitude`, which is not negative, of float32 with the sign bit of `x`."""
    return (magnitude.to(tl.int32, bitcast=True) | sign_bit(x)).to(tl.float32, bitcast=True)


@triton.jit
def sign(x):
    """-1, 0 or 1; zero for NaN, as ATen has it."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
