# Device functions take Triton's tensors, which have no types of their own.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201
"""Float64 device functions for Triton kernels, with eager's results.

In: Triton tensors of float64. Out: the same shape. Invariant: under Triton's interpreter, which has
no library, the formulas of `gpu_math` and `gpu_special`, most of which are made for float32.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import libdevice

from flambeau_inductor.runtime.device_functions import float32 as fm
from flambeau_inductor.runtime.device_functions import special as sf

DEVICE = tl.constexpr(fm.DEVICE.value)
"""False under the interpreter."""


@triton.jit
def expm1(x):
    """exp(x) - 1."""
    if DEVICE:
        return libdevice.expm1(x)
    else:
        return fm.expm1(x)


@triton.jit
def log1p(x):
    """log(1 + x)."""
    if DEVICE:
        return libdevice.log1p(x)
    else:
        return fm.log1p(x)


@triton.jit
def tan(x):
    """Tangent."""
    if DEVICE:
        return libdevice.tan(x)
    else:
        return fm.tan(x)


@triton.jit
def asin(x):
    """Arc sine."""
    if DEVICE:
        return libdevice.asin(x)
    else:
        return fm.asin(x)


@triton.jit
def acos(x):
    """Arc cosine."""
    if DEVICE:
        return libdevice.acos(x)
    else:
        return fm.acos(x)


@triton.jit
def atan(x):
    """Arc tangent."""
    if DEVICE:
        return libdevice.atan(x)
    else:
        return fm.atan(x)


@triton.jit
def sinh(x):
    """Hyperbolic sine."""
    if DEVICE:
        return libdevice.sinh(x)
    else:
        return fm.sinh(x)


@triton.jit
def cosh(x):
    """Hyperbolic cosine."""
    if DEVICE:
        return libdevice.cosh(x)
    else:
        return fm.cosh(x)


@triton.jit
def tanh(x):
    """Hyperbolic tangent."""
    if DEVICE:
        return libdevice.tanh(x)
    else:
        return fm.tanh_double(x)


@triton.jit
def asinh(x):
    """Inverse hyperbolic sine."""
    if DEVICE:
        return libdevice.asinh(x)
    else:
        return fm.asinh(x)


@triton.jit
def acosh(x):
    """Inverse hyperbolic cosine."""
    if DEVICE:
        return libdevice.acosh(x)
    else:
        return fm.acosh(x)


@triton.jit
def atanh(x):
    """Inverse hyperbolic tangent."""
    if DEVICE:
        return libdevice.atanh(x)
    else:
        return fm.atanh(x)


@triton.jit
def erfc(x):
    """Complementary error function."""
    if DEVICE:
        return libdevice.erfc(x)
    else:
        return sf.erfc(x)


@triton.jit
def erfinv(x):
    """Inverse of the error function."""
    if DEVICE:
        return libdevice.erfinv(x)
    else:
        return sf.erfinv(x)


@triton.jit
def lgamma(x):
    """Logarithm of |gamma(x)|."""
    if DEVICE:
        return libdevice.lgamma(x)
    else:
        return sf.lgamma(x)


@triton.jit
def pow(x, y):
    """x ** y."""
    if DEVICE:
        return libdevice.pow(x, y)
    else:
        return fm.pow(x, y)


@triton.jit
def atan2(x, y):
    """Angle of the point (y, x)."""
    if DEVICE:
        return libdevice.atan2(x, y)
    else:
        return fm.atan2(x, y)
