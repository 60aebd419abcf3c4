"""The gamma function's relatives: incomplete gamma functions, zeta and polygamma.

In: Triton tensors of float32 or float64. Out: the same shape and dtype. Invariant: loops end where
a term changes nothing any more; of a large order the incomplete functions take Temme's expansion,
since the terms of the others are as many as its root.
"""

from __future__ import annotations

import triton
import triton.language as tl

from flambeau_inductor.runtime.device_functions import blocks
from flambeau_inductor.runtime.device_functions import float64 as fd
from flambeau_inductor.runtime.device_functions import special as sf


@triton.jit
def _log_deficit(m):
    """log(1 + m) - m of |m| < 0.4, by powers of s = m / (2 + m) (Abramowitz and Stegun, 4.1.27)."""
    s = m / (2.0 + m)
    z = s * s
    p = (z / 27.0 + 0.04) * z + 0.043478260869565216
    p = ((p * z + 0.047619047619047616) * z + 0.05263157894736842) * z + 0.058823529411764705
    p = ((p * z + 0.06666666666666667) * z + 0.07692307692307693) * z + 0.09090909090909091
    p = ((p * z + 0.1111111111111111) * z + 0.14285714285714285) * z + 0.2
    p = p * z + 0.3333333333333333
    return 2.0 * s * z * p - m * s


@triton.jit
def _density(a, x):
    """x**a exp(-x) / gamma(a + 1): above 10 by Stirling's series, whose large powers cancel. Where
    it is below all normal numbers times a it is 0, as in eager: of the least orders all of it."""
    big = tl.where(a > 10.0, a, 10.0)
    m = (x - big) / big
    near = tl.abs(m) < 0.4
    ratio = tl.where(near, 1.0, x / big)
    deficit = tl.where(near, _log_deficit(tl.where(near, m, 0.0)), tl.log(ratio) - m)
    r = 1.0 / big
    s = r * r
    p = (s / 156.0 - 0.0019175269175269176) * s + 0.0008417508417508417
    p = ((p * s - 0.0005952380952380953) * s + 0.0007936507936507937) * s - 0.002777777777777778
    p = (p * s + 0.08333333333333333) * r
    of_big = tl.exp(big * deficit - p) * 0.3989422804014327 / tl.sqrt(big)
    small = tl.where(a > 10.0, 1.0, a)
    exponent = small * tl.log(x) - x - sf.lgamma(small + 1.0)
    least = (exponent + tl.log(small) < -709.782712893384) & (tl.abs(small - x) > 0.4 * small)
    of_small = tl.where(least, 0.0, tl.exp(exponent))
    return tl.where(a > 10.0, of_big, of_small)


@triton.jit
def _series(a, x, wanted):
    """The lower function over the density (Abramowitz and Stegun, 6.5.29), where wanted."""
    term = x * 0.0 + 1.0
    total = term
    k = a
    on = wanted
    while blocks.some(on):
        k = k + 1.0
        term = tl.where(on, term * (x / k), term)
        total = tl.where(on, total + term, total)
        on = on & (term > total * 1e-17)
    return total


@triton.jit
def _fraction(a, x, wanted):
    """The upper function over a times the density, where wanted: the continued fraction of
    Abramowitz and Stegun, 6.5.31, by Lentz's method."""
    b = x + 1.0 - a
    d = 1.0 / tl.where(wanted, b, 1.0)
    c = x * 0.0 + 1e300
    total = d
    i = x * 0.0
    on = wanted
    while blocks.some(on):
        i = i + 1.0
        numerator = i * (a - i)
        b = b + 2.0
        d = 1.0 / tl.where(on, numerator * d + b, 1.0)
        c = tl.where(on, b + numerator / c, 1.0)
        total = tl.where(on, total * (c * d), total)
        on = on & (tl.abs(c * d - 1.0) > 2e-16)
    return total


@triton.jit
def _temme(a, m):
    """The lesser function of a large order a at x = a (1 + m), |m| <= 0.05: N. Temme's uniform
    expansion (SIAM Journal on Mathematical Analysis 10, 1979; DLMF 8.12)."""
    half = _log_deficit(m) * -1.0
    e = tl.sqrt(2.0 * half)
    e = tl.where(m < 0, e * -1.0, e)
    p = (8.296711340953086e-07 * e - 1.8540622107151599e-06) * e - 2.185448510679992e-06
    p = ((p * e + 3.9192631785224378e-05) * e - 0.00017875514403292181) * e + 0.0003527336860670194
    p = ((p * e + 0.0011574074074074073) * e - 0.014814814814814815) * e + 0.08333333333333333
    p = p * e - 0.3333333333333333
    q = (-4.0187757201646091e-07 * e + 0.00020576131687242798) * e - 0.0009902263374485597
    q = ((q * e + 0.0026455026455026454) * e - 0.003472222222222222) * e - 0.001851851851851852
    r = (2.0093878600823047e-06 * e + 0.0007716049382716049) * e - 0.0026813271604938272
    r = r * e + 0.004133597883597883 + 0.0006494341563786008 / a
    p = p + (q + r / a) / a
    rest = p * tl.exp(half * a * -1.0) * 0.3989422804014327 / tl.sqrt(a)
    return 0.5 * sf.erfc(tl.abs(e) * tl.sqrt(a * 0.5)) + tl.where(m < 0, rest * -1.0, rest)


