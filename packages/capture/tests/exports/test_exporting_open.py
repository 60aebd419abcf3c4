"""Exports whose sizes are left open: the conditions on them are checked at each call."""

from __future__ import annotations

import flambeau_capture as fc
import pytest
import torch


def test_a_dimension_is_open_within_its_bounds() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.reshape(x.shape[0] * 2, -1) @ w).sum(0) * x.shape[0]

    x, w = torch.randn(4, 6), torch.randn(3, 5)
    fc.mark_dynamic(x, 0, min=3, max=64)
    exported = fc.export(f, x, w)
    for rows in (3, 10, 64):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(exported(x, w), f(x, w))
    for rows in (2, 65):
        with pytest.raises(ValueError, match="exported for sizes with"):
            exported(torch.randn(rows, 6), w)
    with pytest.raises(ValueError, match="exported for"):
        exported(torch.randn(4, 7), w)


def test_sizes_that_were_found_equal_have_to_be() -> None:
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    fc.mark_dynamic(x, 0)
    fc.mark_dynamic(y, 0)
    exported = fc.export(lambda x, y: x + y, x, y)
    x, y = torch.randn(9, 2), torch.randn(9, 2)
    torch.testing.assert_close(exported(x, y), x + y)
    with pytest.raises(ValueError, match="exported for"):
        exported(x, torch.randn(8, 2))


def test_a_size_of_a_tensor_that_is_not_computed_with_is_named() -> None:
    x = torch.randn(5, 2)
    fc.mark_dynamic(x, 0)
    with pytest.raises(fc.ExportError, match="number"):
        fc.export(lambda x, y: y * x.shape[0], x, torch.randn(3))
