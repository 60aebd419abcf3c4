"""Pointwise primitives as Triton expressions.

In: a primitive's name, its operands as source text, their dtypes and the result's.
Out: one Triton expression. Invariant: half-precision operands are computed in float32 and rounded
once, as the dialect's eager implementations do; every other dtype is computed as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from flambeau_prims.ops.pointwise import POINTWISE

from flambeau_inductor.codegen.device_functions import function, module_of, takes
from flambeau_inductor.codegen.triton.dtypes import HALF, register
from flambeau_inductor.errors import TritonUnsupported

Spelling = str


def _calls(module: str, unary: str, binary: str = "") -> dict[str, Spelling]:
    """Functions of a module that are called as the primitive is."""
    return {op: f"{module}.{op}({{0}})" for op in unary.split()} | {
        op: f"{module}.{op}({{0}}, {{1}})" for op in binary.split()
    }


ARITHMETIC: dict[str, Spelling] = {"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}"}
BITWISE: dict[str, Spelling] = {
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
}

FLOATING: dict[str, Spelling] = {
    **ARITHMETIC,
    **_calls(
        "fm",
        "sign ceil floor trunc exp exp2 expm1 log1p rsqrt reciprocal sin tan asin acos atan sinh "
        "cosh tanh asinh acosh atanh erf sigmoid",
        "floor_div remainder fmod pow atan2 maximum minimum copysign",
    ),
    **_calls("sf", "erfc erfinv lgamma digamma", "nextafter"),
    **_calls("tl", "abs log log2 cos"),
    "neg": "{0} * -1.0",  # Triton subtracts from zero, which loses the sign of one
    "round": "fm.round_half_even({0})",
    "log10": "tl.log2({0}) * 0.30102999566398120",
    "sqrt": "tl.sqrt_rn({0})",
    "isnan": "{0} != {0}",
    "isinf": "tl.abs({0}) == float('inf')",
    "isfinite": "({0} - {0}) == 0",
    "fma": "tl.fma({0}, {1}, {2})",
    "div": "tl.div_rn({0}, {1})",
    "fmax": "tl.maximum({0}, {1})",
    "fmin": "tl.minimum({0}, {1})",
}

ROUNDED: dict[str, Spelling] = {
    "tanh": "fm.tanh_to_half({0})",
    "sigmoid": "fm.sigmoid_to_half({0})",
    "exp": "tl.exp({0})",
    "exp2": "fm.exp2({0})",
}
"""Spellings in float32 that are accurate enough where the result is rounded to half precision: of
functions that eager does not compute exactly either."""

ENDS_IN_HALF: dict[str, tuple[Spelling, int]] = {
    "exp": ("tl.exp({0})", 5),
    "exp2": ("fm.exp2({0})", 4),
    "sigmoid": ("1.0 / (1.0 + tl.exp(-{0}))", 8),
}
"""Spellings in float32, and their machine instructions, of functions that eager does not compute
exactly, where all that depends on the result is rounded to half precision before it is stored: they
are off by 1e-5 of the value at most, where half precision rounds by 5e-4 or 4e-3."""

_LIBRARY = (
    "expm1 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erfc erfinv lgamma",
    "pow atan2",
)
"""Functions of float64 whose spelling is the name of the function in `device_functions/float64`."""

DOUBLE: dict[str, Spelling] = {
    **FLOATING,
    **_calls("fd", *_LIBRARY),
    **_calls("tl", "exp exp2 rsqrt sqrt erf"),
    "sigmoid": "fm.sigmoid_double({0})",
    "reciprocal": "1.0 / {0}",
    "div": "{0} / {1}",
}

INTEGER: dict[str, Spelling] = {
    **ARITHMETIC,
    **BITWISE,
    **_calls("fm", "sign", "shift_left shift_right"),
    **dict.fromkeys(("ceil", "floor", "round", "trunc"), "{0}"),
    "abs": "fm.integer_abs({0})",
    "neg": "fm.integer_neg({0})",
    "isnan": "{0} != {0}",
    "isinf": "{0} != {0}",
    "isfinite": "{0} == {0}",
    "trunc_div": "{0} // {1}",
    "floor_div": "fm.integer_floor_div({0}, {1})",
    "remainder": "fm.integer_remainder({0}, {1})",
    "fmod": "{0} % {1}",
    "pow": "fm.integer_pow({0}, {1})",
    **dict.fromkeys(("maximum", "fmax"), "fm.integer_maximum({0}, {1})"),
    **dict.fromkeys(("minimum", "fmin"), "fm.integer_minimum({0}, {1})"),
    "bitwise_not": "~{0}",
}

BOOLEAN: dict[str, Spelling] = {
    **BITWISE,
    "lt": "({0} == 0) & {1}",  # one bit counts as signed: true would be below false
    "le": "({0} == 0) | {1}",
    "gt": "{0} & ({1} == 0)",
    "ge": "{0} | ({1} == 0)",
    **dict.fromkeys(("add", "maximum", "fmax"), "{0} | {1}"),
    **dict.fromkeys(("mul", "minimum", "fmin"), "{0} & {1}"),
    **dict.fromkeys(("bitwise_not", "logical_not"), "{0} == 0"),
}

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
ANY_DTYPE: dict[str, Spelling] = {
    "where": "tl.where({0}, {1}, {2})",
    **{op: f"{{0}} {sign} {{1}}" for op, sign in COMPARISONS.items()},
    **{op: f"({{0}} != 0) {sign} ({{1}} != 0)" for op, sign in LOGICAL.items()},
    "logical_not": "{0} == 0",
}

INSTRUCTIONS: dict[str, int] = {
    "exp": 22, "expm1": 18, "log": 25, "log2": 27, "log10": 28, "log1p": 68, "sqrt": 15,
    "reciprocal": 15, "sin": 80, "cos": 82, "tan": 169, "asin": 65, "acos": 64, "atan": 33,
    "sinh": 41, "cosh": 25, "tanh": 14, "asinh": 117, "acosh": 107, "atanh": 84, "erf": 21,
    "sigmoid": 36, "div": 15, "trunc_div": 13, "floor_div": 200, "remainder": 155, "fmod": 150,
    "pow": 159, "atan2": 61, "erfc": 271, "erfinv": 844, "lgamma": 811, "digamma": 1096,
    "copysign": 2, "nextafter": 11, "philox_uniform": 60, "philox_normal": 90,
    "philox_bits": 60,
}  # fmt: skip
"""Machine instructions that a float32 element takes (sm_90, Triton 3.6); others take one or so."""


def instructions_of(op: str) -> int:
    """Machine instructions of a float32 element; of device functions a guess by the primitive's
    cost in additions, since they compute in float64."""
    if op in POINTWISE and module_of(op):
        return INSTRUCTIONS.get(op) or 8 * POINTWISE[op].cost
    return INSTRUCTIONS.get(op, 1)


# Where rounding operands up to float32 first could not change the result.
EXACT_IN_HALF = frozenset({"where", "abs", *COMPARISONS})


UNIFORM_BITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
"""How many bits a uniform number has, as the dialect defines it."""


def spell_random(op: str, seed: str, position: str, result: torch.dtype) -> str:
    """A random number of a seed and a position, both int64.

    Raises:
        TritonUnsupported: there is no such number of this dtype.
    """
    if op == "philox_uniform" and result in UNIFORM_BITS:
        drawn = f"fm.philox_uniform({seed}, {position}, {UNIFORM_BITS[result]})"
        return drawn if result == torch.float32 else f"({drawn}).to({register(result)})"
    if op == "philox_bits" and result == torch.int32:
        return f"fm.philox_bits({seed}, {position})"
    raise TritonUnsupported(f"the primitive {op} of {result} has no Triton spelling")


def spell(
    op: str,
    args: Sequence[str],
    dtypes: Sequence[torch.dtype],
    result: torch.dtype,
    *,
    rounded: bool = False,
    ends_in_half: bool = False,
) -> str:
    """One Triton expression for `op` on `args`.

    `rounded` says that the result, in float32, is only used after rounding to half precision,
    `ends_in_half` that what depends on it is stored after such rounding only.

    Raises:
        TritonUnsupported: the primitive has no spelling for these dtypes.
    """
    if op == "cast":
        return _cast(args[0], dtypes[0], result)
    operand = dtypes[-1]
    template = _template(op, operand)
    if operand in HALF or (rounded and operand == torch.float32):
        template = ROUNDED.get(op, template)
    elif ends_in_half and operand == torch.float32 and op in ENDS_IN_HALF:
        template = ENDS_IN_HALF[op][0]
    if template is None:
        raise TritonUnsupported(f"the primitive {op} on {operand} has no Triton spelling")
    if operand not in HALF or op in EXACT_IN_HALF:
        return template.format(*args)
    wide = [
        f"{arg}.to(tl.float32)" if dtype in HALF else arg
        for arg, dtype in zip(args, dtypes, strict=True)
    ]
    text = template.format(*wide)
    return text if result == torch.bool else f"({text}).to({register(result)})"


def can_round(op: str, dtypes: Sequence[torch.dtype]) -> bool:
    """Whether `spell` with float32 as the result gives what a result of half precision would be
    rounded from."""
    if op == "cast":
        return dtypes[0] == torch.float32
    return dtypes[-1] in HALF and op not in EXACT_IN_HALF


def supports(op: str, dtype: torch.dtype) -> bool:
    """Whether `spell` knows the primitive `op` on operands of `dtype`."""
    return op == "cast" or _template(op, dtype) is not None


def _template(op: str, dtype: torch.dtype) -> Spelling | None:
    table = FLOATING if dtype.is_floating_point else INTEGER
    table = {torch.bool: BOOLEAN, torch.float64: DOUBLE}.get(dtype, table)
    found = table.get(op) or ANY_DTYPE.get(op)
    if found is None and takes(op, dtype):
        two = len(function(op).args.args) == 2
        operands = "blocks.like({0}, {1}), blocks.like({1}, {0})" if two else "{0}"
        found = f"{module_of(op)}.{op}({operands})"
    return found


def _cast(arg: str, source: torch.dtype, result: torch.dtype) -> str:
    if source == result:
        return arg
    if result == torch.bool:
        return f"{arg} != 0"
    if source.itemsize > 2 and result in HALF:
        return f"{arg}.to(tl.float32).to({register(result)})"  # through float32, as eager does
    if not source.is_floating_point or result.is_floating_point:
        return f"{arg}.to({register(result)})"
    wide = f"{arg}.to(tl.float32)" if source in HALF else arg
    # of narrower ones eager has the low bits
    bits = 64 if result in (torch.int64, torch.uint8) else 32
    found = f"fm.whole({wide}, {bits})"
    return found if result.itemsize * 8 == bits else f"{found}.to({register(result)})"