@triton.jit
def _uniform(x, y):
    """Whether the expansion is taken."""
    return (x > 1e4) & (tl.abs(y - x) <= 0.05 * x)


@triton.jit
def _is_lower(x, y):
    """Whether `_lesser` is the lower function."""
    return (y < tl.where(_uniform(x, y), x, x + 1.0)) | ((y == 1.0) & (x < 1.0))


@triton.jit
def _lesser(x, y):
    """One of the regularized functions of x > 0 and y > 0, both finite."""
    uniform = _uniform(x, y)
    below = _is_lower(x, y)
    density = _density(x, y)
    lower = density * _series(x, y, below & (uniform == 0))
    upper = density * x * _fraction(x, y, (below | uniform) == 0)
    value = _temme(tl.where(uniform, x, 1e5), tl.where(uniform, (y - x) / x, 0.0))
    return tl.where(uniform, value, tl.where(below, lower, upper))


@triton.jit
def _of_small_order(a, x):
    """The upper function of 0 < a < 1 and 0 < x < 1, where the lower one is nearly 1: what is left
    of 1, log(gamma(1 + a)) / a being a polynomial that was computed with 50 digits."""
    u = 2.0 * a - 1.0
    p = -2.508922202001311e-12 * u + 7.845475192168032e-12
    p = ((p * u - 1.0151332447842754e-11) * u + 3.203625114685401e-11) * u - 1.374350116095214e-10
    p = ((p * u + 4.34472544152063e-10) * u - 1.326145662955733e-09) * u + 4.221363666837412e-09
    p = ((p * u - 1.3534519558575234e-08) * u + 4.343163415453668e-08) * u - 1.4004625528094898e-07
    p = ((p * u + 4.5435217666362336e-07) * u - 1.4845467422386974e-06) * u + 4.892819890688809e-06
    p = ((p * u - 1.6302859912073135e-05) * u + 5.509761615462434e-05) * u - 0.00018982580267111246
    p = ((p * u + 0.0006721846829919744) * u - 0.0024816898010376533) * u + 0.009820705603133417
    p = ((p * u - 0.04435389911289714) * u + 0.27805444924906697) * u - 0.24156447527049044
    w = a * (tl.log(x) - p)
    grown = tl.exp(w)
    safe = tl.where((grown == 1.0) | (grown < 1e-300), 0.5, grown)
    less = tl.where(grown == 1.0, w, (safe - 1.0) * w / tl.log(safe))  # exp(w) - 1 (W. Kahan)
    less = tl.where(grown < 1e-300, -1.0, less)
    n = 0.0 / a
    power = n + 1.0
    total = n
    for _ in tl.static_range(18):
        n = n + 1.0
        power = power * x / (n * -1.0)
        total = total + power / (a + n)
    return (less + grown * a * total) * -1.0


@triton.jit
def _at_the_ends(x, y, value, at_zero):
    """`value` where both operands are ordinary, and the limits: `at_zero` is what y = 0 gives. A
    limit that one operand decides is taken whatever the other is, NaN included, as in eager."""
    far = 1.0 - at_zero
    value = tl.where((x != x) | (y != y), float("nan"), value)
    value = tl.where(y == float("inf"), far, value)
    value = tl.where(x == float("inf"), at_zero, value)
    value = tl.where(y == 0, at_zero, value)
    value = tl.where(x == 0, tl.where(y > 0, far, float("nan")), value)
    missing = (x < 0) | (y < 0) | ((x == float("inf")) & (y == float("inf")))
    return tl.where(missing, float("nan"), value)


@triton.jit
def _ordinary(x, y):
    """Whether both operands are above 0 and finite."""
    return (x > 0) & (y > 0) & (x < float("inf")) & (y < float("inf"))


@triton.jit
def igamma(x, y):
    """The regularized lower incomplete gamma function P(x, y)."""
    a = x.to(tl.float64)
    b = y.to(tl.float64)
    on = _ordinary(a, b)
    c = tl.where(on, a, 1.0)
    d = tl.where(on, b, 1.0)
    value = _lesser(c, d)
    value = tl.where(_is_lower(c, d), value, 1.0 - value)
    return _at_the_ends(a, b, value, 0.0).to(x.dtype)


