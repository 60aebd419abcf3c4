"""Pointwise primitives and reductions: most have NumPy's name; special functions are SciPy's."""
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

import numpy as np
import torch
from flambeau_prims import PRIMS
from scipy import special

from numpy_backend.arrays import carrier, from_torch, to_torch, wide


def _slope(cdf, a, x, density):
    """How a quantile moves with the parameter `a` of its distribution: -(d cdf / d a) / density."""
    a, x, h = wide(a), wide(x), 1e-5
    return (cdf(a - h, x) - cdf(a + h, x)) / (2 * h * density)


def gamma_grad(a, x):
    density = np.exp((a - 1) * np.log(wide(x)) - x - special.gammaln(wide(a)))
    return _slope(special.gammainc, a, x, density)


def dirichlet_grad(x, alpha, total):
    a, b, x = wide(alpha), wide(total) - alpha, wide(x)
    density = np.exp((a - 1) * np.log(x) + b * np.log1p(-x) - special.betaln(a, b))
    return _slope(lambda a, x: special.betainc(a, b, x), a, x, density)


def nextafter(a, b, *, source):
    if source != torch.bfloat16:
        kind = np.float16 if source == torch.float16 else a.dtype
        return np.where(a == b, b, np.nextafter(a.astype(kind), b.astype(kind)))
    bits = (np.array(a, order="C").view(np.int32) >> 16) + np.where((b > a) == (a > 0), 1, -1)
    bits = np.where(a == 0, np.where(b < 0, -(2**15) + 1, 1), bits)
    moved = (bits.astype(np.int32) << 16).view(np.float32)
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(a == b, b, moved))


def cast(x, *, dtype):
    drop = x.dtype.kind == "c" and not dtype.is_complex and dtype != torch.bool
    return (x.real if drop else x).astype(carrier(dtype))


def pow(a, b):
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    sign = np.where(a == -1, np.where(b % 2 == 0, 1, -1), a == 1)
    return np.where(b < 0, sign, np.power(a, np.where(b < 0, 0, b)))


def _shifted(f):
    return lambda n, x: f(n, 2 * x - 1)


def _polynomial(f):
    def value(x, n):
        degree = np.maximum(np.trunc(n), 0).astype(int)
        return np.where(n < 0, 0, f(degree, x.astype(float)))

    return value


def var_mean(x, dims, *, correction):
    x, axis = wide(x), tuple(dims)
    mean, count = x.mean(axis, keepdims=True), np.prod([x.shape[d] for d in dims])
    squares = (np.abs(x - mean) ** 2).sum(axis)
    return squares / max(0.0, count - correction), mean.reshape(squares.shape)


def _running(ufunc):
    """The extreme so far, and the last position that has it; NaN wins."""

    def scan(x, dim):
        values = ufunc.accumulate(x, dim)
        at = np.arange(x.shape[dim]).reshape([-1 if d == dim else 1 for d in range(x.ndim)])
        return values, np.maximum.accumulate(np.where((x == values) | (x != x), at, 0), dim)

    return scan


def logcumsumexp(x, dim):
    if x.dtype.kind != "c":
        return np.logaddexp.accumulate(wide(x), dim)
    top = np.nan_to_num(x.real.max(dim, keepdims=True, initial=-np.inf), neginf=0)
    return np.log(np.cumsum(np.exp(x - top), dim)) + top


def _order(x, dim, descending=False):
    """Positions in order along `dim`, equal ones as they come; NaN is the largest."""
    if not descending:
        return np.argsort(x, dim, kind="stable")
    return x.shape[dim] - 1 - np.flip(np.argsort(np.flip(x, dim), dim, kind="stable"), dim)


def topk(x, k, dim, largest, sorted):
    at = np.take(_order(x, dim, largest), range(k), dim)
    return np.take_along_axis(x, at, dim), at


def _selected(rank):
    """Value and position of the element at `rank(sorted row)` of each row."""

    def select(x, *where):
        order = np.moveaxis(_order(x, where[-1]), where[-1], -1)
        rows = np.take_along_axis(np.moveaxis(x, where[-1], -1), order, -1)
        at = np.broadcast_to(rank(rows, *where[:-1]), rows.shape[:-1])[..., None]
        return (np.take_along_axis(part, at, -1)[..., 0] for part in (rows, order))

    return select


def _mode(rows):
    """The last of the longest run of equal elements, the first such run."""
    counts = (rows[..., :, None] == rows[..., None, :]).sum(-1)
    return counts.argmax(-1) + np.maximum(counts.max(-1, initial=0) - 1, 0)


