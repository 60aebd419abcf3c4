"""The normal distribution's functions.

In: Triton tensors of float32 or float64. Out: the same shape and dtype. Invariant: results are off
by less than 1e-15 of the value, and by x**2 units where exp(-x**2) is a factor.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _erfcx(x):
    """exp(x*x) erfc(x) of x >= 0: (1 + 2x) times it, in (x - 3.75) / (x + 3.75) (Shepherd and
    Laframboise, Mathematics of Computation 36, 1981)."""
    u = 1.0 - 7.5 / (x + 3.75)
    p = (1.0025828126683706e-12 * u + 1.3044442522744457e-11) * u - 5.474680209745682e-12
    p = ((p * u - 1.647059420509231e-10) * u - 2.601799372062901e-11) * u + 1.187560812243908e-09
    p = ((p * u + 5.366153829727211e-10) * u - 7.0705951743342715e-09) * u - 4.3956439330114555e-09
    p = ((p * u + 4.1602904023332755e-08) * u + 2.4312325150002653e-08) * u - 2.6166884528581547e-07
    p = ((p * u - 5.828827783766729e-08) * u + 1.7537458434536348e-06) * u - 9.728327812064794e-07
    p = ((p * u - 1.1445172561420112e-05) * u + 2.2383904876445646e-05) * u + 5.1649442877311626e-05
    p = ((p * u - 0.00029015397728117225) * u + 0.0002937135880316984) * u + 0.0017556258320574729
    p = ((p * u - 0.009746579546772877) * u + 0.028362277421556188) * u - 0.05869339859061101
    p = ((p * u + 0.09230432116019581) * u - 0.10880393014170497) * u + 0.0822767384901511
    p = ((p * u + 0.003585415485463652) * u - 0.14024059858554702) * u + 1.2375126308378275
    return p * 0.5 / (x + 0.5)


@triton.jit
def _exp_of_square(x, sign):
    """exp(sign x*x), the square in two parts of which the greater is exact."""
    z = tl.floor(x * 16.0) * 0.0625
    return tl.exp(sign * z * z) * tl.exp(sign * ((x - z) * (x + z)))


@triton.jit
def erfcx(x):
    """exp(x*x) erfc(x)."""
    wide = x.to(tl.float64)
    value = _erfcx(tl.abs(wide))
    below = tl.where(wide < 0, tl.where(wide < -1e3, -1e3, wide), 0.0)
    return tl.where(wide < 0, 2.0 * _exp_of_square(below, 1.0) - value, value).to(x.dtype)


@triton.jit
def log_ndtr(x):
    """log of the standard normal's distribution function."""
    wide = x.to(tl.float64)
    a = tl.abs(wide) * 0.7071067811865476
    scaled = _erfcx(a) * 0.5
    square = wide * 0.5 * wide
    tail = scaled * _exp_of_square(tl.where(tl.abs(wide) < 1e3, wide, 1e3), -0.5)
    # the upper tail, or the rest where the argument is between -1 and 0
    q = tl.where(wide < 0, 1.0 - tail, tail)
    q = tl.where(wide < -1.0, 0.5, q)
    rest = 1.0 - q
    upper = tl.log(rest) - ((rest - 1.0) + q) / rest  # log1p(-q), of 0 below it
    upper = tl.where(q == 0, q * -1.0, upper)
    lower = tl.log(scaled) - square
    value = tl.where(wide < -1.0, lower, upper)
    return tl.where(wide == -float("inf"), wide, value).to(x.dtype)


@triton.jit
def ndtri(x):
    """The inverse of the standard normal's distribution function: a polynomial in the middle, and
    an estimate of the tails that one step of Halley's method makes exact."""
    wide = x.to(tl.float64)
    d = wide - 0.5
    middle = tl.abs(d) <= 0.38
    d = tl.where(middle, d, 0.0)
    u = d * d * 13.850415512465373 - 1.0
    p = 1.823860992789497e-10 * u + 4.704343479471758e-10
    p = ((p * u + 1.6724583676491166e-10) * u + 4.452658765648334e-10) * u + 3.812324597496617e-09
    p = ((p * u + 9.960735132386406e-09) * u + 2.238060532740193e-08) * u + 5.911193832836924e-08
    p = ((p * u + 1.6022084893495213e-07) * u + 4.272580891683189e-07) * u + 1.144612713182582e-06
    p = ((p * u + 3.0945913507471154e-06) * u + 8.440922093597953e-06) * u + 2.3265925553711972e-05
    p = ((p * u + 6.496543517520975e-05) * u + 0.0001843872776673363) * u + 0.0005345139139115597
    p = ((p * u + 0.001594204788576036) * u + 0.004950472438729459) * u + 0.016348695376729328
    p = ((p * u + 0.05998751447661213) * u + 0.2745669701966992) * u + 2.733802151471394
    upper = wide > 0.5
    tail = tl.where(upper, 1.0 - wide, wide)
    tail = tl.where((tail > 0) & (tail < 0.13), tail, 0.1)
    level = tl.log(tail)
    s = tl.sqrt(level * -2.0)
    u = (1.0 / s - 0.3628) / 0.3372
    q = (0.003629464590941281 * u - 0.004383449363783981) * u - 0.008279803093550368
    q = ((q * u + 0.009901620111317375) * u + 0.008520061227880873) * u - 0.010285950892547895
    q = ((q * u - 0.0031024203891169976) * u + 0.0035920043809019916) * u + 0.0021101125632140465
    q = ((q * u - 0.002381904104899103) * u + 0.0009950141071922937) * u + 0.000149362653923277
    q = ((q * u - 0.008069347101505734) * u + 0.12855018066761872) * u + 1.0528220655522722
    y = s - (tl.log(s) + q) / s
    # Phi(-y) / phi(y), and how far its logarithm is from that of the tail
    ratio = 1.2533141373155003 * _erfcx(y * 0.7071067811865476)
    miss = tl.exp(tl.log(ratio * 0.3989422804014327) - y * y * 0.5 - level) - 1.0
    step = ratio * miss / (1.0 + miss)
    y = y + step / (1.0 - 0.5 * step * y)
    value = tl.where(middle, d * p, tl.where(upper, y, y * -1.0))
    value = tl.where(wide == 0, -float("inf"), tl.where(wide == 1.0, float("inf"), value))
    outside = (wide < 0) | (wide > 1.0) | (wide != wide)
    return tl.where(outside, float("nan"), value).to(x.dtype)
