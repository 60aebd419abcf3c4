"""Pointwise primitives.

In: operands of one shape, and of one dtype (casts are their own primitive). Out: the same shape,
in the dtype of the operands or bool, with strides by torch's elementwise rule.
Invariant: no broadcasting and no promotion; a violation is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import Rule, define, flops_per_output, in_layout, primitive, require
from flambeau_prims.promotion import real_dtype
from flambeau_prims.shape_rules import TensorMeta, elementwise_strides, preserved_strides

INTS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})
WIDE_FLOATS = frozenset({torch.float32, torch.float64})
BOOL = frozenset({torch.bool})
REAL = INTS | FLOATS
NUMBER = REAL | COMPLEX
INEXACT = FLOATS | COMPLEX
ANY = NUMBER | BOOL

Kind = frozenset[torch.dtype]


def elementwise(*metas: TensorMeta, dtype: torch.dtype | None = None) -> TensorMeta:
    """Metadata of a pointwise result; all operands must have one shape and one device."""
    first = metas[0]
    for other in metas[1:]:
        require(
            first.shape == other.shape,
            f"shapes {first.shape} and {other.shape} differ; broadcast first",
        )
        require(first.device == other.device, f"devices {first.device} and {other.device}")
    strides = elementwise_strides(metas)
    return TensorMeta(first.shape, strides, dtype or first.dtype, first.device)


def kept_layout(a: TensorMeta, dtype: torch.dtype | None = None) -> TensorMeta:
    """Metadata of a result laid out as a copy of the operand; a dense one's strides are kept, also
    where nothing is stepped along them."""
    return a.like(stride=preserved_strides(a), dtype=dtype)


def _rule(operands: int, result: torch.dtype | None) -> Rule:
    def unary(a: TensorMeta) -> TensorMeta:
        return elementwise(a, dtype=result)

    def binary(a: TensorMeta, b: TensorMeta) -> TensorMeta:
        require(a.dtype == b.dtype, f"dtypes {a.dtype} and {b.dtype} differ; cast first")
        return elementwise(a, b, dtype=result)

    return unary if operands == 1 else binary


def _abs_rule(a: TensorMeta) -> TensorMeta:
    if a.dtype.is_complex:
        return kept_layout(a, real_dtype(a.dtype))
    return elementwise(a)


def _isinf(a: torch.Tensor) -> Any:
    return in_layout(torch.isinf(a), elementwise(TensorMeta.of(a), dtype=torch.bool))


def _isfinite(a: torch.Tensor) -> Any:
    return in_layout(torch.isfinite(a), elementwise(TensorMeta.of(a), dtype=torch.bool))


def _trunc_div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


@dataclass(frozen=True)
class PointwiseFunction:
    """One pointwise function: what defines it but for its name.

    `cost` is in additions; `result` is the result's dtype where it is not the operand's; `exact`
    says whether IEEE 754 decides the result of floats, as it does that of one rounded operation.
    `aten` names ATen's operations that are this function and nothing else, on operands of one
    dtype, where it is not the one of its own name: integers become floats first where the function
    takes none, if it `promotes`. `domain`: the interval that conformance takes special values from,
    where eager has no result, or none in a reasonable time, of all the others. `error`: how far
    eager's float64 is off, relative to 1 or the value if that is greater, where it is by more than
    a few units in the last place.
    """

    eager: Callable[..., Any]
    kind: Kind
    cost: int
    doc: str
    edges: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    differentiable: bool | str | None = None
    result: torch.dtype | None = None
    tags: tuple[str, ...] = ("pointwise",)
    exact: bool = True
    aten: tuple[str, ...] = ()
    promotes: bool = True
    domain: tuple[float, float] | None = None
    error: float = 0.0


POINTWISE: dict[str, PointwiseFunction] = {}
"""Every function of one or two operands that is a primitive, by name."""

_NAN = {"nan": "gives NaN"}
_WRAP = {"integers": "wrap around, modulo 2**bits"}
_IEEE = "IEEE 754-2019"
_C11_BITS = "C11, clauses 6.5.3.3 and 6.5.7 to 6.5.12, on two's complement"
_LOGIC = "propositional logic"
_TRUTH = {"note": "operands are bool; a number is true where it is not 0, which `ne` says first"}
_C11 = "C11, clause 7.12 and annex F"
_AS_C = {"nan": "gives NaN", "complex": "branch cuts as in C11, annex G"}
_SAME = "that of the operand; strides by torch's elementwise rule"
SAME_AS_COPIED = "that of the operand; strides of a copy that keeps its layout"
_SAME_TWO = "that of the operands, which are equal; strides by torch's elementwise rule"


def _steps(eager: Callable[..., Any], doc: str) -> PointwiseFunction:
    edges = {"nan": "gives NaN", "signed zero": "kept", "infinity": "kept"}
    return PointwiseFunction(eager, FLOATS, 1, doc, edges, _IEEE, False)


def _smooth(
    eager: Callable[..., Any], cost: int, doc: str, domain: str = "", *, kind: Kind = INEXACT
) -> PointwiseFunction:
    edges = {**(_AS_C if kind is INEXACT else _NAN), **({"domain": domain} if domain else {})}
    exact = eager in (torch.sqrt, torch.reciprocal)
    return PointwiseFunction(eager, kind, cost, doc, edges, _C11, exact=exact)


UNARY: dict[str, PointwiseFunction] = {
    "abs": PointwiseFunction(torch.abs, NUMBER, 1,
        "`|a|`; of a complex number the modulus, in the real dtype of half the width.",
        {"nan": "gives NaN", "integers": "the least value stays as it is",
         "signed zero": "|-0| = 0"}, _IEEE),
    "neg": PointwiseFunction(torch.neg, NUMBER, 1, "`-a`.",
        {**_WRAP, "nan": "gives NaN", "signed zero": "-(0) = -0"}, _IEEE),
    "sign": PointwiseFunction(torch.sgn, NUMBER, 1,
        "-1, 0 or 1 with the sign of `a`; of a complex number `a / |a|`, or 0.",
        {"nan": "gives NaN", "signed zero": "the sign of both zeros is 0"},
        "the signum function; for complex numbers as in the NumPy reference"),
    "ceil": _steps(torch.ceil, "The least integer not below `a`."),
    "floor": _steps(torch.floor, "The greatest integer not above `a`."),
    "round": _steps(torch.round, "The nearest integer, halves to the even one."),
    "trunc": _steps(torch.trunc, "The integer next to `a` towards zero."),
    "exp": _smooth(torch.exp, 8, "`e ** a`.", "exp(-inf) = 0; overflow gives inf"),
    "exp2": _smooth(torch.exp2, 8, "`2 ** a`.", "exp2(-inf) = 0; overflow gives inf"),
    "expm1": _smooth(torch.expm1, 8, "`e ** a - 1`, exact also near 0."),
    "log": _smooth(torch.log, 8, "The natural logarithm.", "log(0) = -inf; NaN below 0"),
    "log2": _smooth(torch.log2, 8, "The logarithm to base 2.", "log2(0) = -inf; NaN below 0"),
    "log10": _smooth(torch.log10, 8, "The logarithm to base 10.", "log10(0) = -inf; NaN below 0"),
    "log1p": _smooth(torch.log1p, 8, "`log(1 + a)`, exact also near 0.", "-inf at -1; NaN below"),
    "sqrt": _smooth(torch.sqrt, 2, "The square root, correctly rounded.",
        "sqrt(-0) = -0; NaN below 0"),
    "rsqrt": _smooth(torch.rsqrt, 2, "`1 / sqrt(a)`.", "rsqrt(0) = inf; NaN below 0"),
    "reciprocal": _smooth(torch.reciprocal, 2, "`1 / a`.", "infinity of the sign of a zero"),
    "sin": _smooth(torch.sin, 8, "The sine of radians.", "NaN at infinities"),
    "cos": _smooth(torch.cos, 8, "The cosine of radians.", "NaN at infinities"),
    "tan": _smooth(torch.tan, 12, "The tangent of radians.", "NaN at infinities"),
    "asin": _smooth(torch.asin, 12, "The inverse of sine, in [-pi/2, pi/2].",
        "NaN outside [-1, 1]"),
    "acos": _smooth(torch.acos, 12, "The inverse of cosine, in [0, pi].", "NaN outside [-1, 1]"),
    "atan": _smooth(torch.atan, 12, "The inverse of tangent, in [-pi/2, pi/2]."),
    "sinh": _smooth(torch.sinh, 12, "`(e**a - e**-a) / 2`."),
    "cosh": _smooth(torch.cosh, 12, "`(e**a + e**-a) / 2`."),
    "tanh": _smooth(torch.tanh, 12, "`sinh(a) / cosh(a)`.", "-1 and 1 at the infinities"),
    "asinh": _smooth(torch.asinh, 12, "The inverse of sinh."),
    "acosh": _smooth(torch.acosh, 12, "The inverse of cosh, not negative.", "NaN below 1"),
    "atanh": _smooth(torch.atanh, 12, "The inverse of tanh.", "infinite at -1 and 1; NaN outside"),
    "erf": _smooth(torch.erf, 12, "`2 / sqrt(pi)` times the integral of `exp(-t*t)` from 0 to `a`.",
        kind=FLOATS),
    "erfc": _smooth(torch.erfc, 12, "`1 - erf(a)`, without cancellation for large `a`.",
        kind=FLOATS),
    "erfinv": PointwiseFunction(torch.erfinv, FLOATS, 16, "The inverse of erf on (-1, 1).",
        {"nan": "gives NaN", "domain": "infinite at -1 and 1; NaN outside"},
        "Abramowitz and Stegun, chapter 7", exact=False),
    "lgamma": _smooth(torch.lgamma, 24, "`log |gamma(a)|`.", "inf at 0 and the negative integers",
        kind=FLOATS),
    "digamma": PointwiseFunction(torch.digamma, FLOATS, 24, "The derivative of `log gamma(a)`.",
        {"nan": "gives NaN", "domain": "-inf at 0 (inf at -0); NaN at the negative integers"},
        "Abramowitz and Stegun, 6.3", exact=False, error=2e-15),
    "sigmoid": _smooth(torch.sigmoid, 10, "`1 / (1 + e**-a)`.", "0 and 1 at the infinities"),
    "bitwise_not": PointwiseFunction(torch.bitwise_not, INTS | BOOL, 1,
        "Every bit inverted; of bool, the negation.",
        {"integers": "two's complement: `-a - 1` where signed"}, _C11_BITS, False),
    "logical_not": PointwiseFunction(torch.logical_not, BOOL, 1, "True where `a` is false.", _TRUTH,
        _LOGIC, False, torch.bool),
    "isnan": PointwiseFunction(torch.isnan, ANY, 1, "Whether `a` is NaN.",
        {"complex": "either part is NaN", "integers": "false"}, _IEEE, False, torch.bool),
    "isinf": PointwiseFunction(_isinf, ANY, 1, "Whether `a` is infinite.",
        {"complex": "either part is infinite", "integers": "false"}, _IEEE, False, torch.bool),
    "isfinite": PointwiseFunction(_isfinite, ANY, 1,
        "Whether `a` is neither NaN nor infinite.",
        {"complex": "both parts are", "integers": "true"}, _IEEE, False, torch.bool),
    "signbit": PointwiseFunction(torch.signbit, REAL | BOOL, 1, "Whether the sign bit is set.",
        {"nan": "by its sign bit", "signed zero": "true for -0", "integers": "whether below 0"},
        _IEEE, False, torch.bool),
}  # fmt: skip
"""Functions of one operand."""

_DIVISION = {"integers": "by 0: undefined in a kernel, an error in eager", "nan": "gives NaN"}
_BITS = {"integers": "two's complement"}
_SHIFT = {
    "integers": "a negative count or one of the width and above shifts all bits out: 0, or -1 of a"
    " negative number shifted to the right"
}
_EXTREME = {"nan": "NaN if either is", "signed zero": "either zero, if both are zeros"}
_F_EXTREME = {"nan": "the other operand; NaN if both are", "signed zero": "either zero"}


def _test(eager: Callable[..., Any], kind: Kind, doc: str, nan: str) -> PointwiseFunction:
    edges = {"nan": nan, "signed zero": "0 equals -0"}
    return PointwiseFunction(eager, kind, 1, doc, edges, _IEEE, False, torch.bool)


def _bits(eager: Callable[..., Any], doc: str) -> PointwiseFunction:
    return PointwiseFunction(eager, INTS | BOOL, 1, doc, _BITS, _C11_BITS, False)


def _logic(eager: Callable[..., Any], doc: str) -> PointwiseFunction:
    return PointwiseFunction(eager, BOOL, 1, doc, _TRUTH, _LOGIC, False, torch.bool)


BINARY: dict[str, PointwiseFunction] = {
    "add": PointwiseFunction(torch.add, ANY, 1, "`a + b`; of bools, whether either.",
        {**_WRAP, **_NAN}, _IEEE),
    "sub": PointwiseFunction(torch.sub, NUMBER, 1, "`a - b`.", {**_WRAP, **_NAN}, _IEEE),
    "mul": PointwiseFunction(torch.mul, ANY, 1, "`a b`; of bools, whether both.", {**_WRAP, **_NAN},
        _IEEE),
    "div": PointwiseFunction(torch.true_divide, INEXACT, 2, "`a / b`.",
        {"nan": "also from 0/0 and inf/inf", "domain": "x/0 is infinite, by the signs"}, _IEEE),
    "trunc_div": PointwiseFunction(_trunc_div, INTS, 4, "The quotient of integers, towards zero.",
        _DIVISION, "C11, 6.5.5", False),
    "floor_div": PointwiseFunction(torch.floor_divide, REAL, 4,
        "The quotient, rounded towards minus infinity.",
        {**_DIVISION, "domain": "x/0 is infinite, by the signs"}, "Python's `//`", False),
    "remainder": PointwiseFunction(torch.remainder, REAL, 6,
        "`a - b floor(a / b)`: the sign is that of `b`.", _DIVISION, "Python's `%`",
        "1 for `a`, -floor(a / b) for `b`"),
    "fmod": PointwiseFunction(torch.fmod, REAL, 4,
        "`a - b trunc(a / b)`, exact: the sign is that of `a`.", _DIVISION, _C11,
        "1 for `a`, -trunc(a / b) for `b`"),
    "pow": PointwiseFunction(torch.pow, NUMBER, 20, "`a ** b`.",
        {"nan": "gives NaN, but a**0 = 1 and 1**b = 1",
         "domain": "NaN for a below 0 and b not an integer",
         "integers": "wrap around; to a negative power: 0, but 1 for 1, and 1 or -1 for -1",
         "complex": "exp(b log a), 0**0 = 1"},
        _C11, exact=False),
    "atan2": PointwiseFunction(torch.atan2, FLOATS, 16,
        "The angle of the point (b, a), in [-pi, pi].",
        {"nan": "gives NaN", "signed zero": "the sign of `a` decides between -pi and pi"}, _C11,
        exact=False),
    "maximum": PointwiseFunction(torch.maximum, REAL | BOOL, 1, "The greater operand.", _EXTREME,
        _IEEE),
    "minimum": PointwiseFunction(torch.minimum, REAL | BOOL, 1, "The lesser operand.", _EXTREME,
        _IEEE),
    "fmax": PointwiseFunction(torch.fmax, REAL | BOOL, 1, "The greater operand.", _F_EXTREME, _C11),
    "fmin": PointwiseFunction(torch.fmin, REAL | BOOL, 1, "The lesser operand.", _F_EXTREME, _C11),
    "copysign": PointwiseFunction(torch.copysign, FLOATS, 1, "`|a|` with the sign bit of `b`.",
        {"nan": "the sign bit is read and written", "signed zero": "-0 is negative"}, _IEEE,
        "sign(a) sign(b) for `a`, 0 for `b`"),
    "nextafter": PointwiseFunction(torch.nextafter, FLOATS, 2,
        "The next number after `a` towards `b`.",
        {"nan": "gives NaN", "signed zero": "equal operands give `b`"}, _IEEE, False),
    "bitwise_and": _bits(torch.bitwise_and, "The bits that are set in both."),
    "bitwise_or": _bits(torch.bitwise_or, "The bits that are set in either."),
    "bitwise_xor": _bits(torch.bitwise_xor, "The bits that are set in just one."),
    "shift_left": PointwiseFunction(torch.bitwise_left_shift, INTS, 1,
        "`a * 2**b`, modulo 2**bits.", _SHIFT, _C11_BITS, False,
        aten=("bitwise_left_shift", "__lshift__")),
    "shift_right": PointwiseFunction(torch.bitwise_right_shift, INTS, 1,
        "`floor(a / 2**b)`: arithmetic where signed.", _SHIFT, _C11_BITS, False,
        aten=("bitwise_right_shift", "__rshift__")),
    "logical_and": _logic(torch.logical_and, "Whether both are true."),
    "logical_or": _logic(torch.logical_or, "Whether either is true."),
    "logical_xor": _logic(torch.logical_xor, "Whether just one is true."),
    "eq": _test(torch.eq, ANY, "Whether equal.", "false"),
    "ne": _test(torch.ne, ANY, "Whether not equal.", "true"),
    "lt": _test(torch.lt, REAL | BOOL, "Whether `a` is below `b`.", "false"),
    "le": _test(torch.le, REAL | BOOL, "Whether `a` is not above `b`.", "false"),
    "gt": _test(torch.gt, REAL | BOOL, "Whether `a` is above `b`.", "false"),
    "ge": _test(torch.ge, REAL | BOOL, "Whether `a` is not below `b`.", "false"),
}  # fmt: skip
"""Functions of two operands of one dtype."""


def define_functions(table: Mapping[str, PointwiseFunction], operands: int) -> None:
    """Define the primitives of a table, each of `operands` (1 or 2) operands."""
    for name, function in table.items():
        POINTWISE[name] = function
        define(
            f"{name}({'Tensor a' if operands == 1 else 'Tensor a, Tensor b'}) -> Tensor",
            rule=_abs_rule if name == "abs" else _rule(operands, function.result),
            eager=function.eager,
            tags=function.tags,
            doc=function.doc,
            flops=flops_per_output(function.cost),
            family="special" if "special" in function.tags else "pointwise",
            shape=_SAME if operands == 1 else _SAME_TWO,
            edge_cases=function.edges,
            source=function.source,
            differentiable=function.differentiable,
            dtypes=function.kind,
            exact=function.exact and "special" not in function.tags,
        )


define_functions(UNARY, 1)
define_functions(BINARY, 2)


_pointwise = partial(primitive, tags=("pointwise",), exact=True)


@_pointwise(
    "where(Tensor cond, Tensor a, Tensor b) -> Tensor",
    torch.where,
    shape=_SAME_TWO,
    edge_cases={"nan": "in the operand not chosen has no effect"},
    source="the conditional operator of C11, clause 6.5.15, element by element",
    flops=flops_per_output(1),
)
def where(cond: TensorMeta, a: TensorMeta, b: TensorMeta) -> TensorMeta:
    """`a` where `cond` (bool), else `b`; the one not chosen does not matter."""
    require(cond.dtype == torch.bool, f"the condition is {cond.dtype}, not bool")
    require(a.dtype == b.dtype, f"dtypes {a.dtype} and {b.dtype} differ; cast first")
    return elementwise(cond, a, b, dtype=a.dtype)


@_pointwise(
    "fma(Tensor a, Tensor b, Tensor c) -> Tensor",
    lambda a, b, c: torch.addcmul(c, a, b),
    shape=_SAME_TWO,
    edge_cases={**_NAN, "overflow": "only if the sum does: the product is not rounded"},
    source="IEEE 754-2019, clause 5.4.1, fusedMultiplyAdd",
    flops=flops_per_output(2),
    dtypes=WIDE_FLOATS,
)
def fma(a: TensorMeta, b: TensorMeta, c: TensorMeta) -> TensorMeta:
    """`a b + c`, rounded once."""
    require(a.dtype == b.dtype == c.dtype, f"{a.dtype}, {b.dtype} and {c.dtype}; cast first")
    require(a.dtype in WIDE_FLOATS, f"not defined on {a.dtype}")
    return elementwise(a, b, c)


@_pointwise(
    "cast(Tensor a, *, ScalarType dtype) -> Tensor",
    lambda a, *, dtype: a.to(dtype, copy=True),
    shape=SAME_AS_COPIED,
    edge_cases={
        "nan": "to bool: true; to an integer: undefined",
        "out of range": "a float outside an integer's range: undefined; integers wrap around",
        "complex": "to a real dtype: the real part",
    },
    source="IEEE 754-2019, clause 5.4; C11, 6.3.1",
    flops=flops_per_output(1),
)
def cast(a: TensorMeta, *, dtype: torch.dtype) -> TensorMeta:
    """The values converted to `dtype`: rounded to nearest even, floats to integers truncated."""
    return kept_layout(a, dtype)
