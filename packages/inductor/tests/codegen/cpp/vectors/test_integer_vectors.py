"""Integers: conversions of vectors, divisions, shifts, the larger of two, against eager."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Store
from tests.codegen import loops
from tests.codegen.cpp.run import run_loops

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ALL = (*INTEGERS, torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)
SIZE = 83


def numbers(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Ends of ranges, powers of two and their neighbours, and others, drawn."""
    generator = torch.Generator().manual_seed(seed)
    if dtype not in INTEGERS:
        return torch.randint(0, 100, (SIZE,), generator=generator).to(dtype)
    info = torch.iinfo(dtype)
    edges = [0, 1, 2, info.min, info.min + 1, info.max, info.max - 1]
    edges += [s * (2**k + d) for k in (7, 15, 31, 32, 62) for d in (-1, 0, 1) for s in (1, -1)]
    known = torch.tensor([e for e in edges if info.min <= e <= info.max], dtype=dtype)
    return known[torch.randint(0, len(known), (SIZE,), generator=generator)]


def binary(name: str, body: list[Instr], dtype: torch.dtype) -> Loop:
    loads: list[Instr] = [Load("a", loops.x(), dtype), Load("b", loops.x(), dtype)]
    return loops.loop(name, (SIZE,), (), [*loads, *body, Store(name, loops.x(), 1 + len(body))])


@pytest.mark.sweep(2)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_conversions(source: torch.dtype, tmp_path: Path) -> None:
    x = numbers(source)
    made, buffers = [], {"in": x}
    for target in ALL:
        name = str(target)
        body: list[Instr] = [
            Load("in", loops.x(), source),
            Point("cast", (0,), target),
            Store(name, loops.x(), 1),
        ]
        if target is not source:
            made.append(loops.loop(name, (SIZE,), (), body))
            buffers[name] = torch.zeros(SIZE, dtype=target)
    run_loops(made, buffers, tmp_path)
    for loop in made:
        wanted = x.to(buffers[loop.name].dtype)
        assert torch.equal(buffers[loop.name], wanted), loop.name


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_and_choices(dtype: torch.dtype, tmp_path: Path) -> None:
    a, bits = numbers(dtype), 8 * dtype.itemsize
    b = torch.arange(SIZE) % (bits + 4) - (0 if dtype is torch.uint8 else 2)
    made = [
        binary("shift_left", [Point("shift_left", (0, 1), dtype)], dtype),
        binary("shift_right", [Point("shift_right", (0, 1), dtype)], dtype),
    ]
    for op in ("lt", "le", "gt", "ge"):
        mask: Instr = Point(op, (0, 1), torch.bool)
        made.append(binary(f"{op} first", [mask, Point("where", (2, 0, 1), dtype)], dtype))
        made.append(binary(f"{op} second", [mask, Point("where", (2, 1, 0), dtype)], dtype))
    buffers = {"a": a, "b": b.to(dtype)}
    buffers |= {loop.name: torch.zeros(SIZE, dtype=dtype) for loop in made}
    run_loops(made, buffers, tmp_path)
    b = buffers["b"]
    assert torch.equal(buffers["shift_left"], a << b)
    assert torch.equal(buffers["shift_right"], a >> b)
    for op in ("lt", "le", "gt", "ge"):
        holds = getattr(torch, op)(a, b)
        assert torch.equal(buffers[f"{op} first"], torch.where(holds, a, b)), op
        assert torch.equal(buffers[f"{op} second"], torch.where(holds, b, a)), op
