"""Strides of what a user's operator is given, also of dimensions of one element and of no elements:
an operator may read them, and kernels lay their results out by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "itself": lambda x: x,
    "a row": lambda x: x[1:2],
    "a column": lambda x: x[:, 1:2],
    "no rows": lambda x: x[:0],
    "turned": lambda x: x.t(),
    "a turned row": lambda x: x.t()[1:2],
    "every other column": lambda x: x[..., ::2],
    "one more dimension": lambda x: x.unsqueeze(1),
    "a dimension in front": lambda x: x.t()[None, 1:],
    "repeated": lambda x: x[:1].expand(4, -1),
    "parts of a row": lambda x: x[1].view(1, -1, 1),
    "an element": lambda x: x[1:2, 1:2],
}
SOURCES: dict[str, Callable[[Tensor], Tensor]] = {
    "given": lambda x: x,
    "computed": lambda x: x * 2,
    "turned and computed": lambda x: x.t() * 2,
}


@pytest.fixture(scope="module")
def strides_of() -> Callable[[Tensor], Tensor]:
    @torch.library.custom_op("test_strides_that_operators_read::strides", mutates_args=())
    def strides(x: Tensor) -> Tensor:
        return torch.tensor([*x.stride(), x.storage_offset()])

    @strides.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty(x.dim() + 1, dtype=torch.int64)

    return strides


@pytest.mark.parametrize("backend", ["aot_eager_prims", "inductor"])
@pytest.mark.parametrize("source", SOURCES)
def test_they_are_eagers(strides_of: Callable[[Tensor], Tensor], source: str, backend: str) -> None:
    def program(x: Tensor) -> list[Tensor]:
        made = SOURCES[source](x)
        return [strides_of(view(made)) for view in VIEWS.values()]

    compiled = flambeau.compile(program, backend=backend, fullgraph=True, dynamic=False)
    for shape in ((3, 4), (2, 2), (2, 3)):
        expected, found = (run(torch.ones(shape)) for run in (program, compiled))
        for view, one, other in zip(VIEWS, expected, found, strict=True):
            assert other.tolist() == one.tolist(), (view, shape)


def of_positions(x):
    """Results laid out as the positions are, whose steps are a size that data decide."""
    found = x.nonzero()
    again = found * 2
    pointwise = (~found, found + 1, found.deg2rad(), found.isfinite(), found * torch.arange(2))
    copies = (found.clone(), again.float(), torch.zeros_like(again), found[:, None] * 3)
    return found, again, *pointwise, *copies, again.t().sin(), found.float().softmax(-1)


@pytest.mark.parametrize("backend", ["aot_eager", "aot_eager_prims", "inductor"])
def test_positions_that_data_decide_keep_their_layout(backend):
    compiled = flambeau.compile(of_positions, backend=backend, fullgraph=True)
    for mask in (torch.eye(3), torch.eye(3)[:2], torch.ones(2, 2)):
        for found, expected in zip(compiled(mask), of_positions(mask), strict=True):
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
