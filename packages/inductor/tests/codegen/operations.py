"""What pointwise primitives are fed in tests, and ATen's function of each."""

from __future__ import annotations

from collections.abc import Callable

import torch

SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 3.5, 1e-6, -1e-6, 30.0, -30.0, 0.3, 88.0]
NOT_FINITE = [float("inf"), -float("inf"), float("nan")]
ONLY_UNIT = {"asin", "acos", "atanh", "erfinv"}
NO_ZERO_DIVISOR = {"remainder", "fmod", "floor_div", "trunc_div"}
BOOL_RESULT = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"}
BOOL_RESULT |= {"isnan", "isinf", "isfinite", "logical_not"}
ATEN: dict[str, Callable[..., torch.Tensor]] = {
    "fma": lambda a, b, c: torch.addcmul(c, a, b),
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
}


def reference(op: str) -> Callable[..., torch.Tensor]:
    """ATen's function of the primitive."""
    return ATEN.get(op) or getattr(torch, op)


def arity(template: str) -> int:
    """How many operands a spelling has."""
    return max(i for i in range(3) if f"{{{i}}}" in template) + 1


def unary_values(op: str) -> torch.Tensor:
    """Float operands for a unary primitive, special values included where it takes them."""
    if op in ONLY_UNIT:
        return torch.linspace(-0.99, 0.99, 21)
    return torch.tensor(SPECIAL + NOT_FINITE)


def binary_values(op: str) -> list[torch.Tensor]:
    """Two float operands, every pair of special values that the primitive is defined on."""
    divides = op in NO_ZERO_DIVISOR
    values = SPECIAL[:11] + ([] if divides else NOT_FINITE)
    a, b = torch.cartesian_prod(torch.tensor(values), torch.tensor(values)).T.contiguous()
    if divides:
        keep = b.abs() > 1e-3
        a, b = a[keep], b[keep]
    return [a, b]


def integer_values(op: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """Two integer operands without a zero divisor; shifts by non-negative amounts."""
    a, b = torch.cartesian_prod(torch.arange(-7, 8), torch.tensor([-3, -2, -1, 1, 2, 3])).T
    if op in ("shift_left", "shift_right"):
        b = b.abs()
    return [t.to(dtype).contiguous() for t in (a, b)]


CASTS = [
    (torch.float32, torch.int64, [1.9, -1.9, 0.0]),
    (torch.float32, torch.bool, [0.0, 0.3, float("nan")]),
    (torch.float64, torch.bfloat16, [1.00390625, 3.14159, -2.0]),
    (torch.int64, torch.float32, [3.0, -4.0, 0.0]),
    (torch.bool, torch.float32, [0.0, 1.0, 1.0]),
    (torch.bool, torch.int64, [0.0, 1.0, 1.0]),
    (torch.bfloat16, torch.float16, [0.1, 2.0, -3.0]),
    (torch.float32, torch.bfloat16, [0.1, -2.5, 3.0e38]),
    *(
        (source, result, [300.7, -300.7, 65000.0, -65000.0, -1.5])
        for source in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
        for result in (torch.uint8, torch.int8, torch.int16)
    ),
]
