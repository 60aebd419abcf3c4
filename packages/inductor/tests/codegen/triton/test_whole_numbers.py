"""Whole numbers in kernels: what is left out changes no bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.triton.kernel import generate
from flambeau_inductor.codegen.triton.whole_numbers import sums_exact_products, widened_at_once
from flambeau_inductor.indexing import Var, as_expr
from flambeau_inductor.ir.evaluate import run_loop
from flambeau_inductor.ir.loops import Axis, Const, Instr, Load, Loop, Point, Reduce, Store

from tests.codegen.triton.run import run_loop as interpreted

F32, BF16, HALF = torch.float32, torch.bfloat16, torch.float16


def bytes_of(dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    return torch.arange(info.min, info.max + 1).to(dtype)


def dequantised(of: torch.dtype, half: torch.dtype, number: float, op: str) -> Loop:
    """A byte in half precision, combined with a number there, as float32."""
    x = Var("x0")
    body: list[Instr] = [
        Load("in0", x, of),
        Point("cast", (0,), half),
        Point("cast", (1,), F32),
        Const(number, F32),
        Point(op, (2, 3), F32),
        Point("cast", (4,), half),
        Point("cast", (5,), F32),
        Store("out", x, 6),
    ]
    return Loop("dequantised", (Axis("x0", 256),), (), tuple(body))


def casts(loop: Loop) -> int:
    return sum(isinstance(i, Point) and i.op == "cast" for i in loop.body)


@pytest.mark.parametrize("half", [BF16, HALF])
@pytest.mark.parametrize("of", [torch.int8, torch.uint8])
@pytest.mark.parametrize("number", [8.0, 0.5, 3.0, 1000.0])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_casts_of_small_whole_numbers_are_left_out(
    of: torch.dtype, half: torch.dtype, op: str, number: float
) -> None:
    loop = dequantised(of, half, number, op)
    made, given = widened_at_once(loop), bytes_of(of)
    results = []
    for each in (loop, made):
        memory = {"in0": given, "out": torch.full((256,), torch.nan)}
        run_loop(each, memory)
        results.append(memory["out"])
    assert torch.equal(*results)
    exact = {"add": torch.add, "sub": torch.sub, "mul": torch.mul}[op](given.double(), number)
    fits = number.is_integer() and exact.abs().max() <= (256 if half == BF16 else 2048)
    assert casts(made) == (1 if fits else 3)


def test_nibbles_are_whole_numbers_too() -> None:
    x, byte = Var("x0"), torch.uint8
    body: tuple[Instr, ...] = (
        Load("in0", x, byte),
        Const(4, byte),
        Point("shift_right", (0, 1), byte),
        Const(15, byte),
        Point("bitwise_and", (2, 3), byte),
        Point("cast", (4,), BF16),
        Point("cast", (5,), F32),
        Const(8.0, F32),
        Point("sub", (6, 7), F32),
        Point("cast", (8,), BF16),
        Point("cast", (9,), F32),
        Store("out", x, 10),
    )
    loop = Loop("nibbles", (Axis("x0", 256),), (), body)
    made = widened_at_once(loop)
    assert casts(made) == 1
    memory = {"in0": bytes_of(byte), "out": torch.full((256,), torch.nan)}
    run_loop(made, memory)
    assert torch.equal(memory["out"], (torch.arange(256) // 16 - 8).float())


def product(left: torch.dtype, right: torch.dtype, more: str = "") -> Loop:
    x, r = Var("x0"), Var("r0")
    body: list[Instr] = [
        Load("in0", x * 64 + r, left),
        Point("cast", (0,), F32),
        Load("in1", r, right),
        Point("cast", (2,), F32),
        Point("mul", (1, 3), F32),
    ]
    if more:
        body.append(Point(more, (4,), F32))
    body += [Reduce("sum", len(body) - 1, F32), Store("out", x, len(body))]
    return Loop("product", (Axis("x0", 8),), (Axis("r0", 64),), tuple(body))


@pytest.mark.parametrize(
    ("left", "right", "more", "exact"),
    [
        (BF16, BF16, "", True),
        (HALF, HALF, "", True),
        (torch.int8, BF16, "", True),
        (BF16, BF16, "neg", True),
        (F32, BF16, "", False),
        (F32, BF16, "neg", False),
        (torch.int32, BF16, "", False),
        (BF16, BF16, "exp", False),
    ],
)
def test_a_sum_takes_products_unrounded_only_where_they_are_exact(
    left: torch.dtype, right: torch.dtype, more: str, exact: bool
) -> None:
    loop = product(left, right, more)
    assert sums_exact_products(loop) == exact
    dtypes = {"in0": left, "in1": right, "out": F32}
    assert generate(loop, dtypes, {"in0": 512, "in1": 64, "out": 8}).contracts == exact


def test_a_loop_without_a_product_is_as_it_was() -> None:
    body = (Load("in0", Var("r0"), F32), Reduce("sum", 0, F32), Store("out", as_expr(0), 1))
    assert not sums_exact_products(Loop("total", (), (Axis("r0", 64),), body))


def widened(dtype: torch.dtype, *between: Instr) -> Loop:
    """What is loaded, changed by `between`, and then float32."""
    x = Var("x0")
    body = [Load("in0", x, dtype), *between]
    body += [Point("cast", (len(body) - 1,), F32), Store("out", x, len(body))]
    return Loop("widened", (Axis("x0", 256),), (), tuple(body))


SMALL = (Const(1023, torch.int32), Point("bitwise_and", (0, 1), torch.int32))
CONVERSIONS = [
    (widened(torch.int8), "byte_to_float32"),
    (widened(torch.uint8), "byte_to_float32"),
    (
        widened(torch.int8, Const(3, torch.int8), Point("sub", (0, 1), torch.int8)),
        "small_to_float32",
    ),
    (widened(torch.int16), "small_to_float32"),
    (widened(torch.int32, *SMALL), "small_to_float32"),
    (widened(torch.int32), ""),
    (widened(torch.int64), ""),
    (widened(torch.bool), ""),
]


@pytest.mark.parametrize(("loop", "function"), CONVERSIONS)
def test_numbers_of_few_bits_become_float32_without_the_slow_conversion(
    loop: Loop, function: str, tmp_path: Path
) -> None:
    load = loop.body[0]
    assert isinstance(load, Load)
    dtypes = {"in0": load.dtype, "out": F32}
    text = generate(loop, dtypes, dict.fromkeys(dtypes, 256)).source
    assert ("_to_float32(" in text) == bool(function)
    assert function in text
    if load.dtype == torch.bool:
        given = torch.arange(256) % 3 == 0
    else:
        info = torch.iinfo(load.dtype)
        given = torch.linspace(max(info.min, -(2**23)), min(info.max, 2**23), 256).to(load.dtype)
    wanted, memory = ({"in0": given.clone(), "out": torch.full((256,), torch.nan)} for _ in "ab")
    run_loop(loop, wanted)
    interpreted(loop, memory, tmp_path)
    assert torch.equal(memory["out"], wanted["out"])
