"""`torch.use_deterministic_algorithms` and the filling of `empty`, switched between calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.utils import deterministic

import flambeau


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    deterministic.fill_uninitialized_memory = True


def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.empty_like(x)
    y[:1] = x[:1]
    return y + 0, torch.empty(3), x.new_empty((2, 2), dtype=torch.int32), torch.empty(2).isnan()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_is_filled_follows_the_switches(backend: str) -> None:
    compiled = flambeau.compile(program, backend=backend)
    x = torch.rand(4)
    for asked, fills in ((False, True), (True, True), (True, False), (True, True), (False, False)):
        torch.use_deterministic_algorithms(asked)
        deterministic.fill_uninitialized_memory = fills
        given, expected = compiled(x), program(x)
        if asked and fills:
            for one, other in zip(given, expected, strict=True):
                assert torch.equal(one.isnan(), other.isnan())
                assert torch.equal(one.nan_to_num(), other.nan_to_num())
        else:
            assert torch.equal(given[0][:1], x[:1])
            assert [tuple(item.shape) for item in given] == [(4,), (3,), (2, 2), (2,)]
    assert flambeau.report(compiled).graphs >= 2
