"""Every pointwise primitive's Triton spelling, under the interpreter, against ATen."""

from __future__ import annotations

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
from flambeau_inductor.ir.loops import Axis, Const, Load, Loop, Point, Store

from tests.codegen import loops
from tests.codegen.operations import (
    BOOL_RESULT,
    CASTS,
    NOT_FINITE,
    SPECIAL,
    arity,
    binary_values,
    integer_values,
    reference,
    unary_values,
)
from tests.codegen.triton.run import run_loop
from tests.poison import poisoned

ALL = FLOATING | INTEGER | BOOLEAN | ANY_DTYPE


def check(op: str, operands: list[torch.Tensor], folder: Path, tolerance: float) -> None:
    """Run `op` on equal-length vectors and compare, signs of zeros included."""
    expected = reference(op)(*operands)
    size, dtype = operands[0].numel(), operands[0].dtype
    out = poisoned(size, dtype=expected.dtype)
    buffers = {f"in{i}": operand for i, operand in enumerate(operands)} | {"out": out}
    run_loop(loops.pointwise(op, len(operands), size, dtype, expected.dtype), buffers, folder)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    if expected.is_floating_point() and op not in ("fmax", "fmin"):  # of -0 and 0, either is right
        zeros = (out == 0) & (expected == 0)
        assert torch.equal(out[zeros].signbit(), expected[zeros].signbit())


@pytest.mark.parametrize("op", ["erf", "tanh"])
def test_one_plus_a_function_that_ends_at_minus_one(op: str, tmp_path: Path) -> None:
    """Written in fewer instructions than apart. Rounded as the sum of the two: to a multiple of
    what numbers near -1 are rounded to, so nothing where the function is rounded to -1."""
    values = torch.cat([torch.linspace(-20, 20, 4001), torch.tensor([1e-30, -1e-30, -1e30, 1e30])])
    a = torch.cat([values, torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0])])
    out = poisoned(len(a))
    body = (
        Load("in0", loops.x(), torch.float32),
        Point(op, (0,), torch.float32),
        Const(1.0, torch.float32),
        Point("add", (2, 1), torch.float32),
        Store("out", loops.x(), 3),
    )
    run_loop(Loop("sum", (Axis("x0", len(a)),), (), body), {"in0": a, "out": out}, tmp_path)
    exact = (1 + getattr(torch, op)(a.double())).float()
    torch.testing.assert_close(out, exact, rtol=0, atol=2.5e-7, equal_nan=True)
    steps = out[out.isfinite()] * 2.0**24
    assert torch.equal(steps, steps.round())
    nothing = getattr(torch, op)(a) == -1
    assert nothing.sum() > 500 and not out[nothing].any()


@pytest.mark.parametrize("op", ["sigmoid", "exp", "exp2", "tanh"])
def test_every_number_of_half_precision(op: str, tmp_path: Path) -> None:
    """All 65536, of the forms that are accurate enough there: few are rounded to another number
    than the right one, and those to its neighbour. (The interpreter cuts off what it makes
    bfloat16.)"""
    dtype = torch.float16
    a = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    out = torch.empty_like(a)
    loop = loops.pointwise(op, 1, len(a), dtype, dtype)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    exact = getattr(torch, op)(a.float()).to(dtype)
    wrong = ~((out == exact) | (out.isnan() & exact.isnan()))
    assert int(wrong.sum()) <= 400
    off = (out[wrong].view(torch.int16).int() - exact[wrong].view(torch.int16).int()).abs()
    assert off.numel() == 0 or int(off.max()) == 1


LIMITS = torch.tensor([0.0, -0.0, 1.5, -1.5, float("inf"), float("-inf"), float("nan"), -3.4e38])


@pytest.mark.parametrize("op", ["neg", "abs", "acosh", "trunc", "floor", "sign"])
def test_unary_at_the_limits(op: str, tmp_path: Path) -> None:
    check(op, [LIMITS], tmp_path, 3e-6)


@pytest.mark.parametrize("op", ["fmod", "remainder", "floor_div", "copysign", "mul", "maximum"])
def test_binary_at_the_limits(op: str, tmp_path: Path) -> None:
    a = LIMITS[:-1].repeat_interleave(7)
    check(op, [a, LIMITS[:-1].repeat(7)], tmp_path, 3e-6)


