"""Bags of equal lengths become gathers and sums; others stay the library's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ..evaluated import against_eager


@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_bags_are_kernels(mode: str, dtype: torch.dtype) -> None:
    table = torch.randn(10, 6).to(dtype)
    outcome = against_eager(
        lambda table, rows: F.embedding_bag(rows, table, mode=mode),
        table,
        torch.randint(0, 10, (5, 3)),
        tolerance=1e-2 if dtype == torch.bfloat16 else 1e-5,
    )
    assert not outcome.externs and not outcome.fallbacks


def test_weights_of_samples() -> None:
    outcome = against_eager(
        lambda table, rows, shares: F.embedding_bag(
            rows, table, mode="sum", per_sample_weights=shares
        ),
        torch.randn(10, 6),
        torch.randint(0, 10, (5, 3)),
        torch.rand(5, 3),
    )
    assert not outcome.externs


@pytest.mark.parametrize("settings", [{"mode": "max"}, {"mode": "sum", "padding_idx": 1}])
def test_what_sums_do_not_say_is_the_librarys(settings: dict[str, object]) -> None:
    outcome = against_eager(
        lambda table, rows: F.embedding_bag(rows, table, **settings),
        torch.randn(10, 6),
        torch.randint(0, 10, (5, 3)),
    )
    assert outcome.externs


def test_bags_that_only_the_data_know_are_the_librarys() -> None:
    outcome = against_eager(
        lambda table, rows, begins: F.embedding_bag(rows, table, begins),
        torch.randn(10, 6),
        torch.randint(0, 10, (8,)),
        torch.tensor([0, 3, 3]),
    )
    assert outcome.externs


def test_a_position_outside_the_table_is_an_error() -> None:
    table, rows = torch.randn(10, 6), torch.tensor([[1, 2], [3, 10]])
    with pytest.raises(RuntimeError, match="found idx to be"):
        against_eager(lambda t, r: F.embedding_bag(r, t, mode="sum"), table, rows)
