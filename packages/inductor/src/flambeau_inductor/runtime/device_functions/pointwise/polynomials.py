"""Orthogonal polynomials of a degree that is an operand, by their recurrences.

In: Triton tensors of float32 or float64, the degree as such a number. Out: the same shape and
dtype. Invariant: recurrences and closed forms round to the operands' dtype where eager's do, a
step's product and sum as one `fma`, so that what overflows there does here; a degree is truncated,
and what is no number is none. Whether all have ended is a reduction: once in sixteen steps.
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
            r = tl.fma(x + x, q, p * -1.0)
            on = (k <= degree) & (q == q)
            p = tl.where(on, q, p)
            q = tl.where(on, r, q)
            k = k + 1
    return tl.where(degree == 0, 1.0, tl.where(degree < 0, 0.0, q))


@triton.jit
def _angle(x):
    """The arc cosine, 1 outside (-1, 1)."""
    wide = x.to(tl.float64)
    return fd.acos(tl.where(tl.abs(wide) < 1.0, wide, 0.5403023058681398)).to(x.dtype)


@triton.jit
def _sin(x):
    return tl.sin(x.to(tl.float64)).to(x.dtype)


@triton.jit
def _cos(x):
    return tl.cos(x.to(tl.float64)).to(x.dtype)


@triton.jit
def _t(x, degree, closed):
    """T, by its closed form where `closed`."""
    end = tl.abs(x) == 1.0
    closed = closed & (tl.abs(x) < 1.0)
    value = _chebyshev(x, x, tl.where(closed | end, 0, degree))
    value = tl.where(closed, _cos(degree.to(x.dtype) * _angle(x)), value)
    odd = (degree & 1) != 0
    value = tl.where(end, tl.where((x < 0) & odd, x, tl.abs(x)), value)
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def _u(x, degree, closed):
    """U, by its closed form where `closed`."""
    end = tl.abs(x) == 1.0
    closed = closed & (tl.abs(x) < 1.0)
    value = _chebyshev(x, x + x, tl.where(closed | end, 0, degree))
    angle = _angle(x)
    count = (degree + 1).to(x.dtype)
    value = tl.where(closed, _sin(count * angle) / _sin(angle), value)
    odd = (degree & 1) != 0
    value = tl.where(end, tl.where((x < 0) & odd, count * -1.0, count), value)
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def _v(x, degree, closed):
    """V, by its closed form where `closed`."""
    end = tl.abs(x) == 1.0
    closed = closed & (tl.abs(x) < 1.0)
    value = _chebyshev(x, x + x - 1.0, tl.where(closed | end, 0, degree))
    angle = _angle(x)
    quotient = _cos((degree.to(x.dtype) + 0.5) * angle) / _cos(angle * 0.5)
    value = tl.where(closed, quotient, value)
    near_end = closed & (_sin(angle * 0.5) == 1.0)  # the quotient has no digits left there
    odd = (degree & 1) != 0
    count = (degree + degree + 1).to(x.dtype)
    at_end = tl.where(odd, count * -1.0, count)
    value = tl.where(end & (x > 0), x, tl.where(end | near_end, at_end, value))
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def _w(x, degree, closed, near_one):
    """W, by its closed form where `closed`, which has no digits left `near_one`: eager's value."""
    end = tl.abs(x) == 1.0
    closed = closed & (tl.abs(x) < 1.0)
    value = _chebyshev(x, x + x + 1.0, tl.where(closed | end, 0, degree))
    angle = _angle(x)
    quotient = _sin((degree.to(x.dtype) + 0.5) * angle) / _sin(angle * 0.5)
    value = tl.where(closed, quotient, value)
    value = tl.where(closed & (_cos(angle * 0.5) == 1.0), near_one, value)
    odd = (degree & 1) != 0
    count = (degree + degree + 1).to(x.dtype)
    value = tl.where(end, tl.where(x > 0, count, tl.where(odd, x, x * -1.0)), value)
    return tl.where(degree < 0, 0.0, value)


@triton.jit
def chebyshev_t(x, n):
    """Chebyshev's polynomial T."""
    return _t(x, _degree(n), _degree(n) > 6)


@triton.jit
def shifted_chebyshev_t(x, n):
    """Chebyshev's polynomial T at 2 x - 1."""
    return _t(x + x - 1.0, _degree(n), _degree(n) > 6)


@triton.jit
def chebyshev_u(x, n):
    """Chebyshev's polynomial U."""
    return _u(x, _degree(n), _degree(n) > 8)


@triton.jit
def shifted_chebyshev_u(x, n):
    """Chebyshev's polynomial U at 2 x - 1."""
    return _u(x + x - 1.0, _degree(n), _degree(n) > 6)


@triton.jit
def chebyshev_v(x, n):
    """Chebyshev's polynomial V."""
    return _v(x, _degree(n), _degree(n) > 8)


@triton.jit
def shifted_chebyshev_v(x, n):
    """Chebyshev's polynomial V at 2 x - 1."""
    return _v(x + x - 1.0, _degree(n), _degree(n) > 6)


@triton.jit
def chebyshev_w(x, n):
    """Chebyshev's polynomial W."""
    degree = _degree(n)
    return _w(x, degree, degree > 8, (degree + degree + 1).to(x.dtype))


@triton.jit
def shifted_chebyshev_w(x, n):
    """Chebyshev's polynomial W at 2 x - 1."""
    degree = _degree(n)
    sign = (1 - (degree & 1) * 2).to(x.dtype)
    return _w(x + x - 1.0, degree, degree > 4, sign)


@triton.jit
def hermite_h(x, n):
    """Hermite's polynomial H."""
    degree = _degree(n)
    p = degree.to(x.dtype) * 0.0 + 1.0
    q = x + x
    k = degree * 0 + 2
    while blocks.some((k < degree + degree) & (q == q)):
        for _ in range(16):
            r = tl.fma(x + x, q, k.to(x.dtype) * p * -1.0)
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
            r = tl.fma(x, q, k.to(x.dtype) * p * -1.0)
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
            r = tl.fma(j + j + (1.0 - x), q, j * p * -1.0) / (j + 1.0)
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
            r = tl.fma((j + j + 1.0) * x, q, j * p * -1.0) / (j + 1.0)
            on = (k < last) & (q == q)
            p = tl.where(on, q, p)
            q = tl.where(on, r, q)
            k = k + 1
    odd = (degree & 1) != 0
    value = tl.where(end, tl.where((x < 0) & odd, x, tl.abs(x)), q)
    return tl.where(degree < 0, 0.0, tl.where(degree == 0, 1.0, value))
