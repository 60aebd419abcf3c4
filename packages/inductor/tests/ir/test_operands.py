"""What a program holds for each element of a row, by estimate."""

from __future__ import annotations

import torch
from flambeau_inductor.ir.loops import Instr, Load, Loop, Point, Reduce, Store
from flambeau_inductor.ir.operands import live, register_bytes

from tests.codegen import loops

F32, BF16 = torch.float32, torch.bfloat16


def _softmax_and_sums(weights: int) -> Loop:
    at = loops.x() * 4096 + loops.x(1) * 64 + loops.r()
    body: list[Instr] = [
        Load("in0", at, BF16),
        Point("cast", (0,), F32),
        Reduce("max", 1, F32),
        Point("sub", (1, 2), F32),
        Point("exp", (3,), F32),
        Reduce("sum", 4, F32),
        Point("div", (4, 5), F32),
    ]
    for k in range(weights):
        body += [
            Load(f"weight{k}", loops.r(), BF16),
            Point("cast", (len(body),), F32),
            Point("mul", (len(body) - 1, len(body) + 1), F32),
        ]
    body.append(Store("out", at, len(body) - 1))
    body.append(Store("sums", loops.x() * 64 + loops.r(), 1, "total"))
    return loops.loop("softmax_and_sums", (2, 64), (64,), body)


def test_what_waits_at_one_time_is_counted_once() -> None:
    # the sum down the column; the element, which it takes at the end; its exponential
    assert live(_softmax_and_sums(0)) == 3
    assert live(_softmax_and_sums(2)) == 5


def test_values_that_were_cast_are_one_value() -> None:
    backward = loops.norm_backward(2, 64, 64, BF16)
    assert live(backward) == live(loops.norm_backward(2, 64, 64))
    assert register_bytes(backward) < register_bytes(loops.norm_backward(2, 64, 64))
