"""Trigonometric functions and their inverses.

In: float32 or float64. Out: Triton tensors of the same shape. Invariant: zero keeps its sign.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions.float32.instructions import polynomial
from flambeau_inductor.runtime.device_functions.float32.rounding import copysign, sign_bit


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
