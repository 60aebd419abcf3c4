"""Checks before kernels read."""

from __future__ import annotations

import pytest
import torch
from flambeau_inductor.runtime.checks import check_index, check_input


def test_indices_in_range():
    check_index(torch.tensor([[0, 4], [-5, 2]]), -5, 5, "IndexError", "")
    check_index(torch.tensor(3), 0, 4, "IndexError", "")


@pytest.mark.parametrize(("value", "low"), [(5, -5), (-6, -5), (-1, 0)])
def test_indices_out_of_range(value: int, low: int):
    with pytest.raises(RuntimeError, match=f"^bad {value}!$"):
        check_index(torch.tensor([0, value, 1]), low, 5, "RuntimeError", "bad {index}!")
    with pytest.raises(IndexError):
        check_index(torch.tensor(value), low, 5, "IndexError", "out")


def test_an_input_as_compiled_for():
    check_input(0, torch.randn(3, 4), (3, 4), (4, 1), torch.float32, "cpu")
    check_input(
        0, torch.randn(1, 4).as_strided((1, 4), (9, 1)), (1, 4), (4, 1), torch.float32, "cpu"
    )


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(4, 3),
        torch.randn(4, 3).t(),
        torch.randn(3, 4, dtype=torch.float64),
        torch.empty(3, 4, device="meta"),
        3.0,
        None,
    ],
)
def test_another_input(value: object):
    with pytest.raises(ValueError, match="input 2"):
        check_input(2, value, (3, 4), (4, 1), torch.float32, "cpu")
