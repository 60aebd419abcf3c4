"""Gradients as eager lays them out: values, dtype, strides and whose memory they share.

Of the differentiable operators of torch's descriptions. Gradients lie as in eager however the
cotangents do; where those lie as their results, they share memory with the same tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flambeau_aot as aot
import pytest
import torch
from torch.utils import _pytree as pytree

from .check import LAYOUTS, REFUSED, calls, fresh, name_of
from .test_opinfo import DIFFERENTIABLE

OTHERWISE = {
    "max.reduction_no_dim": "a formula that eager has for plain tensors alone",
    "min.reduction_no_dim": "a formula that eager has for plain tensors alone",
    "expand_as": "a sum over no dimension is its operand",
    "index_put": "not known",
    "ormqr": "not known",
    "prod": "not known",
    "std_mean": "not known: of cotangents in reverse, a sum of two formulas",
    "std": "not known: of cotangents in reverse",
    "fft.ifft": "not known: of cotangents in reverse, along a dimension before the last",
    "linalg.householder_product": "not known",
}
"""Operators of which a gradient lies otherwise, mostly where inputs are not contiguous, and why."""


def as_the_result(x: torch.Tensor) -> torch.Tensor:
    weights = torch.linspace(0.5, 1.5, x.numel(), dtype=x.dtype).reshape(x.shape)
    return torch.empty_like(x).copy_(weights)


COTANGENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as the result": as_the_result,
    "contiguous": lambda x: as_the_result(x).contiguous(),
    "reversed": lambda x: LAYOUTS["reversed"](as_the_result(x)),
    "expanded": lambda x: x.new_full((1,) * x.dim(), 0.75).expand(x.shape),
}


@dataclass(frozen=True)
class Gradient:
    """One gradient: strides where they say where elements are; which of the cotangents, gradients
    and inputs, in this order, it shares memory with."""

    value: torch.Tensor
    strides: tuple[int, ...]
    shared: tuple[int, ...]


def gradients(call: Callable[..., Any], flat: list[Any], cotangent: str) -> list[Gradient | None]:
    torch.manual_seed(0)
    results = pytree.tree_leaves(call(*flat))
    ends = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    leaves = [x for x in flat if isinstance(x, torch.Tensor) and x.requires_grad]
    if not ends or not leaves:
        return []
    given = [COTANGENTS[cotangent](x.detach()) for x in ends]
    found = torch.autograd.grad(ends, leaves, given, allow_unused=True)
    return [None if x is None else described(x, [*given, *found, *flat]) for x in found]


def described(value: torch.Tensor, others: list[Any]) -> Gradient:
    strides = [step for size, step in zip(value.shape, value.stride(), strict=True) if size > 1]
    start = value.untyped_storage().data_ptr()
    return Gradient(
        value,
        tuple(strides) if value.numel() else (),
        tuple(
            place
            for place, other in enumerate(others)
            if isinstance(other, torch.Tensor)
            and other.layout == torch.strided
            and other.untyped_storage().data_ptr() == start
        ),
    )


@pytest.mark.sweep(80)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_gradients_of(op: Any) -> None:
    for sample, call, flat in calls(op, 3):
        for layout in ("as they are", "reversed"):
            compiled = aot.aot_function(call, aot.run_as_is)
            for cotangent in COTANGENTS:
                try:
                    expected = gradients(call, [fresh(x, layout) for x in flat], cotangent)
                except REFUSED:
                    continue
                try:
                    found = gradients(compiled, [fresh(x, layout) for x in flat], cotangent)
                except aot.AotError:
                    break
                where = f"{sample}, {layout}, cotangent {cotangent}"
                assert [x is None for x in found] == [x is None for x in expected], where
                for one, other in zip(found, expected, strict=True):
                    if one is None or other is None:
                        continue
                    torch.testing.assert_close(one.value, other.value, equal_nan=True)
                    if name_of(op) in OTHERWISE:
                        continue
                    assert one.strides == other.strides, where
                    if cotangent == "as the result":
                        assert one.shared == other.shared, where
