"""Means beside variances where elements are infinite, and complex means of what is no number;
variances of no elements."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import flambeau_prims
import pytest
import torch
from torch import Tensor, fx

SPECIAL = (1.0, torch.inf, -torch.inf, torch.nan)
ROWS = torch.tensor([[*row, 2.0] for row in product(SPECIAL, repeat=3)])

OF: dict[str, Callable[[Tensor], Tensor]] = {
    "var_mean": lambda x: torch.var_mean(x, -1)[1],
    "std_mean": lambda x: torch.std_mean(x, -1, correction=0)[1],
    "var_mean columns": lambda x: torch.var_mean(x.t(), 0, keepdim=True)[1],
    "variance": lambda x: torch.var_mean(x, -1)[0],
    "mean": lambda x: x.mean(-1),
    "one": lambda x: torch.var_mean(x[:, :1], -1)[1],
    "too many": lambda x: torch.var_mean(x, -1, correction=4)[1],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.complex64])
@pytest.mark.parametrize("name", OF)
def test_means_are_those_of_eager(name: str, dtype: torch.dtype) -> None:
    x = ROWS.to(dtype)
    if dtype.is_complex:
        x = torch.complex(ROWS, ROWS.flip(0))
    low = flambeau_prims.lower(fx.symbolic_trace(OF[name]), [x])
    torch.testing.assert_close(low(x), OF[name](x), equal_nan=True)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.complex64])
@pytest.mark.parametrize("correction", [-5, -0.5, 0, 1, 2])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2)])
def test_no_elements_have_no_variance(
    shape: tuple[int, ...], correction: float, dtype: torch.dtype
) -> None:
    """Whatever the correction makes of their number."""

    def spreads(x: Tensor) -> list[Tensor]:
        said = {"correction": correction}
        found = [x.var(**said), x.std(**said), x.var(-1, **said), x.std(0, keepdim=True, **said)]
        return [*found, torch.var_mean(x, **said)[0], torch.std_mean(x, 0, **said)[0]]

    x = torch.empty(shape, dtype=dtype)
    low = flambeau_prims.lower(fx.symbolic_trace(spreads), [x])
    for got, want in zip(low(x), spreads(x), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_a_device_that_divides_by_a_number_means_each_part() -> None:
    """An infinite or missing real part says nothing of the imaginary one."""
    x = torch.empty(3, 4, dtype=torch.complex64, device="meta")
    low = flambeau_prims.lower(fx.symbolic_trace(lambda x: x.mean(-1)), [x])
    divided = low.graph.find_nodes(op="call_function", target=torch.ops.flambeau_prims.div.default)
    assert [node.meta["val"].dtype for node in divided] == [torch.float32] * 2
