"""Unrolling of short axes of sums: packed numbers are unpacked from one reading of their bytes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest
import torch
from flambeau_inductor.ir.evaluate import run_program
from flambeau_inductor.ir.loops import Load
from flambeau_inductor.ir.steps import loops_of
from flambeau_inductor.scheduling_limits import Limits
from torch import Tensor

from tests.evaluated import scheduled

ROWS, TERMS = 6, 64


def stacked(w: Tensor) -> Tensor:
    return torch.stack((w & 15, (w >> 4) & 15), -1).reshape(ROWS, TERMS)


def high_first(w: Tensor) -> Tensor:
    return torch.stack(((w >> 4) & 15, w & 15), 2).reshape(ROWS, TERMS)


def halves(w: Tensor) -> Tensor:
    return torch.cat((w & 15, (w >> 4) & 15), 1)


def quarters(w: Tensor) -> Tensor:
    parts = [(w.narrow(1, 0, TERMS // 4) >> shift) & 3 for shift in (0, 2, 4, 6)]
    return torch.stack(parts, -1).reshape(ROWS, TERMS)


def four_parts(w: Tensor) -> Tensor:
    return torch.cat([(w.narrow(1, 0, TERMS // 4) >> shift) & 3 for shift in (0, 2, 4, 6)], 1)


def scaled_by_groups(numbers: Tensor, scale: Tensor) -> Tensor:
    groups = numbers.reshape(ROWS, 4, -1).float() - 8
    return (groups * scale.unsqueeze(2)).reshape(ROWS, TERMS)


def scaled_by_rows(numbers: Tensor, scale: Tensor) -> Tensor:
    return (numbers.float() - 8) * scale.narrow(1, 0, 1)


@pytest.mark.parametrize("scaled", [scaled_by_groups, scaled_by_rows])
@pytest.mark.parametrize("unpack", [stacked, high_first, halves, quarters, four_parts])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_packed_numbers_are_read_once_and_unmasked(
    unpack: Callable[[Tensor], Tensor], scaled: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    def of(x: Tensor, w: Tensor, scale: Tensor) -> Any:
        return (scaled(unpack(w), scale) * x).sum(1)

    info = torch.iinfo(dtype)
    w = torch.randint(info.min, info.max + 1, (ROWS, TERMS // 2), dtype=dtype)
    inputs = [torch.randn(TERMS), w, torch.rand(ROWS, 4)]
    program = scheduled(of, inputs, limits=Limits(split_on=("cpu",)))
    (got,) = run_program(program, inputs)
    torch.testing.assert_close(got, of(*inputs), rtol=1e-5, atol=1e-4)
    (loop,) = loops_of(program)
    loads = [i for i in loop.body if isinstance(i, Load)]
    assert all(load.mask is None for load in loads)
    read = [load for load in loads if load.buffer == program.inputs[1].name]
    fields = 4 if unpack in (quarters, four_parts) else 2
    assert len(read) * prod(int(axis.size) for axis in loop.r) == TERMS // fields


def padded(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (1, 1)).sum(1)


def uneven(x: Tensor) -> Tensor:
    return torch.cat((x, x.narrow(1, 0, 7) * 2), 1).sum(1)


def largest(x: Tensor) -> Tensor:
    return torch.stack((x, x * -2), -1).amax((1, 2))


@pytest.mark.parametrize("of", [padded, uneven, largest])
def test_other_reductions_stay_as_they_are(of: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(ROWS, TERMS)
    limits = Limits(split_on=("cpu",))
    program = scheduled(of, [x], limits=limits)
    (got,) = run_program(program, [x])
    torch.testing.assert_close(got, of(x))
    assert any(
        isinstance(i, Load) and i.mask is not None for each in loops_of(program) for i in each.body
    )
