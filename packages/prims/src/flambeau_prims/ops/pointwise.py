"""Pointwise primitives: one result element per element of the operands.

In: operands of one shape, and of one dtype (casts are their own primitive). Out: the same shape,
in the dtype of the operands or bool, with strides by torch's elementwise rule.
Invariant: no broadcasting and no promotion; a violation is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_prims._op import Rule, define, flops_per_output, require
from flambeau_prims._torch_compat import OpOverload
from flambeau_prims.layout import TensorMeta, elementwise_strides

INTS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})
BOOL = frozenset({torch.bool})
REAL = INTS | FLOATS
NUMBER = REAL | COMPLEX
INEXACT = FLOATS | COMPLEX
ANY = NUMBER | BOOL

Kind = frozenset[torch.dtype]


def elementwise(name: str, *metas: TensorMeta, dtype: torch.dtype | None = None) -> TensorMeta:
    """Metadata of a pointwise result; all operands must have one shape and one device."""
    first = metas[0]
    for other in metas[1:]:
        require(
            first.shape == other.shape,
            f"{name}: shapes {first.shape} and {other.shape} differ; broadcast first",
        )
        require(first.device == other.device, f"{name}: devices {first.device} and {other.device}")
    strides = elementwise_strides(metas)
    return TensorMeta(first.shape, strides, dtype or first.dtype, first.device)


def _unary_rule(name: str, kind: Kind, result: torch.dtype | None) -> Rule:
    def rule(a: TensorMeta) -> TensorMeta:
        require(a.dtype in kind, f"{name}: not defined on {a.dtype}")
        return elementwise(name, a, dtype=result)

    return rule


def _binary_rule(name: str, kind: Kind, result: torch.dtype | None) -> Rule:
    def rule(a: TensorMeta, b: TensorMeta) -> TensorMeta:
        require(a.dtype == b.dtype, f"{name}: dtypes {a.dtype} and {b.dtype} differ; cast first")
        require(a.dtype in kind, f"{name}: not defined on {a.dtype}")
        return elementwise(name, a, b, dtype=result)

    return rule


def _trunc_div(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


# name: (eager, dtypes, relative cost). The result has the operand's dtype.
_UNARY: dict[str, tuple[Callable[..., Any], Kind, int]] = {
    "abs": (torch.abs, REAL, 1),
    "neg": (torch.neg, NUMBER, 1),
    "sign": (torch.sign, REAL, 1),
    "ceil": (torch.ceil, FLOATS, 1),
    "floor": (torch.floor, FLOATS, 1),
    "round": (torch.round, FLOATS, 1),
    "trunc": (torch.trunc, FLOATS, 1),
    "exp": (torch.exp, INEXACT, 8),
    "exp2": (torch.exp2, INEXACT, 8),
    "expm1": (torch.expm1, INEXACT, 8),
    "log": (torch.log, INEXACT, 8),
    "log2": (torch.log2, INEXACT, 8),
    "log10": (torch.log10, INEXACT, 8),
    "log1p": (torch.log1p, INEXACT, 8),
    "sqrt": (torch.sqrt, INEXACT, 2),
    "rsqrt": (torch.rsqrt, INEXACT, 2),
    "reciprocal": (torch.reciprocal, INEXACT, 2),
    "sin": (torch.sin, INEXACT, 8),
    "cos": (torch.cos, INEXACT, 8),
    "tan": (torch.tan, INEXACT, 12),
    "asin": (torch.asin, INEXACT, 12),
    "acos": (torch.acos, INEXACT, 12),
    "atan": (torch.atan, INEXACT, 12),
    "sinh": (torch.sinh, INEXACT, 12),
    "cosh": (torch.cosh, INEXACT, 12),
    "tanh": (torch.tanh, INEXACT, 12),
    "asinh": (torch.asinh, INEXACT, 12),
    "acosh": (torch.acosh, INEXACT, 12),
    "atanh": (torch.atanh, INEXACT, 12),
    "erf": (torch.erf, FLOATS, 12),
    "erfc": (torch.erfc, FLOATS, 12),
    "erfinv": (torch.erfinv, FLOATS, 16),
    "lgamma": (torch.lgamma, FLOATS, 24),
    "digamma": (torch.digamma, FLOATS, 24),
    "sigmoid": (torch.sigmoid, INEXACT, 10),
    "bitwise_not": (torch.bitwise_not, INTS | BOOL, 1),
    "logical_not": (torch.logical_not, BOOL, 1),
}

# The result is bool.
_UNARY_TEST: dict[str, tuple[Callable[..., Any], Kind]] = {
    "isnan": (torch.isnan, ANY),
    "isinf": (torch.isinf, ANY),
    "isfinite": (torch.isfinite, ANY),
}

_BINARY: dict[str, tuple[Callable[..., Any], Kind, int]] = {
    "add": (torch.add, ANY, 1),
    "sub": (torch.sub, NUMBER, 1),
    "mul": (torch.mul, ANY, 1),
    "div": (torch.true_divide, INEXACT, 2),
    "trunc_div": (_trunc_div, INTS, 4),
    "floor_div": (torch.floor_divide, REAL, 4),
    "remainder": (torch.remainder, REAL, 6),
    "fmod": (torch.fmod, REAL, 4),
    "pow": (torch.pow, NUMBER, 20),
    "atan2": (torch.atan2, FLOATS, 16),
    "maximum": (torch.maximum, REAL | BOOL, 1),
    "minimum": (torch.minimum, REAL | BOOL, 1),
    "fmax": (torch.fmax, REAL | BOOL, 1),
    "fmin": (torch.fmin, REAL | BOOL, 1),
    "copysign": (torch.copysign, FLOATS, 1),
    "nextafter": (torch.nextafter, FLOATS, 2),
    "bitwise_and": (torch.bitwise_and, INTS | BOOL, 1),
    "bitwise_or": (torch.bitwise_or, INTS | BOOL, 1),
    "bitwise_xor": (torch.bitwise_xor, INTS | BOOL, 1),
    "shift_left": (torch.bitwise_left_shift, INTS, 1),
    "shift_right": (torch.bitwise_right_shift, INTS, 1),
    "logical_and": (torch.logical_and, BOOL, 1),
    "logical_or": (torch.logical_or, BOOL, 1),
    "logical_xor": (torch.logical_xor, BOOL, 1),
}

_BINARY_TEST: dict[str, tuple[Callable[..., Any], Kind]] = {
    "eq": (torch.eq, ANY),
    "ne": (torch.ne, ANY),
    "lt": (torch.lt, REAL | BOOL),
    "le": (torch.le, REAL | BOOL),
    "gt": (torch.gt, REAL | BOOL),
    "ge": (torch.ge, REAL | BOOL),
}

POINTWISE_DTYPES: dict[str, Kind] = {
    **{name: kind for name, (_, kind, _) in {**_UNARY, **_BINARY}.items()},
    **{name: kind for name, (_, kind) in {**_UNARY_TEST, **_BINARY_TEST}.items()},
}
"""The dtypes that a pointwise primitive takes; `where` and `cast`, which take all, are not here."""

_NOTES = {
    "round": "Halves go to the even neighbour.",
    "remainder": "The sign is the divisor's, as Python's `%`.",
    "fmod": "The sign is the dividend's, as C's `fmod`.",
    "trunc_div": "Integer quotient, towards zero.",
    "floor_div": "Quotient towards minus infinity.",
    "maximum": "NaN if either is NaN.",
    "minimum": "NaN if either is NaN.",
    "fmax": "The other operand where one is NaN.",
    "fmin": "The other operand where one is NaN.",
    "shift_right": "Arithmetic for signed integers.",
}


def _define_tables() -> None:
    for name, (eager, kind, cost) in _UNARY.items():
        define(
            f"{name}(Tensor a) -> Tensor",
            rule=_unary_rule(name, kind, None),
            eager=eager,
            tags=("pointwise",),
            doc=f"Pointwise {name}. {_NOTES.get(name, '')}".strip(),
            flops=flops_per_output(cost),
        )
    for name, (eager, kind) in _UNARY_TEST.items():
        define(
            f"{name}(Tensor a) -> Tensor",
            rule=_unary_rule(name, kind, torch.bool),
            eager=eager,
            tags=("pointwise",),
            doc=f"Pointwise {name}; the result is bool.",
            flops=flops_per_output(1),
        )
    for name, (eager, kind, cost) in _BINARY.items():
        define(
            f"{name}(Tensor a, Tensor b) -> Tensor",
            rule=_binary_rule(name, kind, None),
            eager=eager,
            tags=("pointwise",),
            doc=f"Pointwise {name}. {_NOTES.get(name, '')}".strip(),
            flops=flops_per_output(cost),
        )
    for name, (eager, kind) in _BINARY_TEST.items():
        define(
            f"{name}(Tensor a, Tensor b) -> Tensor",
            rule=_binary_rule(name, kind, torch.bool),
            eager=eager,
            tags=("pointwise",),
            doc=f"Pointwise comparison {name}; the result is bool.",
            flops=flops_per_output(1),
        )


_define_tables()


def _where_rule(cond: TensorMeta, a: TensorMeta, b: TensorMeta) -> TensorMeta:
    require(cond.dtype == torch.bool, f"where: the condition is {cond.dtype}, not bool")
    require(a.dtype == b.dtype, f"where: dtypes {a.dtype} and {b.dtype} differ; cast first")
    return elementwise("where", cond, a, b, dtype=a.dtype)


where: OpOverload = define(
    "where(Tensor cond, Tensor a, Tensor b) -> Tensor",
    rule=_where_rule,
    eager=torch.where,
    tags=("pointwise",),
    doc="`a` where `cond` (bool), else `b`; the one not chosen does not matter.",
    flops=flops_per_output(1),
)


def _cast_rule(a: TensorMeta, *, dtype: torch.dtype) -> TensorMeta:
    return elementwise("cast", a, dtype=dtype)


def _cast(a: torch.Tensor, *, dtype: torch.dtype) -> torch.Tensor:
    return a.to(dtype, copy=True)


cast: OpOverload = define(
    "cast(Tensor a, *, ScalarType dtype) -> Tensor",
    rule=_cast_rule,
    eager=_cast,
    tags=("pointwise",),
    doc="The values converted to `dtype`: rounded to nearest even, floats to integers truncated.",
    flops=flops_per_output(1),
)
