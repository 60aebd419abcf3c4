"""Every pointwise primitive's Triton spelling, under the interpreter, against ATen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.pointwise import (
    ANY_DTYPE,
    BOOLEAN,
    FLOATING,
    INTEGER,
    supports,
)

from . import loops
from .run import poisoned, run_loop

SPECIAL = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 3.5, 1e-6, -1e-6, 30.0, -30.0, 0.3, 88.0]
NOT_FINITE = [float("inf"), -float("inf"), float("nan")]
UNIT = {"asin", "acos", "atanh", "erfinv"}
# The names under which ATen has a primitive, where they differ.
ATEN: dict[str, Callable[..., torch.Tensor]] = {
    "neg": torch.neg,
    "trunc_div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_div": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
    "where": torch.where,
}
BOOL_RESULT = {"eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"}
BOOL_RESULT |= {"isnan", "isinf", "isfinite"}


def reference(op: str) -> Callable[..., torch.Tensor]:
    """ATen's function of the primitive."""
    return ATEN.get(op) or getattr(torch, op)


def arity(op: str) -> int:
    """How many operands the spelling has."""
    template = (FLOATING | INTEGER | BOOLEAN | ANY_DTYPE)[op]
    return max(i for i in range(3) if f"{{{i}}}" in template) + 1


def check(op: str, operands: list[torch.Tensor], folder: Path, tolerance: float) -> None:
    """Run `op` on equal-length vectors and compare, signs of zeros included."""
    expected = reference(op)(*operands)
    size, dtype = operands[0].numel(), operands[0].dtype
    out = poisoned(size, dtype=expected.dtype)
    buffers = {f"in{i}": operand for i, operand in enumerate(operands)} | {"out": out}
    run_loop(loops.pointwise(op, len(operands), size, dtype, expected.dtype), buffers, folder)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("op", [op for op in FLOATING if arity(op) == 1])
def test_unary_float(op: str, tmp_path: Path) -> None:
    values = torch.tensor(SPECIAL + NOT_FINITE)
    if op in {"sinh", "cosh"}:
        values = values[values.abs() < 80]
    if op in UNIT:
        values = torch.linspace(-0.99, 0.99, 21)
    check(op, [values], tmp_path, 3e-6)


@pytest.mark.parametrize("op", [op for op in FLOATING if arity(op) == 2])
def test_binary_float(op: str, tmp_path: Path) -> None:
    values = SPECIAL[:11] + ([] if op in {"remainder", "fmod", "floor_div"} else NOT_FINITE)
    others = [v for v in values if v != 0] if op in {"remainder", "fmod"} else values
    a, b = torch.cartesian_prod(torch.tensor(values), torch.tensor(others)).T.contiguous()
    if op in {"floor_div", "trunc_div"}:
        keep = (b != 0) & b.isfinite() & a.isfinite() & (b.abs() > 1e-3)
        a, b = a[keep], b[keep]
    if op in {"remainder", "fmod"}:
        keep = b.abs() > 1e-3
        a, b = a[keep], b[keep]
    check(op, [a, b], tmp_path, 3e-6)


@pytest.mark.parametrize("op", ["add", "mul", "div", "exp", "tanh", "erf", "maximum", "sigmoid"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats(op: str, dtype: torch.dtype, tmp_path: Path) -> None:
    operands = [torch.randn(40).to(dtype) for _ in range(arity(op))]
    check(op, operands, tmp_path, 2e-7 if dtype == torch.float64 else torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("op", [op for op in INTEGER if not op.startswith("is")])
def test_integers(op: str, dtype: torch.dtype, tmp_path: Path) -> None:
    a, b = torch.cartesian_prod(torch.arange(-7, 8), torch.tensor([-3, -2, -1, 1, 2, 3])).T
    if op.startswith("shift"):
        b = b.abs()
    operands = [t.to(dtype).contiguous() for t in (a, b)][: arity(op)]
    check(op, operands, tmp_path, 0)


@pytest.mark.parametrize("op", [op for op in BOOLEAN if op != "mul" and op != "add"])
def test_booleans(op: str, tmp_path: Path) -> None:
    operands = [torch.tensor([True, True, False, False]), torch.tensor([True, False] * 2)]
    check(op, operands[: arity(op)], tmp_path, 0)


@pytest.mark.parametrize("op", sorted(BOOL_RESULT & ANY_DTYPE.keys()))
def test_comparisons(op: str, tmp_path: Path) -> None:
    values = torch.tensor(SPECIAL[:5] + NOT_FINITE)
    a, b = torch.cartesian_prod(values, values).T.contiguous()
    check(op, [a, b], tmp_path, 0)


CASTS = [
    (torch.float32, torch.int64, [1.9, -1.9, 0.0]),
    (torch.float32, torch.bool, [0.0, 0.3, float("nan")]),
    (torch.float64, torch.bfloat16, [1.00390625, 3.14159, -2.0]),
    (torch.int64, torch.float32, [3.0, -4.0, 0.0]),
    (torch.bool, torch.float32, [0.0, 1.0, 1.0]),
    (torch.bfloat16, torch.float16, [0.1, 2.0, -3.0]),
]


@pytest.mark.parametrize(("source", "result", "values"), CASTS)
def test_casts(
    source: torch.dtype, result: torch.dtype, values: list[float], tmp_path: Path
) -> None:
    a = torch.tensor(values, dtype=torch.float64).to(source)
    out = poisoned(len(values), dtype=result)
    loop = loops.pointwise("cast", 1, len(values), source, result)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    assert torch.equal(out, a.to(result))


def test_what_has_no_spelling_is_known_beforehand() -> None:
    assert supports("add", torch.float32)
    assert not supports("lgamma", torch.float32)
    assert not supports("div", torch.int64)
