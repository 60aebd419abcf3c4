"""One graph from end to end, in a second or two."""

from __future__ import annotations

import flambeau_inductor
import flambeau_prims
import torch
from torch import fx


def test_a_fused_chain_equals_eager():
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.nn.functional.gelu(x) * y + 1, -1)

    inputs = [torch.randn(33, 65), torch.randn(65)]
    graph = flambeau_prims.lower(fx.symbolic_trace(function), inputs)
    compiled = flambeau_inductor.compile(graph, inputs)
    boxed = list(inputs)
    (result,) = compiled(boxed)
    assert boxed == []
    torch.testing.assert_close(result, function(*inputs), rtol=1e-5, atol=1e-6)
    assert compiled.report.kernels == 1
    assert compiled.report.externs == {}
