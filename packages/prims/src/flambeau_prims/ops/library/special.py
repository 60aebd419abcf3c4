"""Special-function primitives.

In: operands of one shape and dtype. Out: the same shape and dtype.
Invariant: pointwise like all of `pointwise`; most are defined in float32 and float64 alone, and
a decomposition computes half precision in float32.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import flops_per_output, in_layout, primitive, require
from flambeau_prims.ops.pointwise import (
    BINARY,
    FLOATS,
    INTS,
    SAME_AS_COPIED,
    UNARY,
    PointwiseFunction,
    define_functions,
    elementwise,
    kept_layout,
)
from flambeau_prims.shape_rules import TensorMeta

_special = partial(primitive, tags=("special", "library"))

FULL = frozenset({torch.float32, torch.float64})
_TAGS = ("pointwise", "special")
_AS = "Abramowitz and Stegun"

aten = torch.ops.aten


def _unary(
    aten: str, doc: str, source: str, domain: str = "", kind: Any = FULL
) -> PointwiseFunction:
    """The function of ATen's first name, and of the others that mean the same."""
    names = tuple(aten.split())
    edges = {"nan": "gives NaN", **({"domain": domain} if domain else {})}
    eager = getattr(torch.ops.aten, names[0])
    return PointwiseFunction(eager, kind, 32, doc, edges, source, tags=_TAGS, aten=names)


_UNARY: dict[str, PointwiseFunction] = {
    "erfcx": _unary("special_erfcx", "`exp(a*a) erfc(a)`.", f"{_AS}, 7.1", "inf below about -26"),
    "ndtri": _unary("special_ndtri", "The inverse of the standard normal's distribution function.",
        f"{_AS}, 26.2", "infinite at 0 and 1; NaN outside"),
    "log_ndtr": _unary("special_log_ndtr",
        "The logarithm of the standard normal's distribution function.", f"{_AS}, 26.2"),
    "i0": _unary("i0 special_modified_bessel_i0", "The modified Bessel function I0.", f"{_AS}, 9.6",
        kind=FLOATS),
    "i0e": _unary("special_i0e", "`exp(-|a|) I0(a)`.", f"{_AS}, 9.6", kind=FLOATS),
    "i1": _unary("special_i1 special_modified_bessel_i1", "The modified Bessel function I1.",
        f"{_AS}, 9.6", kind=FLOATS),
    "i1e": _unary("special_i1e", "`exp(-|a|) I1(a)`.", f"{_AS}, 9.6", kind=FLOATS),
    "airy_ai": _unary("special_airy_ai", "The Airy function Ai.", f"{_AS}, 10.4"),
    "bessel_j0": _unary("special_bessel_j0", "The Bessel function J0.", f"{_AS}, 9.1"),
    "bessel_j1": _unary("special_bessel_j1", "The Bessel function J1.", f"{_AS}, 9.1"),
    "bessel_y0": _unary("special_bessel_y0", "The Bessel function Y0.", f"{_AS}, 9.1",
        "-inf at 0; NaN below"),
    "bessel_y1": _unary("special_bessel_y1", "The Bessel function Y1.", f"{_AS}, 9.1",
        "-inf at 0; NaN below"),
    "bessel_k0": _unary("special_modified_bessel_k0", "The modified Bessel function K0.",
        f"{_AS}, 9.6", "inf at 0; NaN below"),
    "bessel_k1": _unary("special_modified_bessel_k1", "The modified Bessel function K1.",
        f"{_AS}, 9.6", "inf at 0; NaN below"),
    "bessel_k0e": _unary("special_scaled_modified_bessel_k0", "`exp(a) K0(a)`.", f"{_AS}, 9.6",
        "inf at 0; NaN below"),
    "bessel_k1e": _unary("special_scaled_modified_bessel_k1", "`exp(a) K1(a)`.", f"{_AS}, 9.6",
        "inf at 0; NaN below"),
    "spherical_bessel_j0": _unary("special_spherical_bessel_j0", "`sin(a) / a`, 1 at 0.",
        f"{_AS}, 10.1"),
}  # fmt: skip


_WAVES = {
    **dict.fromkeys(("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"), 1e-6),
    "airy_ai": 3e-6,
}
_UNARY |= {
    name: replace(_UNARY[name], domain=(-100.0, 100.0), error=error)
    for name, error in _WAVES.items()
}
# of the square that it has the exponential function of eager keeps one part
_UNARY["erfcx"] = replace(_UNARY["erfcx"], error=1e-13)
# on torch 2.11; later versions are right to a few units in the last place
_UNARY |= {name: replace(_UNARY[name], error=2e-6) for name in ("i1", "i1e", "log_ndtr")}
_UNARY |= {
    name: replace(_UNARY[name], domain=(1e-300, math.inf))
    for name in ("bessel_k0", "bessel_k0e", "bessel_k1", "bessel_k1e")
}


def _laid_out(op: Any) -> Any:
    """`op` of the library, its result in the layout of torch's elementwise rule."""

    def eager(*tensors: torch.Tensor) -> Any:
        expected = elementwise(*map(TensorMeta.of, tensors))
        return in_layout(op(*tensors), expected)

    return eager


def _binary(
    aten: str, doc: str, source: str, domain: str = "", kind: Any = FULL, cost: int = 64
) -> PointwiseFunction:
    return replace(_unary(aten, doc, source, domain, kind), cost=cost)


def _polynomial(name: str, doc: str) -> PointwiseFunction:
    row = _binary(
        f"special_{name}", f"{doc} of degree trunc(b) at `a`.", f"{_AS}, 22", _NEGATIVE_DEGREE
    )
    return replace(row, domain=(-40.0, 40.0))


