"""Values that have memory in any case, computed by loops that read what they are made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flambeau_inductor.ir.loops import Load
from flambeau_inductor.schedule import Limits
from torch import Tensor

from tests.evaluated import against_eager

LIMITS = Limits(split_on=("cpu",))


def _rectified(x: Tensor, scale: Tensor) -> Tensor:
    return torch.relu((x - 0.1) * scale)


def _sums(x: Tensor, scale: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """As the backward of a norm and a rectifier, whose result a product reads."""
    h = _rectified(x, scale)
    masked = torch.where(h <= 0, 0.0, h @ w)
    return masked.sum(0), (masked * x).sum(0)


def _without_source(x: Tensor, scale: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    h = _rectified(x, scale)
    masked = torch.where(h <= 0, 0.0, h @ w)
    return masked.sum(0), (masked * masked).sum(0)


def _other_elements(x: Tensor, scale: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """The source is at hand, but at other positions."""
    h = _rectified(x, scale)
    masked = torch.where(h <= 0, 0.0, h @ w)
    return masked.sum(0), (masked * x.flip(0)).sum(0)


def _pointwise(x: Tensor, scale: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    h = _rectified(x, scale)
    return h, torch.where(h <= 0, 0.0, h @ w) * x * scale


@pytest.mark.parametrize(
    ("function", "columns", "again"),
    [
        (_sums, 24, True),
        (_pointwise, 24, True),
        (_without_source, 24, False),
        (_other_elements, 24, False),
        (_sums, 40, True),
    ],
)
def test_elements_are_computed_from_those_at_hand(
    function: Callable[..., tuple[Tensor, ...]], columns: int, again: bool
) -> None:
    x, scale, w = torch.randn(40, columns), torch.randn(columns), torch.randn(columns, columns)
    done = against_eager(function, x, scale, w, tolerance=1e-4, limits=LIMITS)
    first, *readers = done.loops
    (made,) = {i.buffer for i in first.body if hasattr(i, "value") and hasattr(i, "buffer")}
    loads = {i.buffer for loop in readers for i in loop.body if isinstance(i, Load)}
    assert (made not in loads) is again
