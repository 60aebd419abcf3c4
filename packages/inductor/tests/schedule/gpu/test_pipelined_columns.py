"""Sums down columns of what is stored besides, taken as rows in turn: the same results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flambeau_inductor.codegen.triton.tiling import choose
from flambeau_inductor.ir.loops import Loop, Reduce, Store
from torch import Tensor

from tests.evaluated import Outcome, against_eager
from tests.schedule.pairs import JOINED

LIMITS = replace(JOINED, split_programs=6)


def bias_backward(grad: Tensor, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    made = torch.where(x > 0, grad, 0.5 * grad)
    return made, made.float().sum(0), (made.float() * scale).sum(0)


def _walked(done: Outcome) -> list[Loop]:
    return [
        e for e in done.loops if any(isinstance(i, Store) and i.mode == "total" for i in e.body)
    ]


def _inputs(rows: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
    drawn = (torch.randn(rows, columns).to(dtype) for _ in "ab")
    return (*drawn, torch.rand(rows, 1))


@pytest.mark.parametrize("rows", [24, 23])
@pytest.mark.parametrize("columns", [1024, 1900, 2048])
def test_results_are_those_of_columns(rows: int, columns: int) -> None:
    inputs = _inputs(rows, columns, torch.bfloat16)
    done = against_eager(bias_backward, *inputs, tolerance=1e-4, limits=LIMITS)
    (walked,) = _walked(done)
    assert not any(isinstance(i, Reduce) for i in walked.body)
    assert sum(isinstance(i, Store) and i.mode == "set" for i in walked.body) == 1
    assert [d.block for d in choose(walked).dimensions] == [4, 1024]


@pytest.mark.parametrize(
    ("columns", "dtype"), [(1023, torch.bfloat16), (1100, torch.bfloat16), (2048, torch.float32)]
)
def test_columns_that_gain_nothing_stay(columns: int, dtype: torch.dtype) -> None:
    inputs = _inputs(24, columns, dtype)
    assert not _walked(against_eager(bias_backward, *inputs, tolerance=1e-4, limits=LIMITS))


def test_sums_that_nothing_is_stored_beside_stay() -> None:
    def sums(x: Tensor, y: Tensor) -> Tensor:
        return (x.float() * y.float()).sum(0)

    inputs = _inputs(24, 2048, torch.bfloat16)[:2]
    assert not _walked(against_eager(sums, *inputs, tolerance=1e-4, limits=LIMITS))
