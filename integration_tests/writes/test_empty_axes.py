"""Axes whose size is counted by data and may be none: what all their points share is not read."""

from __future__ import annotations

import pytest
import torch

import flambeau


@pytest.mark.parametrize("rows", [1, 3], ids=["of all points", "of a row"])
def test_memory_of_no_elements_is_not_read(rows: int) -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        places = torch.nonzero(x > 0).squeeze(1)
        kept = w.exp()[:, None].expand(rows, places.shape[0])
        return (kept * kept * x[places]).relu().sum()

    compiled = flambeau.compile(fn, fullgraph=True)
    for x in (torch.randn(64), -torch.ones(64), torch.ones(64)):
        grads = []
        for call in (fn, compiled):
            w = torch.arange(1.0, rows + 1).requires_grad_()
            call(x, w).backward()
            grads.append(w.grad)
        torch.testing.assert_close(*grads)
