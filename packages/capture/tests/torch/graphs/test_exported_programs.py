"""Modules of programs that `torch.export` made, compiled as one graph."""

from __future__ import annotations

from typing import Any

import flambeau_capture as fc
import pytest
import torch
from flambeau_capture.api import compiler_of


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


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize("open_sizes", [False, True])
def test_an_exported_module_is_exported_again(open_sizes: bool, decomposed: bool) -> None:
    """Its hook, which makes objects of torch's own to check the arguments, changes nothing."""
    x, net = torch.randn(3, 4), Net(False)
    sizes = {"x": {0: torch.export.Dim("rows", min=2, max=9)}, "k": None} if open_sizes else None
    program = torch.export.export(net, (x,), {"k": 3}, dynamic_shapes=sizes)
    module = (program.run_decompositions() if decomposed else program).module()
    exported = fc.export(module, x, k=3)
    for _ in range(2):
        x = torch.randn(3, 4)
        torch.testing.assert_close(exported(x, k=3), net(x, k=3))
    compiled = fc.compile(module, backend="eager")
    compiled(x, k=3)
    assert compiler_of(compiled).records.skipped == []
