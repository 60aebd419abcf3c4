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
