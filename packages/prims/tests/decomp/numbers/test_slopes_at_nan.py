"""What eager's kernels do where a formula may take either side: slopes at NaN."""

from collections.abc import Callable
from typing import Any

import flambeau_prims
import pytest
import torch
from torch import Tensor, fx

aten = torch.ops.aten

SLOPES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
    "elu": lambda g, x: aten.elu_backward(g, 1.0, 1.0, 1.0, False, x),
    "softshrink": lambda g, x: aten.softshrink_backward(g, x, 0.5),
    "hardshrink": lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    "hardswish": lambda g, x: aten.hardswish_backward(g, x),
    "logit": lambda g, x: aten.logit_backward(g, x, 0.1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_at_nan(name: str, dtype: torch.dtype) -> None:
    """Of a few elements, and of as many as vectors hold, where comparisons have another side."""
    gm = fx.symbolic_trace(SLOPES[name])
    for count in (3, 64):
        x = torch.full((count,), torch.nan, dtype=dtype)
        g = torch.full_like(x, 1.25)
        mine, eager = flambeau_prims.lower(gm, [g, x])(g, x), SLOPES[name](g, x)
        assert torch.equal(mine.nan_to_num(7), eager.nan_to_num(7))
