# Device functions take Triton's tensors, which have no types of their own.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
# ruff: noqa: ANN001, ANN201, ANN202
"""Orthogonal polynomials of a degree that is an operand, by their recurrences.

In: Triton tensors of float32 or float64, the degree as such a number. Out: the same shape and
dtype. Invariant: the recurrences run in the operands' dtype, with eager's roundings in eager's
order, so that what overflows there does here; a degree is truncated, and what is no number is none.
A block asks whether it has ended once in sixteen steps: the answer is a reduction.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions import blocks
from flambeau_inductor.runtime.device_functions import float64 as fd


@triton.jit
def _degree(n):
    """A degree as an integer; -1 where it is not one that a computer could count to."""
    return tl.where(tl.abs(n) < 9e18, n, -1.0).to(tl.int64)


@triton.jit
def _chebyshev(x, second, degree):
    """The polynomial whose first two are 1 and `second`."""
    p = degree.to(x.dtype) * 0.0 + 1.0
    q = second
    k = degree * 0 + 2
    while blocks.some((k <= degree) & (q == q)):
        for _ in range(16):
            r = (x + x) * q - p
            on = (k <= degree) & (q == q)
            p = tl.where(on, q, p)
            q = tl.where(on, r, q)
            k = k + 1
    return tl.where(degree == 0, 1.0, tl.where(degree < 0, 0.0, q))


@triton.jit
def _angle(x):
    """The arc cosine in float64, 1 outside (-1, 1)."""
    wide = x.to(tl.float64)
    return fd.acos(tl.where(tl.abs(wide) < 1.0, wide, 0.5403023058681398))


@triton.jit
def chebyshev_t(x, n):
    """Chebyshev's polynomial T."""
    degree = _degree(n)
    closed = (tl.abs(x) < 1.0) & (degree > 6)
    end = tl.abs(x) == 1.0
    value = _chebyshev(x, x, tl.where(closed | end, 0, degree))
    inside = tl.cos(degree.to(tl.float64) * _angle(x))
    value = tl.where(closed, inside.to(x.dtype), value)
    odd = (degree & 1) != 0
    value = tl.where(end, tl.where((x < 0) & odd, x, tl.abs(x)), value)
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def chebyshev_u(x, n):
    """Chebyshev's polynomial U."""
    degree = _degree(n)
    closed = (tl.abs(x) < 1.0) & (degree > 8)
    end = tl.abs(x) == 1.0
    value = _chebyshev(x, x + x, tl.where(closed | end, 0, degree))
    angle = _angle(x)
    count = degree.to(tl.float64) + 1.0
    value = tl.where(closed, (tl.sin(count * angle) / tl.sin(angle)).to(x.dtype), value)
    odd = (degree & 1) != 0
    at_end = tl.where((x < 0) & odd, count * -1.0, count).to(x.dtype)
    value = tl.where(end, at_end, value)
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def chebyshev_v(x, n):
    """Chebyshev's polynomial V."""
    degree = _degree(n)
    closed = (tl.abs(x) < 1.0) & (degree > 8)
    end = tl.abs(x) == 1.0
    value = _chebyshev(x, x + x - 1.0, tl.where(closed | end, 0, degree))
    half = _angle(x) * 0.5
    count = 2.0 * degree.to(tl.float64) + 1.0
    value = tl.where(closed, (tl.cos(count * half) / tl.cos(half)).to(x.dtype), value)
    near_end = closed & (tl.sin(half) == 1.0)  # the quotient has no digits left there
    odd = (degree & 1) != 0
    at_end = tl.where(odd, count * -1.0, count).to(x.dtype)
    value = tl.where(end & (x > 0), x, tl.where(end | near_end, at_end, value))
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def chebyshev_w(x, n):
    """Chebyshev's polynomial W."""
    degree = _degree(n)
    closed = (tl.abs(x) < 1.0) & (degree > 8)
    end = tl.abs(x) == 1.0
    value = _chebyshev(x, x + x + 1.0, tl.where(closed | end, 0, degree))
    half = _angle(x) * 0.5
    count = 2.0 * degree.to(tl.float64) + 1.0
    value = tl.where(closed, (tl.sin(count * half) / tl.sin(half)).to(x.dtype), value)
    odd = (degree & 1) != 0
    at_end = tl.where(x > 0, count.to(x.dtype), tl.where(odd, x, x * -1.0))
    value = tl.where(end, at_end, value)
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def hermite_h(x, n):
    """Hermite's polynomial H."""
    degree = _degree(n)
    p = degree.to(x.dtype) * 0.0 + 1.0
    q = x + x
    k = degree * 0 + 2
    while blocks.some((k < degree + degree) & (q == q)):
        for _ in range(16):
            r = (x + x) * q - k.to(x.dtype) * p
            on = (k < degree + degree) & (q == q)
            p = tl.where(on, q, p)
            q = tl.where(on, r, q)
            k = k + 2
    return tl.where(degree == 0, 1.0, tl.where(degree < 0, 0.0, q))


@triton.jit
def hermite_he(x, n):
    """Hermite's polynomial He, of the probabilists."""
    degree = _degree(n)
    p = degree.to(x.dtype) * 0.0 + 1.0
    q = x
    k = degree * 0 + 1
    while blocks.some((k < degree) & (q == q)):
        for _ in range(16):
            r = x * q - k.to(x.dtype) * p
            on = (k < degree) & (q == q)
            p = tl.where(on, q, p)
            q = tl.where(on, r, q)
            k = k + 1
    return tl.where(degree == 0, 1.0, tl.where(degree < 0, 0.0, q))


@triton.jit
def laguerre_l(x, n):
    """Laguerre's polynomial L."""
    degree = _degree(n)
    last = tl.where(x == 0, 0, degree)
    p = degree.to(x.dtype) * 0.0 + 1.0
    q = 1.0 - x
    k = degree * 0 + 1
    while blocks.some((k < last) & (q == q)):
        for _ in range(16):
            j = k.to(x.dtype)
            r = ((j + j + (1.0 - x)) * q - j * p) / (j + 1.0)
            on = (k < last) & (q == q)
            p = tl.where(on, q, p)
            q = tl.where(on, r, q)
            k = k + 1
    return tl.where(degree < 0, 0.0, tl.where(last == 0, 1.0, q))


@triton.jit
def legendre_p(x, n):
    """Legendre's polynomial P."""
    degree = _degree(n)
    end = tl.abs(x) == 1.0
    last = tl.where(end, 0, degree)
    p = degree.to(x.dtype) * 0.0 + 1.0
    q = x
    k = degree * 0 + 1
    while blocks.some((k < last) & (q == q)):
        for _ in range(16):
            j = k.to(x.dtype)
            r = ((j + j + 1.0) * x * q - j * p) / (j + 1.0)
            on = (k < last) & (q == q)
            p = tl.where(on, q, p)
            q = tl.where(on, r, q)
            k = k + 1
    odd = (degree & 1) != 0
    value = tl.where(end, tl.where((x < 0) & odd, x, tl.abs(x)), q)
    return tl.where(degree < 0, 0.0, tl.where(degree == 0, 1.0, value))
