"""C++ types of torch dtypes, in memory and in registers.

In: a torch dtype. Out: names of types in `runtime/include/flambeau/vec.h` and literals. Invariant:
half-precision values are float32 in registers and bools are int32 masks; everything else is as
it is stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from flambeau_inductor.errors import CppUnsupported
from flambeau_inductor.ir.loops import Scalar


@dataclass(frozen=True, slots=True)
class DtypeSpelling:
    """`memory`: type of a buffer's element; `value`: type of one lane; `size`: bytes of a lane."""

    memory: str
    value: str
    size: int
    is_float: bool


HELD: dict[torch.dtype, DtypeSpelling] = {
    torch.float32: DtypeSpelling("f32", "f32", 4, True),
    torch.float64: DtypeSpelling("f64", "f64", 8, True),
    torch.bfloat16: DtypeSpelling("bf16", "f32", 4, True),
    torch.float16: DtypeSpelling("f16", "f32", 4, True),
    torch.int64: DtypeSpelling("i64", "i64", 8, False),
    torch.int32: DtypeSpelling("i32", "i32", 4, False),
    torch.int16: DtypeSpelling("i16", "i16", 2, False),
    torch.int8: DtypeSpelling("i8", "i8", 1, False),
    torch.uint8: DtypeSpelling("u8", "u8", 1, False),
    torch.bool: DtypeSpelling("b8", "i32", 4, False),
}
ROUNDED = {torch.bfloat16: "round_bf16", torch.float16: "round_f16"}


def spelling_of(dtype: torch.dtype) -> DtypeSpelling:
    """The entry of `dtype`; `CppUnsupported` for complex, quantised and 8-bit floats."""
    found = HELD.get(dtype)
    if found is None:
        raise CppUnsupported(f"C++ kernels do not hold values of {dtype}")
    return found


def literal(value: Scalar, dtype: torch.dtype) -> str:
    """A C++ literal of the register type of `dtype`."""
    kind = spelling_of(dtype)
    if dtype is torch.bool:
        return "-1" if value else "0"
    if not kind.is_float:
        whole = int(value)
        if kind.value == "i64":
            return "(-0x7fffffffffffffffL - 1)" if whole == -(2**63) else f"{whole}L"
        return f"({kind.value}){whole}L"
    number = float(value)
    suffix = "f" if kind.value == "f32" else ""
    if suffix and math.isfinite(number):
        # rounded here, so that an overflow is an infinity rather than a compiler's complaint
        number = float(torch.tensor(number, dtype=torch.float64).to(dtype))
    if math.isnan(number):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
    return f"{number.hex()}{suffix}"


def limit(dtype: torch.dtype, low: bool) -> Scalar:
    """The least number, which is the identity of `max`; or the greatest, that of `min`."""
    if dtype.is_floating_point:
        return -math.inf if low else math.inf
    if dtype is torch.bool:
        return not low
    return torch.iinfo(dtype).min if low else torch.iinfo(dtype).max