@triton.jit
def igammac(x, y):
    """The regularized upper incomplete gamma function Q(x, y)."""
    a = x.to(tl.float64)
    b = y.to(tl.float64)
    on = _ordinary(a, b)
    c = tl.where(on, a, 1.0)
    d = tl.where(on, b, 1.0)
    value = _lesser(c, d)
    value = tl.where(_is_lower(c, d), 1.0 - value, value)
    small = (c < 1.0) & (d < 1.0)
    of_small = _of_small_order(tl.where(small, c, 0.5), tl.where(small, d, 0.5))
    value = tl.where(small, of_small, value)
    return _at_the_ends(a, b, value, 1.0).to(x.dtype)


@triton.jit
def zeta(x, y):
    """Hurwitz' zeta function of the exponent x and the start y: terms up to 9, then Euler's and
    Maclaurin's formula (Abramowitz and Stegun, 23.1.30)."""
    s = x.to(tl.float64)
    q = y.to(tl.float64)
    whole = q == tl.floor(q)
    infinite = (s == 1.0) | (((s < 1.0) == 0) & (q <= 0) & whole)  # whatever the other is
    undefined = (s < 1.0) | (s != s) | (q != q) | ((q <= 0) & (s != tl.floor(s)) & (whole == 0))
    ordinary = (undefined | infinite) == 0
    s = tl.where(ordinary, s, 2.0)
    w = tl.where(ordinary, q, 1.0)
    term = fd.pow(w, s * -1.0)
    total = term
    i = w * 0.0
    on = ordinary
    while blocks.some(on):
        i = i + 1.0
        w = tl.where(on, w + 1.0, w)
        term = tl.where(on, fd.pow(w, s * -1.0), term)
        total = tl.where(on, total + term, total)
        on = on & ((i < 9.0) | (w <= 9.0)) & (tl.abs(term) >= tl.abs(total) * 1e-17) & (w + 1.0 > w)
    part = s * term / w
    # part times (s + 1) (s + 2) / w**2, and so on, over (2k)! / B_2k
    t = part / 12.0
    part = part * ((s + 1.0) / w) * ((s + 2.0) / w)
    t = t - part / 720.0
    part = part * ((s + 3.0) / w) * ((s + 4.0) / w)
    t = t + part / 30240.0
    part = part * ((s + 5.0) / w) * ((s + 6.0) / w)
    t = t - part / 1209600.0
    part = part * ((s + 7.0) / w) * ((s + 8.0) / w)
    t = t + part / 47900160.0
    part = part * ((s + 9.0) / w) * ((s + 10.0) / w)
    t = t - part / 1892437580.3183792
    part = part * ((s + 11.0) / w) * ((s + 12.0) / w)
    t = t + part / 74724249600.0
    part = part * ((s + 13.0) / w) * ((s + 14.0) / w)
    t = t - part / 2950130727918.164
    part = part * ((s + 15.0) / w) * ((s + 16.0) / w)
    t = t + part / 116467828143500.67
    part = part * ((s + 17.0) / w) * ((s + 18.0) / w)
    t = t - part / 4597978722407473.0
    part = part * ((s + 19.0) / w) * ((s + 20.0) / w)
    t = t + part / 1.8152105401943546e17
    part = part * ((s + 21.0) / w) * ((s + 22.0) / w)
    t = t - part / 7.166165256175666e18
    # where the sum has ended by itself the rest is nothing, and the formula does not converge
    rest = term * w / (s - 1.0) - 0.5 * term + t
    # of a sum of nothing but zeros eager goes on to where the formula's powers of s overflow
    beyond = (total == 0) & (s > 25256835601045.9)
    total = tl.where(tl.abs(term) < tl.abs(total) * 1e-17, total, total + rest)
    value = tl.where(undefined | beyond, float("nan"), total)
    return tl.where(infinite, float("inf"), value).to(x.dtype)


@triton.jit
def trigamma(x):
    """The second derivative of lgamma, rounded as eager's: reflected below a half, six steps of the
    recurrence, then the asymptotic series (Abramowitz and Stegun, 6.4.6, 6.4.7 and 6.4.12). A pole
    is as high as the sine of a rounded multiple of pi leaves it."""
    reflected = x < 0.5
    pi = tl.where(x == x, 3.141592653589793, x)
    sine = tl.sin((tl.where(reflected, x, 0.5) * pi).to(tl.float64)).to(x.dtype)
    total = tl.where(reflected, pi * pi / (sine * sine) * -1.0, 0.0)
    z = tl.where(reflected, 1.0 - x, x)
    for _ in tl.static_range(6):
        total = total + 1.0 / (z * z)
        z = z + 1.0
    s = 1.0 / (z * z)
    series = (
        1.0 + 1.0 / (2.0 * z) + s * (0.16666666666666666 - s * (0.03333333333333333 - s / 42.0))
    )
    total = total + series / z
    return tl.where(reflected, total * -1.0, total)
