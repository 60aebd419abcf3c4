"""Derive the polynomial coefficients of the single-precision functions in `vec.h`.

In: nothing. Out: on stdout, one line of coefficients (lowest power first) per function with the
largest relative error of the rounded polynomial. Invariant: coefficients are rounded to float32 one
after the other, lowest power first, and the rest refitted, so rounding is part of the fit.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath as mp
import numpy as np

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
}

if __name__ == "__main__":
    for name, (target, weight, low, high, degree) in TABLE.items():
        coefficients, error = fit(target, weight, low, high, degree)
        listed = ", ".join(f"{c.hex()}f" for c in coefficients)
        print(f"{name}: {{{listed}}}  // 2^{float(mp.log(error, 2)):.1f}")