_NEGATIVE_DEGREE = "0 for a negative degree; undefined where `a` is NaN and the degree above 8"
_INCOMPLETE = "NaN if either is negative, or both are 0"
_BINARY: dict[str, PointwiseFunction] = {
    "hypot": replace(
        _binary("hypot", "`sqrt(a*a + b*b)`, without overflow in between.", "C11, 7.12.7.3",
            kind=FLOATS, cost=6),
        promotes=False),
    "gcd": PointwiseFunction(torch.gcd, INTS, 24, "The greatest common divisor, not negative.",
        {"integers": "gcd(0, b) = |b|; the least value has no absolute value"}, "Euclid", False,
        tags=_TAGS, aten=("gcd",)),
    "lcm": PointwiseFunction(torch.lcm, INTS, 26, "The least common multiple, not negative.",
        {"integers": "lcm(0, b) = 0; wraps around"}, "Euclid", False, tags=_TAGS, aten=("lcm",)),
    "igamma": _binary("igamma", "The regularized lower incomplete gamma function P(a, b).",
        f"{_AS}, 6.5", _INCOMPLETE),
    "igammac": _binary("igammac",
        "The regularized upper incomplete gamma function Q(a, b) = 1 - P(a, b).", f"{_AS}, 6.5",
        _INCOMPLETE),
    "zeta": _binary("special_zeta",
        "The Hurwitz zeta function: the sum of `(k + b)**-a` over k from 0.", f"{_AS}, 23.2",
        "inf at a = 1; NaN below 1"),
    "gamma_grad": replace(
        _binary("_standard_gamma_grad",
            "The derivative of a Gamma(a, 1) draw, which was `b`, by `a` (the quantile kept).",
            "Figurnov, Mohamed, Mnih: Implicit reparameterization gradients, 2018", "a above 0"),
        eager=_laid_out(aten._standard_gamma_grad.default)),
    **{
        f"chebyshev_{k}": _polynomial(
            f"chebyshev_polynomial_{k}", f"Chebyshev's polynomial {k.upper()}"
        )
        for k in "tuvw"
    },
    **{
        f"shifted_chebyshev_{k}": _polynomial(
            f"shifted_chebyshev_polynomial_{k}", f"Chebyshev's polynomial {k.upper()} of 2a - 1,"
        )
        for k in "tuvw"
    },
    "hermite_h": _polynomial("hermite_polynomial_h", "Hermite's polynomial H"),
    "hermite_he": _polynomial("hermite_polynomial_he", "Hermite's polynomial He"),
    "laguerre_l": _polynomial("laguerre_polynomial_l", "Laguerre's polynomial L"),
    "legendre_p": _polynomial("legendre_polynomial_p", "Legendre's polynomial P"),
}  # fmt: skip

_DOMAINS = {
    "igamma": (1e-30, 100.0),
    "igammac": (1e-30, 100.0),
    "zeta": (-8.0, 60.0),
    "gamma_grad": (0.25, 4.0),
}  # fmt: skip
_BINARY |= {name: replace(_BINARY[name], domain=domain) for name, domain in _DOMAINS.items()}
_BINARY |= {name: replace(_BINARY[name], error=1e-8) for name in ("igamma", "igammac")}
assert not (_UNARY.keys() | _BINARY.keys()) & (UNARY.keys() | BINARY.keys())
define_functions(_UNARY, 1)
define_functions(_BINARY, 2)


@_special(
    "polygamma(int n, Tensor a) -> Tensor",
    lambda n, a: torch.polygamma(n, a),
    shape="that of the operand; strides by torch's elementwise rule",
    edge_cases={"nan": "gives NaN", "domain": "infinite or NaN at 0 and the negative integers"},
    source=f"{_AS}, 6.4",
    flops=flops_per_output(64),
)
def polygamma(n: int, a: TensorMeta) -> TensorMeta:
    """The derivative of order `n + 1` of `log gamma(a)`."""
    require(a.dtype in FLOATS, f"not defined on {a.dtype}")
    require(n >= 0, f"order {n}")
    return elementwise(a)


@_special(
    "frexp(Tensor a) -> (Tensor mantissa, Tensor exponent)",
    lambda a: tuple(torch.frexp(a)),
    shape=f"both {SAME_AS_COPIED}",
    edge_cases={
        "nan": "is its own mantissa; its exponent is undefined",
        "infinity": "is its own mantissa; its exponent is undefined",
        "signed zero": "0 and -0 give themselves and exponent 0",
    },
    source="C11, 7.12.6.4",
    differentiable="2**-exponent for the mantissa",
    flops=flops_per_output(2),
)
def frexp(a: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    """`a = mantissa 2**exponent` with |mantissa| in [1/2, 1), the exponent an int32."""
    require(a.dtype in FLOATS, f"not defined on {a.dtype}")
    return kept_layout(a), kept_layout(a, torch.int32)


@_special(
    "dirichlet_grad(Tensor x, Tensor alpha, Tensor total) -> Tensor",
    _laid_out(aten._dirichlet_grad.default),
    shape="that of the operands, which are equal; strides by torch's elementwise rule",
    edge_cases={"nan": "gives NaN", "domain": "x in (0, 1), alpha and total above 0"},
    source="Figurnov, Mohamed, Mnih: Implicit reparameterization gradients, 2018",
    differentiable=False,
    flops=flops_per_output(64),
)
def dirichlet_grad(x: TensorMeta, alpha: TensorMeta, total: TensorMeta) -> TensorMeta:
    """The derivative by `alpha` of an entry `x` of a Dirichlet draw; `total` sums the alphas."""
    for other in (alpha, total):
        require(x.dtype == other.dtype, f"dtypes {x.dtype} and {other.dtype} differ")
    require(x.dtype in FULL, f"not defined on {x.dtype}")
    return elementwise(x, alpha, total)
