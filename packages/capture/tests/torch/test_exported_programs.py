"""Modules of programs that `torch.export` made, compiled as one graph."""

from __future__ import annotations

from typing import Any

import flambeau_capture as fc
import pytest
import torch


class Net(torch.nn.Module):
    count: torch.Tensor

    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.writes = writes
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor, *, k: int = 2) -> dict[str, Any]:
        if self.writes:
            self.count.add_(1)
        return {"a": self.linear(x) * k, "b": (x.sum(), self.count + 0)}


@pytest.mark.parametrize("writes", [False, True], ids=["pure", "writes to a buffer"])
def test_an_exported_module_is_one_graph(writes: bool) -> None:
    x = torch.randn(3, 4)
    module = torch.export.export(Net(writes), (x,), {"k": 3}).module()
    compiled = fc.compile(module, fullgraph=True, backend="eager")
    for calls in (1, 2):
        got, expected = compiled(x, k=3), module(x, k=3)
        torch.testing.assert_close(got["a"], expected["a"])
        assert expected["b"][1] - got["b"][1] == writes
        assert module.count == 2 * calls * writes
