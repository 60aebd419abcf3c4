"""Special-function device functions for Triton kernels.

In: Triton tensors of float32 or float64. Out: the same shape and dtype. Invariant: everything here
runs under Triton's interpreter as well as on the device. All but `nextafter` compute in float64 and
round once, so that float32 results are off by little more than half a unit in the last place.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _polynomial(x, COEFFICIENTS: tl.constexpr):
    """By Horner's rule, the coefficient of the highest power first, each step rounded."""
    value = COEFFICIENTS[0] * x + COEFFICIENTS[1]
    for k in tl.static_range(2, len(COEFFICIENTS)):
        value = value * x + COEFFICIENTS[k]
    return value


@triton.jit
def _erfc_of_positive(x):
    """erfc of x >= 0 in float64, relative error below 1e-13.

    t*exp(-x^2 + p(2t - 1)) with t = 2/(2 + x), p interpolated at Chebyshev's nodes.
    """
    t = 2.0 / (2.0 + x)
    u = 2.0 * t - 1.0
    p = _polynomial(u, (
        2.98051330745761032e-08, 7.99204676563584183e-10, -2.89562653434807365e-07,
        1.59754826137810084e-07, 1.28339490700735936e-06, -1.71287804815992229e-06,
        -2.96348421894111016e-06, 8.95269230211179319e-06, 1.39893693901590465e-07,
        -3.04210975327427386e-05, 3.17469354296949166e-05, 7.14953098266298660e-05,
        -1.74304129871749141e-04, -9.37603576031763699e-05, 6.73679135257507287e-04,
        -1.46242523957633614e-04, -2.34581255299598892e-03, 1.75893311711768302e-03,
        8.82493856131233434e-03, -9.87268934319109059e-03, -4.68956102313289186e-02,
        4.73433068414248828e-02, 6.72643223977658300e-01, -6.71794084056690610e-01,
    ))  # fmt: skip
    # beyond 28 all of it is below the smallest number; there x * x must not become infinite
    c = tl.where(x > 28.0, 28.0, x)
    return tl.where(x > 28.0, 0.0, t * tl.exp(p - c * c))


@triton.jit
def erfc(x):
    """Complementary error function."""
    wide = x.to(tl.float64)
    a = tl.abs(wide)
    e = _erfc_of_positive(a)
    result = tl.where(wide < 0, 2.0 - e, e)
    return tl.where(wide != wide, wide, result).to(x.dtype)


@triton.jit
def erfinv(x):
    """Inverse of the error function: M. Giles' polynomials (GPU Computing Gems, 2010), and two
    steps of Newton's method on erfc, which is exact where 1 - |x| is."""
    wide = x.to(tl.float64)
    a = tl.abs(wide)
    inside = tl.where(a < 1.0, a, 0.5)
    w = -tl.log((1.0 - inside) * (1.0 + inside))
    near = w < 5.0
    v = tl.where(near, w - 2.5, tl.sqrt(tl.where(near, 5.0, w)) - 3.0)
    p = _polynomial(v, (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
        -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
    ))  # fmt: skip
    q = _polynomial(v, (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
    ))  # fmt: skip
    y = tl.where(near, p, q) * inside
    for _ in tl.static_range(2):
        step = (_erfc_of_positive(y) - (1.0 - inside)) * 0.8862269254527580 * tl.exp(y * y)
        y = y + step / (1.0 + y * step)
    # near zero 1 - x keeps too few digits of x: the series instead
    s = inside * inside
    series = inside * (0.886226925452758 + s * (0.2320136665346545 + s * 0.1275561753055979))
    y = tl.where(inside < 1e-3, series, y)
    y = tl.where(a == 1.0, float("inf"), tl.where(a > 1.0, float("nan"), y))
    signed = tl.where(wide < 0, y * -1.0, y)
    return tl.where((wide != wide) | (wide == 0), wide, signed).to(x.dtype)


@triton.jit
def _sine_of_pi(x):
    """|sin(pi x)| of x >= 0 in float64, exact zeros at whole numbers."""
    rest = x - tl.floor(x)
    rest = tl.where(rest > 0.5, 1.0 - rest, rest)
    return tl.sin(3.141592653589793 * rest)


