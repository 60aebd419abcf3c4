"""Numbers that are folded while compiling: those that every device has alike."""

from __future__ import annotations

import math

import flambeau_prims
import pytest
import torch
from flambeau_inductor.node_queries import name_of
from flambeau_inductor.passes.simplify import fold_constants
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("to", [torch.int8, torch.int32, torch.int64])
@pytest.mark.parametrize("number", [3.7, -2.0, 1e30, math.inf, -math.inf, math.nan])
def test_an_integer_that_holds_no_such_number_is_left_to_the_device(
    number: float, to: torch.dtype, device: str
) -> None:
    def program(x: Tensor) -> Tensor:
        return torch.full_like(x, number).to(to)

    with FakeTensorMode():
        x = torch.empty(4, device=device)
        module = flambeau_prims.lower(fx.symbolic_trace(program), [x])
    fold_constants(module.graph)
    casts = [node for node in module.graph.nodes if name_of(node) == "cast"]
    undefined = not (math.isfinite(number) and abs(number) < 100)
    assert len(casts) == (undefined and device == "cuda")
