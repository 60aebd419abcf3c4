"""Derivatives that are zero whatever the values, of programs whose own derivatives are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import flambeau_aot as aot
import flambeau_prims
import pytest
import torch

PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "abs of abs": lambda x: x.abs().abs(),
    "three times": lambda x: x.abs().abs().abs(),
    "norm": lambda x: x.norm(1).abs(),
    "sum": lambda x: x.abs().cumsum(0).abs() + x.abs().abs(),
    "signs": lambda x: x.sgn() + x.abs(),
}


@pytest.mark.parametrize("table", [{}, flambeau_prims.decompositions()], ids=["aten", "prims"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_lead_to_the_inputs_that_eagers_lead_to(name: str, table: Mapping[Any, Any]) -> None:
    def derivatives(call: Callable[[torch.Tensor], torch.Tensor]) -> list[object]:
        x, found = torch.tensor([1.0, -2.0, 3.0]).requires_grad_(), list[object]()
        gradient: torch.Tensor | None = call(x).sum()
        while gradient is not None and gradient.requires_grad and len(found) < 4:
            (gradient,) = torch.autograd.grad(
                gradient.sum(), x, create_graph=True, allow_unused=True
            )
            found.append(None if gradient is None else gradient.detach() + 0)
        return found

    call = aot.aot_function(PROGRAMS[name], aot.run_as_is, decompositions=table)
    own, eager = derivatives(call), derivatives(PROGRAMS[name])
    assert [item is None for item in own] == [item is None for item in eager]
    torch.testing.assert_close(own, eager)