@triton.jit
def lgamma(x):
    """Logarithm of |gamma(x)|: Lanczos' series (g = 7, nine terms; P. Godfrey's coefficients),
    reflected below a half."""
    wide = x.to(tl.float64)
    reflected = wide < 0.5
    z = tl.where(reflected, 1.0 - wide, wide) - 1.0
    s = tl.full(z.shape, 0.9999999999998099, tl.float64)
    s = s + 676.5203681218851 / (z + 1.0)
    s = s - 1259.1392167224028 / (z + 2.0)
    s = s + 771.3234287776531 / (z + 3.0)
    s = s - 176.6150291621406 / (z + 4.0)
    s = s + 12.507343278686905 / (z + 5.0)
    s = s - 0.13857109526572012 / (z + 6.0)
    s = s + 9.984369578019572e-06 / (z + 7.0)
    s = s + 1.5056327351493116e-07 / (z + 8.0)
    t = z + 7.5
    value = 0.9189385332046727 + (z + 0.5) * tl.log(t) - t + tl.log(s)
    sine = _sine_of_pi(tl.abs(wide))
    pole = (wide <= 0) & (wide == tl.floor(wide))
    other = 1.1447298858494002 - tl.log(tl.where(sine == 0, 1.0, sine)) - value
    value = tl.where(reflected, other, value)
    value = tl.where(pole | (tl.abs(wide) == float("inf")), float("inf"), value)
    value = tl.where((wide == 1.0) | (wide == 2.0), 0.0, value)
    return tl.where(wide != wide, wide, value).to(x.dtype)


@triton.jit
def digamma(x):
    """Derivative of lgamma: ten steps of its recurrence, then the asymptotic series
    (Abramowitz and Stegun, 6.3.5 and 6.3.18), reflected below zero; added in eager's order, which
    shows where terms cancel: next to a zero of the function."""
    wide = x.to(tl.float64)
    reflected = wide < 0
    z = tl.where(reflected, 1.0 - wide, wide)
    z = tl.where(z == 0, 1.0, z)
    total = z * 0.0
    for _ in tl.static_range(10):
        small = z < 10.0
        total = tl.where(small, total - 1.0 / z, total)
        z = tl.where(small, z + 1.0, z)
    s = 1.0 / (z * z)
    p = _polynomial(s, (
        8.333333333333333e-02, -2.109279609279609e-02, 7.575757575757576e-03,
        -4.166666666666667e-03, 3.968253968253968e-03, -8.333333333333333e-03,
        8.333333333333333e-02,
    ))  # fmt: skip
    value = total + tl.log(z) - 0.5 / z - s * p
    value = tl.where(z == 10.0, total + 2.251752589066721, value)
    whole = wide == tl.floor(wide)
    rest = wide - tl.floor(wide + 0.5)  # exact next to zero too
    safe = tl.where(whole, 0.25, rest) * 3.141592653589793
    value = tl.where(reflected, value - 3.141592653589793 * tl.cos(safe) / tl.sin(safe), value)
    value = tl.where(reflected & whole, float("nan"), value)
    value = tl.where(wide == float("inf"), wide, value)
    value = tl.where(wide == 0, -1.0 / wide, value)
    return tl.where(wide != wide, wide, value).to(x.dtype)


@triton.jit
def nextafter(x, y):
    """The number next to x on the way to y, by its bits: they count upwards from zero."""
    BITS: tl.constexpr = tl.int64 if x.dtype == tl.float64 else tl.int32
    bits = x.to(BITS, bitcast=True)
    one = tl.full(x.shape, 1, BITS)
    moved = tl.where((x < y) == (x > 0), bits + one, bits - one).to(x.dtype, bitcast=True)
    tiny = one.to(x.dtype, bitcast=True)
    moved = tl.where(x == 0, tl.where(y > 0, tiny, tiny * -1.0), moved)
    return tl.where((x != x) | (y != y), x + y, tl.where(x == y, y, moved))
