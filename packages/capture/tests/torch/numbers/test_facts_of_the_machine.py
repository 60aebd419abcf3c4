"""Queries of the machine that programs put: their answers are constants of a graph."""

from __future__ import annotations

from typing import Any

import flambeau_capture as fc
import pytest
import torch

QUERIES: dict[str, Any] = {
    "capability": lambda x: torch.cuda.get_device_capability(x.device) >= (8, 0),
    "capability of the current one": lambda x: torch.cuda.get_device_capability()[0] >= 8,
    "name": lambda x: "H" in torch.cuda.get_device_name(0),
    "architectures": lambda x: len(torch.cuda.get_arch_list()) > 90,
    "count": lambda x: torch.cuda.device_count() > 0,
    "cudnn": lambda x: torch.backends.cudnn.version() is None,
}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_a_constant_or_raises_as_in_eager(name: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        try:
            there = QUERIES[name](x)
        except (AssertionError, RuntimeError, ValueError):
            there = None
        return y + {True: 1.0, False: 2.0, None: 3.0}[there]

    x = torch.randn(3)
    compiled = fc.compile(f, backend="eager", fullgraph=torch.cuda.is_available())
    torch.testing.assert_close(compiled(x), f(x))