def searchsorted(edges, values, right):
    a, v = edges[..., None, :], values[..., None] if values.ndim else values[None, None]
    less = (v < a) | (a != a) & (v == v) if right else (a < v) | (v != v) & (a == a)
    return (~less if right else less).sum(-1).reshape(values.shape)


def histc(x, bins, low, high):
    low, high = (low - 1, high + 1) if low == high else (low, high)
    at = (wide(x[(x >= low) & (x <= high)]) - low) * bins / (np.float64(high) - low)
    return np.bincount(np.minimum(at.astype(int), bins - 1), minlength=bins)


def _reduced(f):
    return lambda x, dims: f(wide(x), dims if isinstance(dims, int) else tuple(dims))


def _pairs(words):
    return zip(words.split()[::2], words.split()[1::2])


NUMPY = """exp exp2 expm1 log log2 log10 log1p sqrt reciprocal sin cos tan sinh cosh tanh ceil floor
trunc fmod remainder maximum minimum fmax fmin copysign bitwise_and bitwise_or bitwise_xor isnan
isinf isfinite signbit logical_and logical_or logical_xor logical_not add hypot gcd lcm conj where
abs real imag frexp argmax argmin"""
RENAMED = """neg negative round rint asin arcsin acos arccos atan arctan asinh arcsinh acosh arccosh
atanh arctanh atan2 arctan2 bitwise_not invert sub subtract mul multiply div true_divide
floor_div floor_divide shift_left left_shift shift_right right_shift eq equal ne not_equal
lt less le less_equal gt greater ge greater_equal"""
SCIPY = "erf erfc erfinv erfcx ndtri log_ndtr i0 i0e i1 i1e zeta polygamma"
BESSEL = "j0 j1 y0 y1 k0 k1 k0e k1e"
REDUCED = "sum prod amax amin any all cumsum cumprod"
POLYNOMIALS = """hermite_h hermite hermite_he hermitenorm laguerre_l laguerre legendre_p legendre"""
U = special.eval_chebyu
CHEBYSHEV = {
    "chebyshev_t": special.eval_chebyt,
    "chebyshev_u": U,
    "chebyshev_v": lambda n, x: U(n, x) - U(n - 1, x),
    "chebyshev_w": lambda n, x: U(n, x) + U(n - 1, x),
}
FUNCTIONS = {
    **{name: f for name, f in globals().items() if name in PRIMS},
    **{name: getattr(np, name) for name in NUMPY.split()},
    **{name: getattr(np, other) for name, other in _pairs(RENAMED)},
    **{name: getattr(special, name) for name in SCIPY.split()},
    **{f"bessel_{name}": getattr(special, name) for name in BESSEL.split()},
    **{name: _reduced(getattr(np, name)) for name in REDUCED.split()},
    **{a: _polynomial(getattr(special, f"eval_{b}")) for a, b in _pairs(POLYNOMIALS)},
    **{name: _polynomial(f) for name, f in CHEBYSHEV.items()},
    **{f"shifted_{name}": _polynomial(_shifted(f)) for name, f in CHEBYSHEV.items()},
    "digamma": special.psi,
    "igamma": special.gammainc,
    "igammac": special.gammaincc,
    "sign": lambda x: np.sign(x) if x.dtype.kind == "c" else (x > 0) * 1 - (x < 0),
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, special.gammaln(x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fma": lambda a, b, c: (a.astype(np.longdouble) * b + c).astype(a.dtype),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "trunc_div": lambda a, b: a // b + ((a // b < 0) & (a // b * b != a)),
    "bitcast": lambda x, *, dtype, source: from_torch(to_torch(x, source).view(dtype)),
    "complex": lambda re, im: np.stack([re, im], -1).view(f"c{2 * re.itemsize}")[..., 0],
    "view_as_real": lambda x: np.asarray(x, order="C")[..., None].view(x.real.dtype),
    "view_as_complex": lambda x: x.view(f"c{2 * x.itemsize}")[..., 0],
    "airy_ai": lambda x: special.airy(x)[0],
    "spherical_bessel_j0": lambda x: np.sinc(x / np.pi),
    "cummax": _running(np.maximum),
    "cummin": _running(np.minimum),
    "sort": lambda x, dim, descending, stable: topk(x, x.shape[dim], dim, descending, True),
    "kthvalue": _selected(lambda rows, k: k - 1),
    "median": _selected(
        lambda rows: (rows.shape[-1] - 1) // (1 + (rows[..., -1] == rows[..., -1]))
    ),
    "nanmedian": _selected(lambda rows: np.maximum((rows == rows).sum(-1) - 1, 0) // 2),
    "mode": _selected(_mode),
}
