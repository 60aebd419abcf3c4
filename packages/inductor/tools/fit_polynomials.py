"""Derive the coefficients of the functions in `elementary.h`, `tables.h` and `special.h`.

In: nothing. Out: on stdout, one line of coefficients (lowest power first) per function with the
largest relative error of the rounded polynomial; then tables, one line per power, and the rows of
the double-precision functions. Invariant: coefficients in single precision are rounded one after
the other, lowest power first, and the rest refitted, so rounding is part of the fit.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np
from scipy.special import erf

mp.mp.dps = 40
Function = Callable[[mp.mpf], mp.mpf]


def fit(
    target: Function, weight: Function, low: float, high: float, degree: int
) -> tuple[list[float], float]:
    """Minimise `|weight * (p - target)|` over [low, high], by reweighted least squares."""
    points = [
        (low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (k + 0.5) / 160) for k in range(160)
    ]
    values = np.array([float(target(p)) for p in points], dtype=np.longdouble)
    weights = np.array([abs(float(weight(p))) for p in points], dtype=np.longdouble)
    xs = np.array([float(p) for p in points], dtype=np.longdouble)
    fixed: list[float] = []
    for position in range(degree + 1):
        rest = values - sum(c * xs**k for k, c in enumerate(fixed))
        powers = np.stack([xs**k for k in range(position, degree + 1)], axis=1)
        lawson = np.ones_like(weights)
        for _ in range(60):
            scale = (weights * np.sqrt(lawson))[:, None]
            solution = np.linalg.lstsq(
                (powers * scale).astype(np.float64),
                (rest * scale[:, 0]).astype(np.float64),
                rcond=None,
            )[0]
            error = np.abs(weights * (powers @ solution - rest))
            lawson = lawson * (error / error.max() + 1e-3)
            lawson = lawson / lawson.sum()
        fixed.append(float(np.float32(solution[0])))
    error = np.abs(weights * (sum(c * xs**k for k, c in enumerate(fixed)) - values))
    return fixed, float(error.max())


def series(function: Function, at_zero: float) -> Function:
    """`function` with its limit at zero filled in."""
    return lambda x: mp.mpf(at_zero) if abs(x) < 1e-12 else function(x)


def of_erfcx(t: mp.mpf) -> mp.mpf:
    """(1 + 2 a) exp(a^2) erfc(a) where t = (a - 4) / (a + 4)."""
    a = 4 * (1 + t) / (1 - t)
    return (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)


HALF_LN2 = float(mp.log(2)) / 2
TOP = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)
TABLE: dict[str, tuple[Function, Function, float, float, int]] = {
    # exp(r) = 1 + r + r^2 * p(r)
    "exp": (
        series(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5),
        lambda r: r**2 / mp.exp(r),
        -HALF_LN2,
        HALF_LN2,
        5,
    ),
    # the same where exp(r) is multiplied by one of 16 powers of 2^(1/16)
    "exp_sixteenth": (
        series(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5),
        lambda r: r**2 / mp.exp(r),
        -HALF_LN2 / 16,
        HALF_LN2 / 16,
        1,
    ),
    # log((1 + s) / (1 - s)) = 2 s + s * z * p(z), z = s^2
    "log": (
        series(lambda z: (2 * mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 2) / z, 2 / 3),
        lambda z: z / 2,
        1e-9,
        float(TOP**2),
        3,
    ),
    # sin(x) = x + x z p(z), cos(x) = 1 - z / 2 + z^2 p(z), z = x^2
    "sin": (
        series(lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, -1 / 6),
        lambda z: z,
        1e-9,
        float((mp.pi / 4) ** 2) * 1.01,
        3,
    ),
    "cos": (
        series(lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, 1 / 24),
        lambda z: z**2 / mp.cos(mp.sqrt(z)),
        1e-9,
        float((mp.pi / 4) ** 2) * 1.01,
        3,
    ),
    # tanh(x) = x + x z p(z), |x| <= 0.625
    "tanh": (
        series(lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, -1 / 3),
        lambda z: z * mp.sqrt(z) / mp.tanh(mp.sqrt(z)) if z > 1e-12 else z,
        1e-9,
        0.625**2,
        5,
    ),
    # erf(x) = x + x p(z), |x| <= 0.9375
    "erf_small": (
        series(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, float(2 / mp.sqrt(mp.pi)) - 1),
        lambda z: mp.sqrt(z) / mp.erf(mp.sqrt(z)),
        1e-9,
        0.9375**2,
        6,
    ),
    # erfc(x) = exp(-x - x p(x)), 0.9375 <= x <= 4
    "erf_large": (
        lambda x: -mp.log(mp.erfc(x)) / x - 1,
        lambda x: x * mp.erfc(x) / mp.erf(x),
        0.9375,
        4.0,
        6,
    ),
    # (1 + 2 a) exp(a^2) erfc(a) = p(t), t = (a - 4) / (a + 4), 0.5 <= a <= 10.5
    "erfc": (of_erfcx, lambda t: 1 / of_erfcx(t), -7 / 9, 6.5 / 14.5, 9),
}

PIECES = 16
DEGREE = 5


def spacing(value: float) -> float:
    """The unit in the last place of a float32."""
    return float(2.0 ** (np.floor(np.log2(value)) - 23))


def step_of_erf() -> float:
    """Distance between the middles of the pieces: one at which erf is nearly a float32 there.

    The last piece ends where erf is 1. The second is held to most, where a value's error weighs
    most in what is left of it at the lower end.
    """
    low, high = np.array([0.2520, 0.2650], dtype=np.float32).view(np.int32)
    steps = np.arange(low, high, dtype=np.int32).view(np.float32).astype(np.float64)
    worst = np.zeros_like(steps)
    for k in range(1, PIECES):
        exact, least = erf(k * steps), erf((k - 0.5) * steps)
        lost = np.abs(exact - exact.astype(np.float32)) / 2.0 ** (np.floor(np.log2(least)) - 23)
        worst = np.maximum(worst, lost * {1: 6, 2: 2}.get(k, 1))
    return float(steps[worst.argmin()])


def pieces_of_erf(step: float) -> list[list[float]]:
    """erf(k step + r) for |r| <= step / 2, by k; the first one is erf(r) - r."""
    first, _ = fit(lambda r: mp.erf(r) / r - 1, lambda r: mp.mpf(1), 1e-6, step / 2, DEGREE - 1)
    rows = [[0.0, *first]]
    for k in range(1, PIECES):
        middle = k * step

        def target(r: mp.mpf, middle: float = middle) -> mp.mpf:
            return mp.erf(middle + r)

        def weight(r: mp.mpf, middle: float = middle) -> mp.mpf:
            return mp.mpf(2**-24 / spacing(float(mp.erf(middle + r))))

        rows.append(fit(target, weight, -step / 2, step / 2, DEGREE)[0])
    return rows


def erfinv_over_x(w: mp.mpf) -> mp.mpf:
    """erfinv(x) / x where w = -log(1 - x^2)."""
    if w < 1e-25:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    # erfc(y) = 1 - x, by Newton's steps on its logarithm
    y, tail = mp.sqrt(w) if w > 2 else mp.erfinv(x), mp.log(mp.exp(-w) / (1 + x))
    for _ in range(60 if w > 2 else 0):
        slope = -2 / mp.sqrt(mp.pi) * mp.exp(-y * y) / mp.erfc(y)
        y -= (mp.log(mp.erfc(y)) - tail) / slope
    return y / x


DOUBLES: dict[str, tuple[Function, float, float, int]] = {
    # erf(x) = x p(x^2), |x| <= 1
    "erf_row": (
        series(lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z), float(2 / mp.sqrt(mp.pi))),
        0,
        1,
        12,
    ),
    # (1 + 2 a) exp(a^2) erfc(a) = p(t), t = (a - 4) / (a + 4), 0.5 <= a <= 28
    "erfc_row": (of_erfcx, -7 / 9, 3 / 4, 22),
    # erfinv(x) = x p(w), w = -log(1 - x^2) < 5; x p(sqrt(w)) from there on, in two pieces
    "erfinv_row": (erfinv_over_x, 0, 5, 22),
    # the same for results that are rounded to single precision
    "short_erfinv_row": (erfinv_over_x, 0, 5, 10),
    "erfinv_middle_row": (lambda s: erfinv_over_x(s * s), float(mp.sqrt(5)), 3.5, 20),
    "erfinv_end_row": (lambda s: erfinv_over_x(s * s), 3.5, 6.2, 24),
}


def chebyshev(target: Function, low: float, high: float, degree: int) -> tuple[list[float], float]:
    """Interpolate in Chebyshev's points; powers of the distance from the middle, in half widths."""
    count, low, high = degree + 1, mp.mpf(low), mp.mpf(high)
    nodes = [mp.cos(mp.pi * (k + 0.5) / count) for k in range(count)]
    middle, half = (low + high) / 2, (high - low) / 2
    values = [target(middle + half * t) for t in nodes]
    powers = mp.lu_solve(mp.matrix([[t**j for j in range(count)] for t in nodes]), values)
    tried = [mp.mpf(k) / 100 - 1 for k in range(201)]
    exact = [target(middle + half * t) for t in tried]
    found = [mp.polyval(list(powers)[::-1], t) for t in tried]
    return [float(c) for c in powers], float(max(abs(f / e - 1) for f, e in zip(found, exact)))


if __name__ == "__main__":
    for name, (target, weight, low, high, degree) in TABLE.items():
        coefficients, error = fit(target, weight, low, high, degree)
        listed = ", ".join(f"{c.hex()}f" for c in coefficients)
        print(f"{name}: {{{listed}}}  // 2^{float(mp.log(error, 2)):.1f}")
    powers = (float(np.float32(2 ** (k / 16))) for k in range(PIECES))
    print(f"exp: {{{', '.join(f'{c.hex()}f' for c in powers)}}}")
    step = step_of_erf()
    print(f"erf: pieces of {step.hex()}")
    for power, column in enumerate(zip(*pieces_of_erf(step), strict=True)):
        print(f"  r^{power}: {{{', '.join(f'{c.hex()}f' for c in column)}}}")
    for name, (of, low, high, degree) in DOUBLES.items():
        coefficients, error = chebyshev(of, low, high, degree)
        listed = ", ".join(c.hex() for c in coefficients)
        print(f"{name}: {{{listed}}}  // 2^{float(mp.log(error, 2)):.1f}")
