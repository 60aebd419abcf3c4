"""Losses by eager's own operators, bit for bit: each step is rounded as eager rounds it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from flambeau_prims.conformance import Decomposing

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("count", [1, 7, 100, 1000])
def test_soft_margin_loss(count: int, reduction: str, dtype: torch.dtype) -> None:
    for targets in (torch.randn(count).sign(), torch.randn(count)):
        x = (3 * torch.randn(count)).to(dtype).requires_grad_()
        targets = targets.to(dtype)
        expected = F.soft_margin_loss(x, targets, reduction=reduction)
        with Decomposing():
            found = F.soft_margin_loss(x, targets, reduction=reduction)
        if reduction == "none":
            assert torch.equal(found.nan_to_num(), expected.nan_to_num())
        torch.testing.assert_close(found, expected, equal_nan=True)
        cotangent = torch.rand(expected.shape).to(dtype)
        (wanted,) = torch.autograd.grad(expected, x, cotangent)
        with Decomposing():
            (given,) = torch.autograd.grad(found, x, cotangent)
        assert torch.equal(given.isnan(), wanted.isnan())
        assert torch.equal(given.nan_to_num(), wanted.nan_to_num())


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("weight", [torch.inf, -torch.inf, torch.nan])
def test_a_margin_that_is_kept_has_no_weight(
    weight: float, power: int, reduction: str, dtype: torch.dtype
) -> None:
    """What is not counted is left out, not multiplied by zero."""
    rows = [[5.0, 0.0, 1.0], [0.0, 0.5, 9.0], [torch.nan, 3.0, 2.9], [torch.inf, 1.0, 0.0]]
    x = torch.tensor(rows, dtype=dtype, requires_grad=True)
    target = torch.tensor([0, 1, 2, 0])
    weights = torch.tensor([weight, 2.0, weight], dtype=dtype)
    said = {"p": power, "weight": weights, "reduction": reduction}
    expected = F.multi_margin_loss(x, target, **said)
    with Decomposing():
        found = F.multi_margin_loss(x, target, **said)
    torch.testing.assert_close(found, expected, equal_nan=True)
    cotangent = torch.ones_like(expected)
    (wanted,) = torch.autograd.grad(expected, x, cotangent)
    with Decomposing():
        (given,) = torch.autograd.grad(found, x, cotangent)
    torch.testing.assert_close(given, wanted, equal_nan=True)
