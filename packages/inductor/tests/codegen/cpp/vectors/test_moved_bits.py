"""What is only moved, negated or made positive: the bits that eager stores."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.codegen.cpp.loop_rewrites import exact_in_half
from flambeau_inductor.codegen.cpp.moved_bits import moved_as_bits
from flambeau_inductor.ir.loops import Const, Instr, Load, Loop, Point, Store
from tests.codegen import loops
from tests.codegen.cpp.run import run_loops

HALF = (torch.float16, torch.bfloat16)
SIZE = 1 << 16
EXACT = ("neg", "abs", "ceil", "floor", "round", "trunc", "sign")


def every(dtype: torch.dtype) -> torch.Tensor:
    """All bit patterns of a half-precision dtype."""
    return torch.arange(-(SIZE // 2), SIZE // 2, dtype=torch.int16).view(dtype)


def through_float32(op: str, dtype: torch.dtype) -> Loop:
    """As it is lowered: converted, computed, converted back."""
    body: list[Instr] = [
        Load("in", loops.x(), dtype),
        Point("cast", (0,), torch.float32),
        Point(op, (1,), torch.float32),
        Point("cast", (2,), dtype),
        Store(op, loops.x(), 3),
    ]
    return loops.loop(op, (SIZE,), (), body)


def moves(dtype: torch.dtype, number: float) -> list[Loop]:
    """Copies, backwards too, and choices between elements and a number."""
    there, back = loops.x(), loops.x() * -1 + (SIZE - 1)
    choice: list[Instr] = [
        Load("chosen", there, torch.bool),
        Load("in", there, dtype, mask=0, other=number),
        Load("in", back, dtype),
        Point("where", (0, 2, 1), dtype),
        Store("choice", there, 3),
    ]
    copy: list[Instr] = [Load("in", there, dtype), Store("copy", there, 0)]
    mirror: list[Instr] = [Load("in", back, dtype), Store("mirror", there, 0)]
    number_alone: list[Instr] = [Const(number, dtype), Store("number", there, 0)]
    bodies = {"copy": copy, "mirror": mirror, "choice": choice, "number": number_alone}
    return [loops.loop(name, (SIZE,), (), body) for name, body in bodies.items()]


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_bits_of_halves(dtype: torch.dtype, tmp_path: Path) -> None:
    made = [*(through_float32(op, dtype) for op in EXACT), *moves(dtype, -1.5)]
    x = every(dtype)
    buffers = {"in": x, "chosen": torch.rand(SIZE) < 0.5}
    buffers |= {loop.name: torch.empty_like(x) for loop in made}
    run_loops(made, buffers, tmp_path)
    want = {op: getattr(torch, op)(x) for op in EXACT} | {"copy": x, "mirror": x.flip(0)}
    number = torch.tensor(-1.5, dtype=dtype)
    want |= {"choice": torch.where(buffers["chosen"], x.flip(0), number)}
    want |= {"number": number.expand(SIZE)}
    for name, wanted in want.items():
        # only what is moved has the payload of a NaN that eager leaves
        moved = name in ("neg", "abs", "copy", "mirror", "choice", "number")
        same = buffers[name].view(torch.int16) == wanted.contiguous().view(torch.int16)
        same |= buffers[name].isnan() & wanted.isnan() & (not moved)
        assert bool(same.all()), (name, x[~same][:4], buffers[name][~same][:4])


def test_bools_are_bytes(tmp_path: Path) -> None:
    made = moves(torch.bool, 1)
    x = torch.rand(SIZE) < 0.5
    buffers = {"in": x, "chosen": torch.rand(SIZE) < 0.5}
    buffers |= {loop.name: torch.empty_like(x) for loop in made}
    run_loops(made, buffers, tmp_path)
    assert torch.equal(buffers["copy"], x) and torch.equal(buffers["mirror"], x.flip(0))
    assert torch.equal(buffers["choice"], torch.where(buffers["chosen"], x.flip(0), True))
    assert bool(buffers["number"].all())


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_what_is_computed_with_is_not_moved(dtype: torch.dtype) -> None:
    body: list[Instr] = [
        Load("in", loops.x(), dtype),
        Point("cast", (0,), torch.float32),
        Store("wide", loops.x(), 1),
        Store("out", loops.x(), 0),
    ]
    loop = loops.loop("both", (SIZE,), (), body)
    dtypes = {"in": dtype, "wide": torch.float32, "out": dtype}
    assert moved_as_bits(exact_in_half(loop), dtypes) == (loop, dtypes)
