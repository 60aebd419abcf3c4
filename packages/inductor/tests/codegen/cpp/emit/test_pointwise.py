"""Every pointwise primitive's C++ spelling, compiled, against ATen."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.emit.pointwise import supports

from tests.codegen import loops
from tests.codegen.cpp.run import run_loop
from tests.codegen.operations import (
    CASTS,
    NOT_FINITE,
    SPECIAL,
    binary_values,
    integer_values,
    reference,
    unary_values,
)
from tests.poison import poisoned

UNARY = """abs neg sign ceil floor round trunc exp exp2 expm1 log log2 log10 log1p sqrt rsqrt
    reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma
    digamma sigmoid isnan isinf isfinite""".split()
BINARY = """add sub mul div floor_div remainder fmod pow atan2 maximum minimum fmax fmin copysign
    nextafter""".split()
WHOLE = """add sub mul trunc_div floor_div remainder fmod maximum minimum bitwise_and bitwise_or
    bitwise_xor shift_left shift_right eq lt ge logical_and""".split()
WHOLE_UNARY = "neg abs sign bitwise_not logical_not".split()
BOOLEAN = """logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge
    maximum minimum""".split()
COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_xor".split()


def check(op: str, operands: list[torch.Tensor], folder: Path, tolerance: float) -> None:
    """Run `op` on equal-length vectors and compare, signs of zeros included."""
    expected = reference(op)(*operands)
    size, dtype = operands[0].numel(), operands[0].dtype
    out = poisoned(size, dtype=expected.dtype)
    buffers = {f"in{i}": operand for i, operand in enumerate(operands)} | {"out": out}
    run_loop(loops.pointwise(op, len(operands), size, dtype, expected.dtype), buffers, folder)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("op", UNARY)
def test_unary_float(op: str, tmp_path: Path) -> None:
    check(op, [unary_values(op)], tmp_path, 3e-6)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("op", BINARY)
def test_binary_float(op: str, tmp_path: Path) -> None:
    check(op, binary_values(op), tmp_path, 3e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 5, 301])
def test_product_and_sum_round_once(dtype: torch.dtype, count: int, tmp_path: Path) -> None:
    operands = [torch.randn(count, dtype=dtype) for _ in range(3)]
    expected, out = reference("fma")(*operands), poisoned(count, dtype=dtype)
    buffers = {f"in{i}": operand for i, operand in enumerate(operands)} | {"out": out}
    run_loop(loops.pointwise("fma", 3, count, dtype, dtype), buffers, tmp_path)
    assert torch.equal(out, expected)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("op", ["add", "mul", "div", "exp", "tanh", "erf", "maximum", "sigmoid"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats(op: str, dtype: torch.dtype, tmp_path: Path) -> None:
    operands = [torch.randn(40).to(dtype) for _ in range(2 if op in BINARY else 1)]
    check(op, operands, tmp_path, 2e-7 if dtype == torch.float64 else torch.finfo(dtype).eps)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8])
@pytest.mark.parametrize("op", WHOLE + WHOLE_UNARY)
def test_integers(op: str, dtype: torch.dtype, tmp_path: Path) -> None:
    check(op, integer_values(op, dtype)[: 1 if op in WHOLE_UNARY else 2], tmp_path, 0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("op", BOOLEAN)
def test_booleans(op: str, tmp_path: Path) -> None:
    operands = [torch.tensor([True, True, False, False]), torch.tensor([True, False] * 2)]
    check(op, operands, tmp_path, 0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op: str, tmp_path: Path) -> None:
    values = torch.tensor(SPECIAL[:5] + NOT_FINITE)
    a, b = torch.cartesian_prod(values, values).T.contiguous()
    check(op, [a, b], tmp_path, 0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("source", "result", "values"), CASTS)
def test_casts(
    source: torch.dtype, result: torch.dtype, values: list[float], tmp_path: Path
) -> None:
    a = torch.tensor(values, dtype=torch.float64).to(source)
    out = poisoned(len(values), dtype=result)
    loop = loops.pointwise("cast", 1, len(values), source, result)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    torch.testing.assert_close(out, a.to(result), rtol=0, atol=0, equal_nan=True)


def test_what_has_no_kernel_is_known_beforehand() -> None:
    pair = [torch.float32, torch.float32]
    assert supports("add", pair, torch.float32)
    assert supports("lgamma", pair[:1], torch.float32)
    assert not supports("div", [torch.int64, torch.int64], torch.int64)
    assert not supports("add", [torch.complex64, torch.complex64], torch.complex64)
    assert not supports("bitwise_and", pair, torch.float32)