@pytest.mark.parametrize("op", [op for op in FLOATING if arity(FLOATING[op]) == 1])
def test_unary_float(op: str, tmp_path: Path) -> None:
    check(op, [unary_values(op)], tmp_path, 3e-6)


@pytest.mark.parametrize("op", [op for op in FLOATING if arity(FLOATING[op]) == 2])
def test_binary_float(op: str, tmp_path: Path) -> None:
    check(op, binary_values(op), tmp_path, 3e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_product_and_sum(dtype: torch.dtype, tmp_path: Path) -> None:
    operands = [torch.randn(40, dtype=dtype) for _ in range(3)]
    check("fma", operands, tmp_path, 3e-6)


@pytest.mark.parametrize("op", ["add", "mul", "div", "exp", "tanh", "erf", "maximum", "sigmoid"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats(op: str, dtype: torch.dtype, tmp_path: Path) -> None:
    operands = [torch.randn(40).to(dtype) for _ in range(arity(ALL[op]))]
    check(op, operands, tmp_path, 2e-7 if dtype == torch.float64 else torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("op", [op for op in INTEGER if not op.startswith("is")])
def test_integers(op: str, dtype: torch.dtype, tmp_path: Path) -> None:
    check(op, integer_values(op, dtype)[: arity(INTEGER[op])], tmp_path, 0)


@pytest.mark.parametrize("op", [op for op in BOOLEAN if op != "mul" and op != "add"])
def test_booleans(op: str, tmp_path: Path) -> None:
    operands = [torch.tensor([True, True, False, False]), torch.tensor([True, False] * 2)]
    check(op, operands[: arity(BOOLEAN[op])], tmp_path, 0)


@pytest.mark.parametrize("op", sorted((BOOL_RESULT & ANY_DTYPE.keys()) - {"logical_not"}))
def test_comparisons(op: str, tmp_path: Path) -> None:
    values = torch.tensor(SPECIAL[:5] + NOT_FINITE)
    a, b = torch.cartesian_prod(values, values).T.contiguous()
    check(op, [a, b], tmp_path, 0)


@pytest.mark.parametrize(("source", "result", "values"), CASTS)
def test_casts(
    source: torch.dtype, result: torch.dtype, values: list[float], tmp_path: Path
) -> None:
    a = torch.tensor(values, dtype=torch.float64).to(source)
    out = poisoned(len(values), dtype=result)
    loop = loops.pointwise("cast", 1, len(values), source, result)
    run_loop(loop, {"in0": a, "out": out}, tmp_path)
    # The interpreter drops bits where the device rounds to the nearest bfloat16.
    tolerance = torch.finfo(result).eps if result == torch.bfloat16 else 0
    torch.testing.assert_close(out, a.to(result), rtol=tolerance, atol=0, equal_nan=True)


def test_what_has_no_spelling_is_known_beforehand() -> None:
    assert supports("add", torch.float32)
    assert not supports("polygamma", torch.float32)
    assert not supports("div", torch.int64)


WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", WHOLE)
def test_numbers_are_those_that_the_dtype_holds(dtype: torch.dtype, tmp_path: Path) -> None:
    """As a fill of eager's has them, beside its limits and far beyond."""
    info = torch.iinfo(dtype)
    numbers = [-1, 0, 300, -(2**15) - 3, info.min, info.max]
    if dtype != torch.int64:
        numbers += [info.min - 1, info.max + 1]
    made = {f"out{k}": poisoned(4, dtype=dtype) for k in range(len(numbers))}
    body: list[Const | Store] = []
    for k, number in enumerate(numbers):
        body += [Const(number, dtype), Store(f"out{k}", loops.x(), 2 * k)]
    loop = Loop("kernel", (Axis("x0", 4),), (), tuple(body))
    run_loop(loop, made, tmp_path)
    for out, number in zip(made.values(), numbers, strict=True):
        assert out.tolist() == [int(torch.tensor([number]).to(dtype))] * 4
