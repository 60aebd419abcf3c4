"""Pointwise primitives: most have NumPy's name; special functions are SciPy's."""
# ruff: noqa: ANN001, ANN202

import numpy as np
import torch
from scipy import special

from numpy_backend.arrays import carrier, wide


def _sign(x):
    if x.dtype.kind != "c":
        return (x > 0).astype(np.int8) - (x < 0)
    size = np.abs(x)
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size))


def _lgamma(x):
    return np.where(np.isinf(x), np.inf, special.gammaln(x))


def _slope(cdf, a, x, density):
    """How a quantile moves with the parameter `a` of its distribution: -(d cdf / d a) / density."""
    a, x, h = a.astype(np.float64), x.astype(np.float64), 1e-5
    return (cdf(a - h, x) - cdf(a + h, x)) / (2 * h * density)


def _gamma_grad(a, x):
    density = np.exp((a - 1) * np.log(wide(x)) - x - special.gammaln(wide(a)))
    return _slope(special.gammainc, a, x, density)


def _dirichlet_grad(x, alpha, total):
    a, b, x = wide(alpha), wide(total) - alpha, wide(x)
    density = np.exp((a - 1) * np.log(x) + b * np.log1p(-x) - special.betaln(a, b))
    return _slope(lambda a, x: special.betainc(a, b, x), a, x, density)


def _trunc_div(a, b):
    q = a // b
    return q + ((q < 0) & (q * b != a))


def _cast(x, *, dtype):
    x = x.real if x.dtype.kind == "c" and not dtype.is_complex and dtype != torch.bool else x
    return x.astype(carrier(dtype))


def _to_raw(x, dtype):
    """The bits that an array stands for."""
    if dtype == torch.bfloat16:
        return (x.view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(np.float16) if dtype == torch.float16 else x


def _from_raw(x, dtype):
    if dtype == torch.bfloat16:
        return (x.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return x.view(np.float16 if dtype == torch.float16 else carrier(dtype))


def _bitcast(x, *, dtype, source):
    raw = _to_raw(np.asarray(x, order="C"), source) if source.itemsize == 2 else x
    return _from_raw(raw, dtype)


def _nextafter(a, b, *, source):
    if source != torch.bfloat16:
        return np.where(a == b, b, np.nextafter(_to_raw(a, source), _to_raw(b, source)))
    bits = _to_raw(np.asarray(a, order="C"), source).view(np.int16)
    step = np.where(np.where(a == 0, True, (b > a) == (a > 0)), 1, -1).astype(np.int16)
    start = np.where(a == 0, np.where(b < 0, np.int16(-32768), np.int16(0)), bits)
    moved = _from_raw((start + step).astype(np.int16), source)
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a == b, b, moved))


def _integer_power(a, b):
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    sign = np.where(a == -1, np.where(b % 2 == 0, 1, -1), np.where(a == 1, 1, 0))
    return np.where(b < 0, sign, np.power(a, np.where(b < 0, 0, b)))


def _orthogonal(first, second, step):
    """A family of polynomials by its recurrence: p[k+1] = step(k, x, p[k], p[k-1])."""

    def value(x, n):
        x, n = x.astype(np.float64), np.trunc(n).astype(np.int64)
        before, now = first(x), second(x)
        out = np.where(n == 0, before, np.where(n == 1, now, 0.0))
        for k in range(1, max(2, n.max(initial=0))):
            before, now = now, step(k, x, now, before)
            out = np.where(n == k + 1, now, out)
        return out

    return value


def _doubling(k, x, now, before):
    return 2 * x * now - before


_SAME = """exp exp2 expm1 log log2 log10 log1p sqrt reciprocal sin cos tan sinh cosh tanh ceil floor
trunc fmod remainder maximum minimum fmax fmin copysign bitwise_and bitwise_or bitwise_xor isnan
isinf isfinite signbit logical_and logical_or logical_xor logical_not add hypot gcd lcm conj where
abs"""
_NAMED = {
    **dict.fromkeys(("real", "imag")),
    "neg": "negative",
    "round": "rint",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "bitwise_not": "invert",
    "sub": "subtract",
    "mul": "multiply",
    "div": "true_divide",
    "floor_div": "floor_divide",
    "shift_left": "left_shift",
    "shift_right": "right_shift",
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
_SPECIAL = {
    **{
        name: name
        for name in [
            "erf",
            "erfc",
            "erfinv",
            "erfcx",
            "ndtri",
            "log_ndtr",
            "i0",
            "i0e",
            "i1",
            "i1e",
            "zeta",
        ]
    },
    "digamma": "psi",
    "igamma": "gammainc",
    "igammac": "gammaincc",
    **{f"bessel_{name}": name for name in ["j0", "j1", "y0", "y1", "k0", "k1", "k0e", "k1e"]},
}
FUNCTIONS = {
    **{name: getattr(np, name) for name in _SAME.split()},
    **{name: getattr(np, other or name) for name, other in _NAMED.items()},
    **{name: getattr(special, other) for name, other in _SPECIAL.items()},
    "sign": _sign,
    "lgamma": _lgamma,
    "gamma_grad": _gamma_grad,
    "dirichlet_grad": _dirichlet_grad,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "trunc_div": _trunc_div,
    "pow": _integer_power,
    "cast": _cast,
    "bitcast": _bitcast,
    "nextafter": _nextafter,
    "complex": lambda re, im: np.stack([re, im], -1).view(f"c{2 * re.itemsize}")[..., 0],
    "view_as_real": lambda x: np.asarray(x, order="C")[..., None].view(x.real.dtype),
    "view_as_complex": lambda x: x.view(f"c{2 * x.itemsize}")[..., 0],
    "airy_ai": lambda x: special.airy(x)[0],
    "spherical_bessel_j0": lambda x: np.sinc(x / np.pi),
    "polygamma": lambda n, x: special.polygamma(n, x),
    "frexp": np.frexp,
    "chebyshev_t": _orthogonal(np.ones_like, lambda x: x, _doubling),
    "chebyshev_u": _orthogonal(np.ones_like, lambda x: 2 * x, _doubling),
    "chebyshev_v": _orthogonal(np.ones_like, lambda x: 2 * x - 1, _doubling),
    "chebyshev_w": _orthogonal(np.ones_like, lambda x: 2 * x + 1, _doubling),
    "hermite_h": _orthogonal(np.ones_like, lambda x: 2 * x, lambda k, x, p, q: 2 * (x * p - k * q)),
    "hermite_he": _orthogonal(np.ones_like, lambda x: x, lambda k, x, p, q: x * p - k * q),
    "laguerre_l": _orthogonal(
        np.ones_like, lambda x: 1 - x, lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1)
    ),
    "legendre_p": _orthogonal(
        np.ones_like, lambda x: x, lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1)
    ),
}
