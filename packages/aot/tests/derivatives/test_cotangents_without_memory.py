"""Zeros that torch gives no memory, as the derivative of `abs` of second order is: a compiled graph
is given ones in memory, in a pass of whatever order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch import fx

T = torch.Tensor
grad = torch.autograd.grad


def in_memory(gm: fx.GraphModule, *rest: Any) -> Callable[[list[Any]], Any]:
    """A compiler whose graphs want all that they are given in memory."""
    run = aot.run_as_is(gm, *rest)

    def checked(args: list[Any]) -> Any:
        assert not any(isinstance(x, T) and x._is_zerotensor() for x in args)
        return run(args)

    return checked


@pytest.mark.parametrize("strides", ((4, 1), (1, 3)), ids=str)
@pytest.mark.parametrize("again", (False, True), ids=("first", "second"))
def test_a_cotangent_without_memory(again: bool, strides: tuple[int, int]) -> None:
    compiled = aot.aot_function(lambda x: (x * x, x.exp()), in_memory)
    x = torch.rand(3, 4, requires_grad=True)
    zero = torch._efficientzerotensor((3, 4)).as_strided((3, 4), strides)
    assert zero._is_zerotensor()
    found = grad(compiled(x), x, (zero, torch.ones(3, 4)), create_graph=again)[0]
    torch.testing.assert_close(found, x.exp())
    if again:
        torch.testing.assert_close(grad(found, x, zero)[0], torch.zeros(3, 4))
