"""Where an argument says nothing - a bound that is NaN, an empty list of dimensions - and where a
power overflows: what eager makes of it."""

from __future__ import annotations

from collections.abc import Callable

import flambeau_prims
import pytest
import torch
from torch import Tensor, fx

NONE = float("nan")
SPECIAL = torch.tensor([0.5, 1, 2, torch.inf, -torch.inf, -1, 0, -0.0, torch.nan] * 4)
ROWS = torch.arange(24.0).remainder(5).reshape(4, 3, 2).permute(2, 1, 0)

OF: dict[str, Callable[[Tensor], Tensor]] = {
    "no bound": lambda x: torch.logit(x, NONE),
    "bound": lambda x: torch.logit(x, 0.25),
    "bounds that cross": lambda x: torch.logit(x, 0.75),
    "any": lambda x: torch.any(x, dim=()),
    "all": lambda x: torch.all(x, dim=()),
    "all, kept": lambda x: torch.all(x, dim=(), keepdim=True),
    **{
        f"norm {order}": lambda x, order=order: torch.linalg.vector_norm(x, order, dim=0)
        for order in (0.5, 3, 100, 255, 2000, -300)
    },
}


def program(name: str, x: Tensor) -> fx.GraphModule:
    graph = fx.Graph()
    graph.output(OF[name](fx.Proxy(graph.placeholder("x"))).node)
    return flambeau_prims.lower(fx.GraphModule({}, graph), [x])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("name", OF)
def test_results_are_those_of_eager(name: str, dtype: torch.dtype) -> None:
    inputs = [ROWS, ROWS[:, :1], ROWS + 3] if "norm" in name else [SPECIAL, SPECIAL[:5], ROWS]
    for x in [x.to(dtype) for x in inputs]:
        given, expected = program(name, x)(x), OF[name](x)
        torch.testing.assert_close(given, expected, equal_nan=True)
        assert given.stride() == expected.stride()
