"""Pointwise primitives as calls of `vec.h` and `lanes.h`.

In: an op name, the dtypes of its operands and of its result, and the operands' text. Out: C++ text.
Invariant: the text means the same for one element and for a vector, since both headers overload
the same names; all operands come in one flavour.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from flambeau_inductor.codegen.cpp.dtypes import ROUNDED, spelling_of
from flambeau_inductor.codegen.device_functions import module_of, takes
from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.ir.loops import RANDOM, Instr, Point
from flambeau_inductor.ir.operands import operands


def _words(text: str) -> list[str]:
    return text.split()


FLOATING = {
    op: op
    for op in _words(
        """abs neg sign ceil floor round trunc exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
    reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma
    digamma sigmoid isnan isinf isfinite add sub mul div pow atan2 maximum minimum fmax fmin
    copysign nextafter fmod remainder floor_div fma"""
    )
}
INTEGER = {
    op: op
    for op in _words("""abs neg sign add sub mul maximum minimum bitwise_and bitwise_or bitwise_xor
    bitwise_not shift_left shift_right pow""")
} | {"fmax": "maximum", "fmin": "minimum"}
# on bools: masks of 0 and -1
MASKS = {
    **{op: op for op in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not")},
    **dict.fromkeys(("add", "maximum", "fmax"), "bitwise_or"),
    **dict.fromkeys(("mul", "minimum", "fmin"), "bitwise_and"),
}
COMPARISONS = frozenset(_words("eq ne lt le gt ge"))
LOGICAL = {"logical_and": "bitwise_and", "logical_or": "bitwise_or", "logical_xor": "bitwise_xor"}
INTEGER_DIVISION = frozenset(["trunc_div", "floor_div", "remainder", "fmod"])
# on integers these are the identity, or a truth
IDENTITY = frozenset(["ceil", "floor", "round", "trunc"])
TRUTHS = {"isnan": "0", "isinf": "0", "isfinite": "-1"}
# results in half precision that need no rounding: they are one of the operands, or exact
EXACT = frozenset(
    _words("neg abs sign maximum minimum fmax fmin copysign where ceil floor round trunc")
)
# relative cost of one element, for what is worth keeping and what is worth a thread; others: 1
COST = {
    **dict.fromkeys(_words("div sqrt rsqrt reciprocal"), 4),
    **dict.fromkeys(_words("exp exp2 sigmoid log log2"), 10),
    **dict.fromkeys(_words("expm1 log10 log1p tanh sin cos"), 14),
    **dict.fromkeys(_words("erf philox_uniform philox_bits"), 20),
    **dict.fromkeys(
        _words("""tan asin acos atan sinh cosh asinh acosh atanh erfc lgamma digamma erfinv pow
    atan2 nextafter fmod remainder floor_div trunc_div philox_normal"""),
        60,
    ),
}

# what numbers by counting are called, by primitive and dtype; half precision is rounded float32
RANDOM_NAMES = {
    ("philox_uniform", torch.float32): "uniform_f32",
    ("philox_uniform", torch.float64): "uniform_f64",
    ("philox_uniform", torch.float16): "uniform_f16",
    ("philox_uniform", torch.bfloat16): "uniform_bf16",
    ("philox_normal", torch.float32): "normal_f32",
    ("philox_normal", torch.float64): "normal_f64",
    ("philox_normal", torch.float16): "normal_f32",
    ("philox_normal", torch.bfloat16): "normal_f32",
    ("philox_bits", torch.int32): "bits_i32",
    ("philox_bits", torch.int64): "bits_i64",
}
# those that the headers have for neighbouring positions too
NEIGHBOURS = frozenset(
    ["uniform_f32", "uniform_f64", "uniform_f16", "uniform_bf16", "normal_f32", "bits_i32"]
)

# an elementary function is a page of instructions: one that costs so much and stands so often in a
# loop is written once, and called, where that costs no time at run time
CALLED_COST, CALLED_COUNT = 10, 8
# so few elements are computed in less time than a call of the kernel takes
CALLED_FEW = 4096
CALLED = re.compile(r"\bcalled_(\w+)\(")


def called_functions(body: Sequence[Instr], points: int) -> frozenset[str]:
    """Operations that a loop over so many points calls: most of theirs wait for one another, so
    that a processor cannot compute them side by side, or there are few elements."""
    often = Counter(i.op for i in body if isinstance(i, Point) and cost_of(i.op) >= CALLED_COST)
    return frozenset(
        op
        for op, count in often.items()
        if count >= CALLED_COUNT
        and op not in RANDOM
        and (count * points <= CALLED_FEW or 2 * _longest(body, op) >= count)
    )


def _longest(body: Sequence[Instr], op: str) -> int:
    """How many of an operation the longest chain of a loop has."""
    found: list[int] = []
    for instr in body:
        below = max((found[value] for value in operands(instr)), default=0)
        found.append(below + (isinstance(instr, Point) and instr.op == op))
    return max(found, default=0)


def cost_of(op: str) -> int:
    """Relative cost of one element; that of a call for each where there is a device function."""
    return COST.get(op) or (60 if module_of(op) else 1)


def random_name(op: str, dtype: torch.dtype) -> str:
    """The function of `philox.h` for a random primitive."""
    found = RANDOM_NAMES.get((op, dtype))
    if found is None:
        raise CppUnsupported(f"no C++ kernel for {op} in {dtype}")
    return found


def needs_error_flag(op: str, operand: torch.dtype) -> bool:
    """Whether the op may meet a division by zero that eager reports."""
    return op in INTEGER_DIVISION and not operand.is_floating_point


def supports(op: str, kinds: Sequence[torch.dtype], result: torch.dtype) -> bool:
    """Whether `point` has a text for it."""
    try:
        point(op, kinds, result, ["a"] * len(kinds), lambda v, d: v)
    except CppUnsupported:
        return False
    return True


def point(
    op: str,
    kinds: Sequence[torch.dtype],
    result: torch.dtype,
    args: Sequence[str],
    constant: Callable[[str, torch.dtype], str],
    rounds: bool = True,
    called: bool = False,
) -> str:
    """C++ text of the op. `constant` renders a number in the flavour of the operands; `rounds`:
    to half precision, which a store of float16 does by itself; `called`: a call, if there is a
    function of floating-point numbers."""
    spelling_of(result)
    first = kinds[-1]
    for dtype in kinds:
        spelling_of(dtype)
    if op in RANDOM:
        text = f"{random_name(op, result)}({', '.join(args)})"
        rounded = op == "philox_normal" and result in ROUNDED
        return f"{ROUNDED[result]}({text})" if rounded else text
    if op == "cast":
        return cast(args[0], kinds[0], result, constant, rounds)
    if op == "where":
        return f"select({args[0]}, {args[1]}, {args[2]})"
    if op == "logical_not":
        if first is torch.bool:
            return f"bitwise_not({args[0]})"
        return f"eq({args[0]}, {constant('0', first)})"
    if op in LOGICAL:
        return f"{LOGICAL[op]}({', '.join(truth(a, first, constant) for a in args)})"
    if op in COMPARISONS:
        if first is torch.bool and op not in ("eq", "ne"):
            args = [f"neg({a})" for a in args]
        return f"{op}({', '.join(args)})"
    whole = not first.is_floating_point and first is not torch.bool
    prefix = "called_" if called and first.is_floating_point else ""
    if takes(op, first):
        text = f"{prefix}each_{op}({', '.join(args)})"
    elif whole and op in INTEGER_DIVISION:
        return f"{op}({', '.join(args)}, &error)"
    elif whole and op in TRUTHS:
        return constant(TRUTHS[op], torch.bool)
    elif whole and op in IDENTITY:
        return args[0]
    else:
        table = MASKS if first is torch.bool else INTEGER if whole else FLOATING
        if op not in table:
            on = "bools" if first is torch.bool else first
            raise CppUnsupported(f"no C++ kernel for {op} on {on}")
        text = f"{prefix}{table[op]}({', '.join(args)})"
    rounds = rounds and result in ROUNDED and op not in EXACT
    return f"{ROUNDED[result]}({text})" if rounds else text


def truth(text: str, dtype: torch.dtype, constant: Callable[[str, torch.dtype], str]) -> str:
    """`text` as a mask."""
    return text if dtype is torch.bool else f"ne({text}, {constant('0', dtype)})"


def cast(
    text: str,
    source: torch.dtype,
    target: torch.dtype,
    constant: Callable[[str, torch.dtype], str],
    rounds: bool = True,
) -> str:
    """Conversion as eager does it; to half precision it rounds once, to nearest even."""
    if source is target:
        return text
    if target is torch.bool:
        return truth(text, source, constant)
    if source is torch.bool:
        text = f"neg({text})"
    have, want = spelling_of(source).value, spelling_of(target).value
    if have != want:
        text = f"to_{want}({text})"
    if rounds and target in ROUNDED and source is not torch.bool:
        text = f"{ROUNDED[target]}({text})"
    return text
